"""Room at the destination: looked for before, set aside, watched, and told of when it ends."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from dflash_tui.hosts.base import Process, Space
from dflash_tui.hosts.local import LocalHost
from dflash_tui.transfer import keeper
from dflash_tui.transfer.claim import CLAIM
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import NoSpace
from dflash_tui.transfer.move import move
from dflash_tui.transfer.space import Room, check_space, look_for_room, missing_room
from tests.sshd import need
from tests.transfer.interrupted import MIB, TWO_CHUNKS, Place, place_in


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 100 MiB and 64 inodes."""
    need(os.geteuid() == 0, "mount, which needs root,")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m,nr_inodes=64", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def place(tmp_path: Path, disk: Path) -> Place:
    """From one disk to another."""
    made = place_in(tmp_path)
    made.here = disk / "eval" / "checkpoints" / "run" / "step_4000"
    return made


class WithoutFallocate(LocalHost):
    """A host that can't set room aside: old, or its filesystem can't."""

    def __init__(self, name: str, programs: Path) -> None:
        super().__init__(name)
        programs.mkdir()
        for folder in ("/bin", "/usr/bin"):
            for found in Path(folder).iterdir():
                if found.name != "fallocate" and not (programs / found.name).exists():
                    (programs / found.name).symlink_to(found)
        self._path = f"PATH={programs}"

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        return super().stream(["/usr/bin/env", self._path, *argv], stdin=stdin)


class Held:
    """A pace that holds a transfer back once `nbytes` lie in its part."""

    def __init__(self, place: Place, nbytes: int) -> None:
        self._place, self._nbytes, self._crossed = place, nbytes, 0
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, nbytes: int) -> None:
        self._crossed += nbytes
        if self._crossed > self._nbytes + 2 * MIB and not self.go_on.is_set():
            while self._place.part.stat().st_size < self._nbytes:
                await asyncio.sleep(0.01)
            self.reached.set()
            await self.go_on.wait()


def test_what_is_needed_is_what_is_not_held_yet() -> None:
    check_space("h:/f", [(100, 60), (50, 0)], Room(Space(90, 8)))
    with pytest.raises(NoSpace, match=r"h:/f has 89 bytes free and 90 are needed, 1 too few"):
        check_space("h:/f", [(100, 60), (50, 0)], Room(Space(89, 8)))
    with pytest.raises(NoSpace, match=r"90 bytes free, 5 of them for other transfers that run now and 90 are needed"):
        check_space("h:/f", [(100, 60), (50, 0)], Room(Space(90, 8), reserved=5))
    with pytest.raises(NoSpace, match="7 inodes free and 8 are needed"):
        check_space("h:/f", [(100, 60), (50, 0)], Room(Space(90, 7)))
    check_space("h:/f", [(100, 0)], Room(Space(0, None)), takes_bytes=False)
    check_space("h:/f", [], Room(Space(0, 0)))


def running(folder: Path, nbytes: int, age: float = 0.0) -> None:
    """Another transfer, of another machine."""
    folder.mkdir(parents=True, exist_ok=True)
    body = {"token": "x", "machine": "laptop", "kernel": "k", "pid": 1, "start": 1, "bytes": nbytes}
    (folder / CLAIM).write_text(json.dumps(body) + "\n")
    when = (folder / CLAIM).stat().st_mtime - age
    os.utime(folder / CLAIM, (when, when))


async def test_what_other_running_transfers_will_take_is_not_free(place: Place, tmp_path: Path) -> None:
    run = place.here.parent
    running(run / "step_1000", 40 * MIB)
    (run / "step_1000" / ".checkpoint.pt.0123456789ab.part").write_bytes(bytes(10 * MIB))
    running(run.parent / "other" / "step_1", 5 * MIB)
    running(run / "step_2000", 70 * MIB, age=600)
    running(place.here, 70 * MIB, age=0)
    running(tmp_path / "eval" / "checkpoints" / "run" / "step_1", 70 * MIB)
    room = await look_for_room(place.destination, str(place.here), [])
    assert room.reserved == 35 * MIB, "neither of what ended, nor of this folder's, nor of another disk's"
    (place.here / CLAIM).unlink()
    place.make(70 * MIB)
    with pytest.raises(NoSpace, match=r"of them for other transfers that run now"):
        await place.plan()
    place.make(40 * MIB)
    assert (await place.plan()).reserved == 35 * MIB


