"""Every trainer's save, looked at after each move of its writer: it is taken when it has ended, never before."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dflash_tui.hosts.local import LocalHost
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.watch.clock import HostClock
from dflash_tui.watch.saved import QUIET, CheckpointLister
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
    waits = writer.name in ("SpecForge 0.2", "Megatron, by name")
    assert last.completeness == ("saving" if waits else "complete"), last
    assert f"{QUIET:.0f} s" in last.reason or not waits
