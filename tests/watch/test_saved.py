"""Saved checkpoints as they lie on a host: whole ones, ones being written, torn ones."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.identity import quick_id
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.hosts.base import FileMissing
from dflash_tui.hosts.local import LocalHost
from dflash_tui.watch.clock import HostClock
from dflash_tui.watch.saved import QUIET, CheckpointLister, list_checkpoints
from tests.cases import known

CHECKPOINT = known("cases/checkpoints/raw-step/step_4000/checkpoint.pt")
CLOCK = HostClock(known=True)


def save(root: Path, step: int, *, keep: float = 1.0, age: float = 3600.0) -> Path:
    """A checkpoint of that step, its file cut to a fraction, last changed `age` seconds ago."""
    path = root / f"step_{step}" / "checkpoint.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(CHECKPOINT, path)
    os.truncate(path, int(path.stat().st_size * keep))
    touch(path, age)
    return path


def touch(path: Path, age: float) -> None:
    when = time.time() - age
    os.utime(path, (when, when))


async def test_lists_whole_checkpoints_newest_last_with_their_identity(tmp_path: Path) -> None:
    for step in (4000, 10000, 2000):
        save(tmp_path, step)
    found = await list_checkpoints(LocalHost(), str(tmp_path))
    assert [(item.step, item.completeness) for item in found] == [(step, "complete") for step in (2000, 4000, 10000)]
    newest = found[-1]
    assert newest.folder == str(tmp_path / "step_10000")
    assert newest.files == ("checkpoint.pt",)
    assert newest.size == CHECKPOINT.stat().st_size
    assert newest.inode == (tmp_path / "step_10000" / "checkpoint.pt").stat().st_ino
    assert newest.quick_id is not None
    assert len({item.quick_id for item in found}) == 1, "the same weights under three names"


async def test_a_torn_checkpoint_is_saving_while_it_changes_and_truncated_when_quiet(tmp_path: Path) -> None:
    path = save(tmp_path, 4000, keep=0.5, age=1)
    (young,) = await list_checkpoints(LocalHost(), str(tmp_path))
    assert (young.completeness, young.quick_id) == ("saving", None)
    assert "checkpoint.pt" in young.reason
    touch(path, QUIET + 5)
    (old,) = await list_checkpoints(LocalHost(), str(tmp_path))
    assert old.completeness == "truncated"


async def test_sees_a_checkpoint_become_whole(tmp_path: Path) -> None:
    save(tmp_path, 2000)
    save(tmp_path, 4000, keep=0.9, age=0)
    lister = CheckpointLister(LocalHost(), str(tmp_path))
    assert [item.completeness for item in await lister.look(CLOCK)] == ["complete", "saving"]
    shutil.copyfile(CHECKPOINT, tmp_path / "step_4000" / "checkpoint.pt")
    assert [item.completeness for item in await lister.look(CLOCK)] == ["complete", "complete"]


async def test_an_unchanged_checkpoint_is_never_read_twice(tmp_path: Path) -> None:
    for step in range(1, 8):
        save(tmp_path, step)
    lister = CheckpointLister(LocalHost(), str(tmp_path))
    first = await lister.look(CLOCK)
    for _ in range(15):
        assert await lister.look(CLOCK) == first
    assert lister.reads == 7
    save(tmp_path, 8)
    assert [item.step for item in await lister.look(CLOCK)] == list(range(1, 9))
    assert lister.reads == 8


class Counting(LocalHost):
    """A host that counts what is read of its files."""

    reads = 0

    async def read(self, path: str, offset: int, length: int) -> bytes:
        self.reads += 1
        return await super().read(path, offset, length)


async def test_a_checkpoint_is_told_from_its_two_ends(tmp_path: Path) -> None:
    save(tmp_path, 4000)
    host = Counting()
    (found,) = await list_checkpoints(host, str(tmp_path))
    assert (found.completeness, host.reads) == ("complete", 2)
    assert found.quick_id == quick_id(read_structure(LocalFiles(tmp_path / "step_4000")).directory)


async def test_a_newest_checkpoint_overwritten_in_place_is_read_again(tmp_path: Path) -> None:
    path = save(tmp_path, 4000)
    lister = CheckpointLister(LocalHost(), str(tmp_path))
    assert [item.completeness for item in await lister.look(CLOCK)] == ["complete"]
    os.truncate(path, 1000)
    assert [item.completeness for item in await lister.look(CLOCK)] == ["saving"]


async def test_a_checkpoint_that_was_removed_is_gone(tmp_path: Path) -> None:
    save(tmp_path, 2000)
    path = save(tmp_path, 4000)
    lister = CheckpointLister(LocalHost(), str(tmp_path))
    assert len(await lister.look(CLOCK)) == 2
    shutil.rmtree(path.parent)
    assert [item.step for item in await lister.look(CLOCK)] == [2000]


async def test_says_which_folder_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match="nowhere"):
        await list_checkpoints(LocalHost(), str(tmp_path / "nowhere"))