async def test_a_place_that_is_not_there_yet_has_room(tmp_path: Path) -> None:
    for folder in ("/", "/nowhere", "/nowhere/at/all/deep", str(tmp_path / "a" / "b")):
        room = await look_for_room(LocalHost("lab"), folder, [])
        assert room.free.bytes > 0
        assert room.reserved == 0


async def test_room_that_an_unfinished_part_has_set_aside_is_not_asked_for_again(place: Place, disk: Path) -> None:
    place.make(TWO_CHUNKS)
    plan = await place.plan()
    held = Held(place, CHUNK)
    task = asyncio.create_task(move(plan, place.source, place.destination, place.seen.append, pace=held))
    await asyncio.wait_for(held.reached.wait(), 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert shutil.disk_usage(disk).free < TWO_CHUNKS, "it was set aside"
    plan = await place.plan()
    assert plan.resumable == CHUNK
    assert plan.files[0].held >= TWO_CHUNKS
    await place.move(plan=plan)
    assert place.names() == {"checkpoint.pt"}


async def test_a_disk_that_fills_up_keeps_what_arrived(place: Place, disk: Path, tmp_path: Path) -> None:
    data = place.make(TWO_CHUNKS)
    place.destination = WithoutFallocate("ct129", tmp_path / "bin")
    other = place.here.parent / "step_1" / ".checkpoint.pt.0123456789ab.part"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"another transfer's")

    held = Held(place, CHUNK)

    async def fill() -> None:
        await held.reached.wait()
        with (disk / "filler").open("wb") as file:
            file.write(bytes(shutil.disk_usage(disk).free - MIB))
        held.go_on.set()

    plan = await place.plan()
    filling = asyncio.create_task(fill())
    with pytest.raises(NoSpace, match=r"full.*bytes more are needed there; the 67,108,864 bytes that arrived are kept"):
        await move(plan, place.source, place.destination, place.seen.append, pace=held, pause=0.01)
    await filling
    assert other.read_bytes() == b"another transfer's"
    assert place.part.exists()
    (disk / "filler").unlink()
    moved = await place.move()
    assert moved.resumed == CHUNK
    assert (place.here / "checkpoint.pt").read_bytes() == data


async def test_a_disk_that_is_going_to_be_too_small_is_noticed_before_it_is_full(
    place: Place, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.make(TWO_CHUNKS)
    place.destination = WithoutFallocate("ct129", tmp_path / "bin")
    monkeypatch.setattr(keeper, "BEAT_SECONDS", 0.05)

    async def slow(nbytes: int) -> None:
        if not (disk / "filler").exists() and list(place.here.glob(".*.part")):
            with (disk / "filler").open("wb") as file:
                file.write(bytes(50 * MIB))
        await asyncio.sleep(0.2)

    plan = await place.plan()
    with pytest.raises(NoSpace, match=r"ct129: [\d,]+ bytes too few are free for what is still to come"):
        await move(plan, place.source, place.destination, place.seen.append, pace=slow)
    assert shutil.disk_usage(disk).free > MIB
    assert place.names() == set(), "nothing of it could have been continued"


async def test_room_that_was_set_aside_is_enough(place: Place, disk: Path) -> None:
    part = disk / "part"
    part.touch()
    subprocess.run(["fallocate", "-n", "-l", str(60 * MIB), part], check=True)
    (disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free))
    assert await missing_room(place.destination, str(disk), {str(part): 60 * MIB}) == 0
    assert await missing_room(place.destination, str(disk), {str(part): 61 * MIB}) == MIB


async def test_inodes_that_run_out_are_a_sentence(place: Place, disk: Path) -> None:
    place.make(MIB)
    plan = await place.plan()
    place.here.mkdir(parents=True)
    number = 0
    try:
        while True:
            (disk / str(number)).touch()
            number += 1
    except OSError:
        pass
    with pytest.raises(NoSpace, match="No space left"):
        await place.move(plan=plan)
    with pytest.raises(NoSpace, match="inodes free and"):
        await place.plan()
    assert place.names() == set()
