"""Every trainer's save, looked at after each move of its writer: it is taken when it has ended, never before."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from dflash_tui.hosts.base import Entry
from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.watch.clock import HostClock
from dflash_tui.watch.saved import QUIET, CheckpointLister
from tests.cases import case_root
from tests.checkpoints.writers import Writer, writers

CLOCK = HostClock(known=True)
IN_PLACE = {"nanoGPT, in place": 1}
"""How often a writer's file was whole before the save: an older one is written over."""

AFTER = {"Megatron, distributed": 1}
"""Moves that come after the one that proves the end."""

BY_RANK = {"Megatron", "DeepSpeed", "EAGLE", "verl"}


async def look(root: Path) -> list[SavedCheckpoint]:
    return list(await CheckpointLister(LocalHost(), str(root)).look(CLOCK))


def age(root: Path, seconds: float) -> None:
    """Let everything have been written that long ago."""
    for path in (root, *root.rglob("*")):
        os.utime(path, (time.time() - seconds,) * 2, follow_symlinks=False)


@pytest.mark.parametrize("writer", writers(), ids=lambda writer: writer.name)
async def test_a_save_under_way_is_never_taken(writer: Writer, tmp_path: Path) -> None:
    at = IN_PLACE.get(writer.name, 0)
    for number, move in enumerate(writer.moves):
        move(tmp_path)
        found = await look(tmp_path)
        ended = number >= len(writer.moves) - 1 - AFTER.get(writer.name, 0)
        if number >= at and not ended and found:
            assert found[-1].completeness in ("saving", "truncated"), (number, found[-1])
            assert found[-1].reason
    (last,) = found
    assert last.path == os.fspath(tmp_path / writer.path)
    assert last.step == writer.step
    age(tmp_path, QUIET + 5)
    (last,) = await look(tmp_path)
    assert last.completeness == "complete", last
    assert ("by rank" in last.reason) == (writer.name in BY_RANK), last
    assert not last.reason or writer.name in BY_RANK


@pytest.mark.parametrize("writer", writers(), ids=lambda writer: writer.name)
async def test_a_save_that_ended_is_taken_at_once_or_when_quiet(writer: Writer, tmp_path: Path) -> None:
    for move in writer.moves:
        move(tmp_path)
    (last,) = await look(tmp_path)
    waits = writer.name == "SpecForge 0.2"  # nothing comes after its weights
    assert last.completeness == ("saving" if waits else "complete"), last
    assert f"{QUIET:.0f} s" in last.reason or not waits


@pytest.mark.parametrize(
    "case", sorted((case_root() / "cases" / "checkpoints").glob("*/expected.json")), ids=lambda path: path.parent.name
)
async def test_what_real_writers_left_is_whole_and_its_weights_are_told(case: Path, tmp_path: Path) -> None:
    root = tmp_path / case.parent.name
    shutil.copytree(case.parent, root, symlinks=True)
    age(root, QUIET + 5)
    lister = CheckpointLister(LocalHost(), str(root))
    found = await lister.look(CLOCK)
    assert found
    for item in found:
        assert (item.completeness, item.reason) == ("complete", ""), item
        size, problem = await lister.weights_size(item)
        assert problem == ""
        assert size is not None
        assert 0 < size < item.size
        assert await lister.weights_size(item) == (size, "")


async def test_an_epoch_s_folder_that_is_written_again_is_not_its_link_s_step_meanwhile(tmp_path: Path) -> None:
    (writer,) = [item for item in writers() if item.name == "speculators"]
    for move in writer.moves:
        move(tmp_path)
    age(tmp_path, 3600)
    (before,) = await look(tmp_path)
    assert (before.completeness, before.step) == ("complete", 16626)
    for move in writer.moves[:-2]:
        move(tmp_path)
        (now,) = await look(tmp_path)
        assert now.completeness == "saving", now
    (tmp_path / "epoch0_step16626").rename(tmp_path / "epoch0_step20000")
    os.utime(tmp_path / "epoch0_step20000", follow_symlinks=False)
    (after,) = await look(tmp_path)
    assert (after.completeness, after.step) == ("complete", 20000)


async def test_the_step_of_what_has_none_in_its_name_is_read_beside_the_weights(tmp_path: Path) -> None:
    (writer,) = [item for item in writers() if item.name == "speculators"]
    for move in writer.moves[:-2]:
        move(tmp_path)
    (tmp_path / "0" / "training_state.json").write_text('{"epoch": 0, "global_step": 41}')
    (tmp_path / "0").rename(tmp_path / "interrupted")
    age(tmp_path, 3600)
    (found,) = await look(tmp_path)
    assert (found.completeness, found.step) == ("complete", 41)


async def test_what_has_not_changed_is_not_listed_again_inside(tmp_path: Path) -> None:
    class Counting(LocalHost):
        asked = 0

        async def list(self, path: str) -> list[Entry]:
            self.asked += 1
            return await super().list(path)

    (writer,) = [item for item in writers() if item.name == "TorchSpec"]
    for step in (600, 700, 500):
        for move in writer.moves:
            move(tmp_path)
        (tmp_path / "iter_0000500").rename(tmp_path / f"iter_{step:07d}")
    age(tmp_path, 3600)
    host = Counting()
    lister = CheckpointLister(host, str(tmp_path))
    first = await lister.look(CLOCK)
    assert [item.step for item in first] == [500, 600, 700]
    begun = host.asked
    for _ in range(11):
        assert await lister.look(CLOCK) == first
    assert host.asked - begun == 11 * 2, "the folder, and the newest checkpoint in it"
    assert lister.reads == 3
