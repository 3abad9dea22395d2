"""A writer writes into a part of its own and into nothing else, wherever locks are and whatever has the part's name."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from dflash_tui.hosts.base import Process
from dflash_tui.hosts.local import LocalHost
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.journal import header
from dflash_tui.transfer.move import move
from dflash_tui.transfer.plan import TransferPlan
from dflash_tui.transfer.progress import TransferProgress
from dflash_tui.transfer.writing import BUSY, free, writing
from tests.transfer.interrupted import MIB, TWO_CHUNKS, Place, place_in
from tests.transfer.naming import name


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_in(tmp_path)


class WithProgram(LocalHost):
    """A host on which a program of ours stands before another of its name."""

    def __init__(self, name: str, folder: Path, program: str, text: str) -> None:
        super().__init__(name)
        folder.mkdir(exist_ok=True)
        (folder / program).write_text(text)
        (folder / program).chmod(0o755)
        self._path = f"PATH={folder}:{os.environ['PATH']}"

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        return super().stream(["/usr/bin/env", self._path, *argv], stdin=stdin)


def write(part: Path, start: int, data: bytes) -> int:
    return subprocess.run(writing(str(part), start, start + len(data)), input=data, capture_output=True).returncode


@pytest.mark.parametrize("kind", ["symlink", "hard link", "link to nothing", "another user's"])
async def test_what_is_not_a_file_of_its_own_is_never_written_to(tmp_path: Path, kind: str) -> None:
    precious, part = tmp_path / "precious", tmp_path / ".x.0123456789ab.part"
    precious.write_bytes(b"precious" * 1000)
    if kind == "symlink":
        part.symlink_to(precious)
    elif kind == "hard link":
        part.hardlink_to(precious)
    elif kind == "link to nothing":
        part.symlink_to(tmp_path / "made by somebody")
    else:
        part.write_bytes(b"theirs")
        os.chown(part, 12345, -1)
    assert write(part, 0, b"new") == 0
    assert part.read_bytes() == b"new"
    assert (part.stat().st_nlink, part.stat().st_uid, part.is_symlink()) == (1, os.geteuid(), False)
    assert precious.read_bytes() == b"precious" * 1000
    assert not (tmp_path / "made by somebody").exists()
    part.unlink()
    part.hardlink_to(precious)
    reader = subprocess.Popen(["tail", "-f", precious], stdout=subprocess.PIPE)
    assert reader.stdout is not None
    reader.stdout.read(8)
    assert subprocess.run(free(str(part))).returncode == 0
    assert not part.exists(), "nothing can be continued of it"
    assert reader.poll() is None, "who reads the source is left alone"
    reader.kill()
    reader.communicate()


async def test_a_part_that_lacks_what_comes_before_is_not_continued(tmp_path: Path) -> None:
    part = tmp_path / ".x.0123456789ab.part"
    assert write(part, MIB, b"new") == BUSY
    assert not part.exists()
    part.write_bytes(bytes(MIB - 1))
    assert write(part, MIB, b"new") == BUSY
    part.write_bytes(bytes(MIB + 5))
    assert write(part, MIB, b"new") == 0
    assert part.read_bytes() == bytes(MIB) + b"new"


async def test_a_writer_that_gets_the_lock_of_a_file_that_was_moved_away_ends(tmp_path: Path) -> None:
    part, final = tmp_path / ".x.0123456789ab.part", tmp_path / "x"
    part.write_bytes(b"whole")
    # It stands still between its look at the part and its lock.
    at, go = tmp_path / "bin" / "at", tmp_path / "bin" / "go"
    wait = f'#!/bin/sh\ntouch {at}\nuntil [ -e {go} ]; do sleep 0.02; done\nexec /usr/bin/flock "$@"\n'
    host = WithProgram("lab", tmp_path / "bin", "flock", wait)
    argv = ["/usr/bin/env", host._path, *writing(str(part), 0, 5)]
    late = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    async with asyncio.timeout(10):
        while not at.exists():
            await asyncio.sleep(0.01)
    await name(LocalHost("lab"), str(part), str(final), await LocalHost("lab").stat(str(part)))
    go.touch()
    late.communicate(b"wrong")
    assert late.returncode == BUSY
    assert final.read_bytes() == b"whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "x"]


_SLOW_REMOVAL = """#!/bin/sh
case "$*" in *.part) if [ -e {final} ]; then touch {reached}; {then} fi ;; esac
exec /bin/rm "$@"
"""


@pytest.mark.parametrize("then", ["sleep 1;", "kill -9 $PPID; exit 1;"])
async def test_who_comes_between_a_name_and_the_end_of_the_old_one_reaches_nothing(place: Place, then: str) -> None:
    data = place.make(5 * MIB)
    final, reached = place.here / "checkpoint.pt", place.there / "reached"
    once = f"[ -e {place.there}/once ] || {{ touch {place.there}/once; {then} }};"
    text = _SLOW_REMOVAL.format(final=final, reached=reached, then=once)
    place.destination = WithProgram("ct129", place.there / "bin", "rm", text)
    plan = await place.plan()
    part = plan.part_path(plan.files[0])
    moving = asyncio.create_task(move(plan, place.source, place.destination, place.seen.append, pause=0.01))
    while not reached.exists() and not moving.done():
        await asyncio.sleep(0.005)
    late = await asyncio.create_subprocess_exec(*writing(part, 0, 5 * MIB), stdin=-1, stderr=-1)
    await asyncio.wait_for(late.communicate(b"wrong"), 20)
    await moving
    assert final.read_bytes() == data
    assert final.stat().st_nlink == 1


async def test_a_part_whose_naming_was_broken_off_is_continued(place: Place) -> None:
    data = place.make(TWO_CHUNKS)
    plan = await place.plan()
    await place.move()
    part = Path(plan.part_path(plan.files[0]))
    (place.here / ".transfer.json").unlink()
    (place.here / "checkpoint.pt").rename(part.with_name(part.name.removesuffix("part") + "0badcafe.part"))
    file = plan.files[0]
    journal = header(file.plan_id, file.name, file.size, plan.source, plan.source_folder, file.sources)
    Path(plan.journal_path(file)).write_bytes(journal)
    moved = await place.move()
    assert moved.bytes == 0
    assert moved.resumed == len(data)
    assert place.names() == {"checkpoint.pt"}


_NFS = """#!/bin/bash
for word; do case $word in [0-9]*) fd=$word ;; esac; done
flags=$(sed -n 's/^flags:[[:space:]]*//p' /proc/$$/fdinfo/$fd)
[ "${flags: -1}" != 0 ] || { echo "flock: $fd: Bad file descriptor" >&2; exit 65; }
exec /usr/bin/flock "$@"
"""
_NO_LOCKS = '#!/bin/sh\necho "flock: 9: Function not implemented" >&2; exit %d\n'


@pytest.mark.parametrize("flock", [_NFS, _NO_LOCKS % 71, _NO_LOCKS % 1], ids=["NFS", "Lustre", "busybox on Lustre"])
async def test_filesystems_with_other_locks_or_none_are_moved_to(place: Place, tmp_path: Path, flock: str) -> None:
    data = place.make(5 * MIB)
    place.destination = WithProgram("ct129", tmp_path / "bin", "flock", flock)
    moved = await place.move(tries=1)
    assert (moved.attempts, moved.bytes) == (1, len(data))
    assert (place.here / "checkpoint.pt").read_bytes() == data
    assert place.names() == {"checkpoint.pt"}
    # One that was broken off is continued, too.
    late = await asyncio.create_subprocess_exec(*writing(f"{place.here}/.y.part", 0, MIB), stdin=-1, stderr=-1)
    async with asyncio.timeout(10):
        while not (place.here / ".y.part").exists():
            await asyncio.sleep(0.01)
    assert (await place.destination.run(free(f"{place.here}/.y.part"), check=False)).status == 0
    await late.wait()


async def _cancelled_while_it_is_verified(place: Place, plan: TransferPlan) -> None:
    def stop(progress: TransferProgress) -> None:
        if progress.phase == "verifying":
            task.cancel()

    task = asyncio.create_task(move(plan, place.source, place.destination, stop))
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def test_a_link_that_is_given_up_is_gone_and_its_source_stays(tmp_path: Path) -> None:
    """The same machine under another name finds the same part's name."""
    place = place_in(tmp_path)
    data = place.make(3 * MIB)
    place.destination = place.source
    for ending in ("cancelled", "killed"):
        plan = await place.plan()
        link = Path(plan.link_path(plan.files[0]))

        await _cancelled_while_it_is_verified(place, plan)
        assert place.names() == set()
        if ending == "killed":
            os.link(place.there / "checkpoint.pt", link)
            os.link(place.there / "checkpoint.pt", plan.part_path(plan.files[0]))
    other = Place(place.there, place.here, LocalHost("ct200"), LocalHost("local"))
    moved = await other.move()
    assert moved.how == {"checkpoint.pt": "streamed"}
    assert (place.there / "checkpoint.pt").read_bytes() == data
    assert (place.there / "checkpoint.pt").stat().st_nlink == 1
    assert other.names() == {"checkpoint.pt"}


