"""A source that is written while it moves: what is published is the source as it was at one moment, or nothing."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from dflash_tui.checkpoints.segments import Output, Range
from dflash_tui.transfer.errors import SourceChanged
from dflash_tui.transfer.move import move
from dflash_tui.transfer.progress import TransferProgress
from tests.transfer.interrupted import MIB, TWO_CHUNKS, Place, place_in


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return place_in(tmp_path)


async def moved_while(
    place: Place, after: int, overwritten: bytes | None, mapped: mmap.mmap | None, *what: Output
) -> None:
    """Move; once `after` bytes are written the source is other bytes, and size, time and inode are as before."""
    path = place.there / "checkpoint.pt"
    stat = path.stat()
    done = False

    def emit(progress: TransferProgress) -> None:
        nonlocal done
        place.seen.append(progress)
        if progress.written > after and overwritten is not None and not done:
            done = True
            if mapped is not None:
                mapped[:] = overwritten
            else:
                with path.open("r+b") as file:
                    file.write(overwritten)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    await move(await place.plan(*what), place.source, place.destination, emit, pause=0.01)


@pytest.mark.parametrize("mapped", [False, True], ids=["written", "mapped"])
@pytest.mark.parametrize(
    "what", [(), (Output("part.bin", (Range("checkpoint.pt", 5, 60 * MIB),)),)], ids=["whole", "composed"]
)
async def test_a_source_that_is_overwritten_in_place_is_never_published_mixed(
    place: Place, mapped: bool, what: tuple[Output, ...]
) -> None:
    place.make(80 * MIB)
    with (
        (place.there / "checkpoint.pt").open("r+b") as file,
        mmap.mmap(file.fileno(), 0) as pages,
        pytest.raises(SourceChanged, match=r"written again while it moved"),
    ):
        await moved_while(place, 20 * MIB, os.urandom(80 * MIB), pages if mapped else None, *what)
    assert place.names() == set(), "what arrived of two versions is given back"


async def test_a_part_is_not_continued_with_bytes_of_another_version(place: Place) -> None:
    place.make(TWO_CHUNKS)

    class Stop(Exception):
        pass

    def stop(progress: TransferProgress) -> None:
        if progress.phase == "verifying":
            raise Stop

    path = place.there / "checkpoint.pt"
    stat = path.stat()
    with pytest.raises(Stop):
        await move(await place.plan(), place.source, place.destination, stop)
    os.truncate(place.part, TWO_CHUNKS - 1)
    with path.open("r+b") as file:
        file.write(os.urandom(TWO_CHUNKS))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    plan = await place.plan()
    assert plan.resumable
    with pytest.raises(SourceChanged, match=r"written again while it moved"):
        await place.move(plan=plan)
    assert place.names() == set()


async def test_a_source_that_only_got_another_name_is_no_other(place: Place) -> None:
    data = place.make(20 * MIB)
    plan = await place.plan()
    os.link(place.there / "checkpoint.pt", place.there / "kept.pt")
    await place.move(plan=plan)
    assert (place.here / "checkpoint.pt").read_bytes() == data
