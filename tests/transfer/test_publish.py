"""A name is given to what was proven, whole, in nobody's place; whatever else lies there stays without one."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from dflash_tui.hosts.base import Process
from dflash_tui.hosts.local import LocalHost
from dflash_tui.transfer.errors import DestinationTaken, TransferCut
from dflash_tui.transfer.move import move
from dflash_tui.transfer.plan import make_plan
from dflash_tui.transfer.progress import TransferProgress
from tests.transfer.lab import MIB, fill, place
from tests.transfer.naming import name

HOST = LocalHost("lab")


@pytest.fixture
def part(tmp_path: Path) -> Path:
    made = tmp_path / ".x.pt.0123456789ab.part"
    made.write_bytes(b"weights")
    return made


async def test_a_proven_part_gets_its_name(part: Path) -> None:
    final = part.with_name("x.pt")
    inode = part.stat().st_ino
    await name(HOST, str(part), str(final), await HOST.stat(str(part)))
    assert final.read_bytes() == b"weights"
    assert final.stat().st_ino == inode
    assert list(part.parent.iterdir()) == [final]


@pytest.mark.parametrize("change", ["cut", "grown", "written over", "another file", "held by a writer"])
async def test_a_part_that_is_not_what_was_proven_gets_none(part: Path, change: str) -> None:
    proven = await HOST.stat(str(part))
    holding = None
    if change == "cut":
        os.truncate(part, 3)
    elif change == "grown":
        part.write_bytes(b"weights and more")
    elif change == "written over":
        part.write_bytes(b"wrongly")
        os.utime(part, (0, proven.mtime + 2))
    elif change == "another file":
        part.rename(part.with_name("old"))
        part.write_bytes(b"weights")
        os.utime(part, (0, proven.mtime))
    else:
        holding = subprocess.Popen(["flock", str(part), "sh", "-c", "echo; exec cat"], stdin=-1, stdout=-1)
        assert holding.stdout is not None
        holding.stdout.readline()
    try:
        with pytest.raises(TransferCut, match="written to after it had been verified"):
            await name(HOST, str(part), str(part.with_name("x.pt")), proven)
        assert not part.with_name("x.pt").exists()
        assert part.exists()
    finally:
        if holding is not None:
            holding.communicate()


@pytest.mark.parametrize("kind", ["file", "folder", "link to nothing"])
async def test_a_name_in_use_is_left_alone(part: Path, kind: str) -> None:
    final = part.with_name("x.pt")
    if kind == "file":
        final.write_bytes(b"another's")
    elif kind == "folder":
        final.mkdir()
    else:
        final.symlink_to("nowhere")
    with pytest.raises(DestinationTaken, match="came into being meanwhile; it was left as it is"):
        await name(HOST, str(part), str(final), await HOST.stat(str(part)))
    assert part.read_bytes() == b"weights"
    assert kind != "file" or final.read_bytes() == b"another's"
    assert kind != "folder" or list(final.iterdir()) == []


class WithoutLinks(LocalHost):
    """A host whose filesystem knows no hard links."""

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        return super().stream([word.replace('ln "$aside"', 'false "$aside"') for word in argv], stdin=stdin)


async def test_where_there_are_no_hard_links_it_is_renamed(part: Path) -> None:
    final, host = part.with_name("x.pt"), WithoutLinks("lab")
    await name(host, str(part), str(final), await host.stat(str(part)))
    assert final.read_bytes() == b"weights"
    assert list(part.parent.iterdir()) == [final]
    part.write_bytes(b"others!")
    with pytest.raises(DestinationTaken):
        await name(host, str(part), str(final), await host.stat(str(part)))
    assert final.read_bytes() == b"weights"


async def test_a_stream_that_is_cut_ends_a_command_well_and_names_nothing(tmp_path: Path) -> None:
    """Who closes a writer's stdin makes it end with 0, also when it was the cable: `cat >part && mv part final` would
    publish half a file then."""
    async with place("ssh", tmp_path / "one", "ct200") as source, place("ssh", tmp_path / "two", "ct129") as target:
        data = fill(source.real / "checkpoint.pt", 30 * MIB)
        plan = await make_plan(source.host, source.folder, ["checkpoint.pt"], target.host, target.folder)
        final = target.real / "checkpoint.pt"
        cuts, attempt = 0, 1

        async def pace(nbytes: int) -> None:
            nonlocal cuts
            parts = list(target.real.glob(".*.part"))
            if cuts < min(3, attempt) and parts and parts[0].stat().st_size > 8 * MIB:
                cuts += 1
                # The writer sees the end of its input, as it does when sshd goes before it.
                assert target.sshd is not None
                target.sshd.kill_sessions()
            assert not final.exists()
            await asyncio.sleep(0.01)

        def watch(progress: TransferProgress) -> None:
            nonlocal attempt
            attempt = progress.attempt
            assert not final.exists() or final.stat().st_size == len(data)

        moved = await move(plan, source.host, target.host, watch, pace=pace, pause=0.01)
        assert cuts == 3
        assert moved.attempts == 4
        assert final.read_bytes() == data


@pytest.mark.parametrize("kinds", ["ssh pct", "local docker", "pct docker"])
async def test_a_container_as_the_destination_keeps_part_and_journal(tmp_path: Path, kinds: str) -> None:
    one, two = kinds.split()
    async with place(one, tmp_path / "one", "ct200") as source, place(two, tmp_path / "two", "ct129") as target:
        data = fill(source.real / "checkpoint.pt", 70 * MIB)
        reached = asyncio.Event()

        crossed = 0

        async def pace(nbytes: int) -> None:
            nonlocal crossed
            crossed += nbytes
            if crossed > 67 * MIB:
                (part,) = (target.real / "sub").glob(".*.part")
                while part.stat().st_size < 64 * MIB:
                    await asyncio.sleep(0.01)
                reached.set()
                await asyncio.sleep(60)

        plan = await make_plan(source.host, source.folder, ["checkpoint.pt"], target.host, f"{target.folder}/sub")
        task = asyncio.create_task(move(plan, source.host, target.host, lambda progress: None, pace=pace))
        await asyncio.wait_for(reached.wait(), 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        names = {path.name.rpartition(".")[2] for path in (target.real / "sub").iterdir()}
        assert names == {"part", "journal"}, "its claim was given back"
        plan = await make_plan(source.host, source.folder, ["checkpoint.pt"], target.host, f"{target.folder}/sub")
        assert plan.resumable == 64 * MIB
        moved = await move(plan, source.host, target.host, lambda progress: None, pause=0.01)
        assert moved.bytes == 6 * MIB
        assert (target.real / "sub" / "checkpoint.pt").read_bytes() == data
        assert {path.name for path in (target.real / "sub").iterdir()} == {"checkpoint.pt", ".transfer.json"}
