"""Legs under a slow limit: evenly on both hops, and no byte before it is earned."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.checkpoints.segments import Output, Range
from dflash_tui.transfer.engine import Engine
from dflash_tui.transfer.joined import JoinedEngine
from dflash_tui.transfer.pace import Shared
from dflash_tui.transfer.relaying import RelayEngine
from tests.transfer.lab import Place, Told, fill, leg, place

LIMIT = 200_000
SIZE = 500_000


@pytest.mark.parametrize("engine", [RelayEngine(), JoinedEngine()], ids=["relay", "joined"])
async def test_both_hops_move_all_the_time_and_no_faster_than_the_limit(tmp_path: Path, engine: Engine) -> None:
    async with (
        place("ssh", tmp_path / "one", "train") as source,
        place("ssh", tmp_path / "two", "eval") as target,
    ):
        data, steps = fill(source.real / "f", SIZE), list[tuple[float, int, int]]()

        def count(read: int, written: int) -> None:
            steps.append((time.monotonic(), read, written))

        made = leg(source, Output("f", (Range("f", 0, SIZE),)), target, Told())
        await engine.carry(replace(made, count=count, pace=Shared(LIMIT).lane()))
        assert _there(target) == data
    read, written = ([(at, step[number]) for at, *step in steps if step[number]] for number in (0, 1))
    for hop in (read, written):
        assert sum(nbytes for _, nbytes in hop) == SIZE
        assert len(hop) >= 8
        began = hop[0][0]
        passed = 0
        for at, nbytes in hop:
            passed += nbytes
            # Half a second's worth at most is ahead of the clock.
            assert passed <= LIMIT * (at - began + 0.5)
    assert max(nbytes for _, nbytes in read) <= LIMIT / 4


def _there(target: Place) -> bytes:
    return (target.real / ".x.part").read_bytes()
