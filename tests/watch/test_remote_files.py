"""A checkpoint's bytes, read synchronously from a host that only the event loop may use."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.checkpoints.errors import CheckpointError, CheckpointIncomplete
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.ssh import SshHost
from dflash_tui.watch.remote_files import RemoteFiles
from tests.bench.transfer.line import line
from tests.launchers.boxes import running_box
from tests.sshd import running_sshd


async def test_reads_ranges_in_a_thread_while_the_loop_runs_on(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(range(256)))
    files = RemoteFiles(LocalHost(), str(tmp_path), {"a.bin": 256})
    assert files.names() == ["a.bin"]
    assert files.size("a.bin") == 256
    assert await asyncio.to_thread(files.read, "a.bin", 10, 4) == bytes([10, 11, 12, 13])
    ranges = [(start, 2) for start in range(0, 200, 5)]
    expected = [bytes([start, start + 1]) for start, _ in ranges]
    assert await asyncio.to_thread(files.read_many, "a.bin", ranges) == expected


async def test_a_file_that_shrank_is_incomplete(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"short")
    files = RemoteFiles(LocalHost(), str(tmp_path), {"a.bin": 256, "gone.bin": 1})
    with pytest.raises(CheckpointIncomplete, match=r"a\.bin"):
        await asyncio.to_thread(files.read, "a.bin", 0, 256)
    with pytest.raises(CheckpointIncomplete, match=r"a\.bin"):
        await asyncio.to_thread(files.read_many, "a.bin", [(0, 1), (0, 256), (1, 1)])
    with pytest.raises(CheckpointIncomplete, match=r"gone\.bin"):
        await asyncio.to_thread(files.read, "gone.bin", 0, 1)


async def test_only_listed_files_have_a_size(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not among the files"):
        RemoteFiles(LocalHost(), str(tmp_path), {}).size("a.bin")


RECORDS = 500


def many_tensors(folder: Path) -> dict[str, int]:
    """A checkpoint of many records, far apart."""
    import torch

    tensors = {f"layers.{number}.weight": torch.full((3000,), float(number)) for number in range(RECORDS)}
    torch.save({"model": tensors, "step": 5}, folder / "checkpoint.pt")
    return {"checkpoint.pt": (folder / "checkpoint.pt").stat().st_size}


async def test_the_structure_of_many_records_takes_few_round_trips_to_a_far_host(tmp_path: Path) -> None:
    sizes = many_tensors(tmp_path)
    (tmp_path / "sshd").mkdir()
    with running_sshd(tmp_path / "sshd") as server, line(server.port, delay=0.05) as far:
        known = tmp_path / "known_hosts"
        known.write_text(f"[127.0.0.1]:{far.port} {server.host_key}\n")
        host = SshHost("far", replace(server.address, port=far.port, known_hosts=str(known)))
        try:
            await host.run(["true"])
            loop = asyncio.get_running_loop()
            began = loop.time()
            structure = await asyncio.to_thread(read_structure, RemoteFiles(host, str(tmp_path), sizes))
            assert loop.time() - began < 50 * 0.1, "each is a round trip; one by one they would be 2,000"
        finally:
            await host.close()
    assert len(structure.tensors) == RECORDS


async def test_the_structure_of_many_records_takes_few_commands_in_a_container(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    with running_box(tmp_path / "box", "docker") as box:
        sizes = many_tensors(box.root / "data")
        files = RemoteFiles(ContainerHost(LocalHost(), box.prefix(), "box"), "/data", sizes)
        structure = await asyncio.to_thread(read_structure, files)
        assert len(structure.tensors) == RECORDS
        assert len(box.calls) <= 8