class _Held:
    """A pace that holds a transfer back for good once `nbytes` lie in its part."""

    def __init__(self, place: Place, nbytes: int) -> None:
        self._place, self._nbytes, self._crossed = place, nbytes, 0
        self.reached = asyncio.Event()

    async def __call__(self, nbytes: int) -> None:
        self._crossed += nbytes
        if self._crossed > self._nbytes + 2 * MIB:
            while self._place.part.stat().st_size < self._nbytes:
                await asyncio.sleep(0.01)
            self.reached.set()
            await asyncio.sleep(60)


async def test_less_than_a_chunk_is_not_kept_of_what_is_given_up(place: Place) -> None:
    place.make(TWO_CHUNKS)
    for nbytes, kept in ((20 * MIB, 0), (CHUNK, CHUNK)):
        held = _Held(place, nbytes)
        plan = await place.plan()
        task = asyncio.create_task(move(plan, place.source, place.destination, place.seen.append, pace=held))
        await asyncio.wait_for(held.reached.wait(), 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await place.plan()).resumable == kept
        assert bool(place.names()) == bool(kept)


async def test_a_folder_in_a_parts_place_is_a_sentence(place: Place) -> None:
    place.make(MIB)
    plan = await place.plan()
    Path(plan.part_path(plan.files[0])).mkdir(parents=True)
    began = time.monotonic()
    with pytest.raises(TransferError, match=r"\.part is a folder, and .*; move it away"):
        await place.move(plan=plan)
    assert time.monotonic() - began < 5
