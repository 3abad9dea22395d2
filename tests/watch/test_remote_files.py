"""A checkpoint's bytes, read synchronously from a host that only the event loop may use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dflash_tui.checkpoints.errors import CheckpointError, CheckpointIncomplete
from dflash_tui.hosts.local import LocalHost
from dflash_tui.watch.remote_files import RemoteFiles


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
