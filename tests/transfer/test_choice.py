"""Which engine carries: what is wanted, what works, and what was measured."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from dflash_tui.checkpoints.segments import Output, Range
from dflash_tui.transfer import joined
from dflash_tui.transfer.choice import TRIAL, TRIED_FROM, Rates, RouteChooser, Wanted, make_chooser
from dflash_tui.transfer.direct import DirectRoute, reachable
from dflash_tui.transfer.engine import CHUNK, Engine, Route
from dflash_tui.transfer.errors import TransferError
from tests.transfer.lab import MIB, Place, Told, fill, leg, place
from tests.transfer.test_direct import let_in

BIG = 15 << 30


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Place, Place]]:
    async with (
        place("ssh", tmp_path / "source", "train") as source,
        place("ssh", tmp_path / "destination", "eval") as destination,
    ):
        yield source, destination


@dataclass
class Tour:
    """The legs of a transfer of `size` bytes, of which each engine moves so many a second."""

    chooser: RouteChooser
    speeds: dict[Route, float]
    size: int = BIG

    async def go(self) -> list[tuple[Route, int]]:
        legs: list[tuple[Route, int]] = []
        left = self.size
        while left:
            engine, most = await self.chooser.choose(left)
            nbytes = min(most, left)
            assert nbytes == left or nbytes % CHUNK == 0
            legs.append((engine.route, nbytes))
            self.chooser.measured(engine, nbytes, nbytes / self.speeds[engine.route])
            left -= nbytes
            # A leg takes long enough for what is tried beside it.
            await self._tried()
        await self.chooser.close()
        return legs

    async def _tried(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        trials = [task for task in others if "unusable" in repr(task.get_coro())]
        if trials:
            await asyncio.wait(trials)


def chooser(pair: tuple[Place, Place], wanted: Wanted = "relay", remembered: Rates | None = None) -> RouteChooser:
    source, destination = pair
    find = partial(reachable, source.host, destination.host, destination.folder)
    known = {("train", "eval"): remembered} if remembered else None
    return make_chooser(source.host, destination.host, wanted, find, known)


@pytest.mark.parametrize(("joined_speed", "best"), [(300.0, "joined"), (100.0, "relay"), (110.0, "relay")])
async def test_both_are_tried_and_the_faster_one_carries_all_the_rest(
    pair: tuple[Place, Place], joined_speed: float, best: Route
) -> None:
    made = chooser(pair)
    legs = await Tour(made, {"relay": 100 * MIB, "joined": joined_speed * MIB}).go()
    assert legs == [("relay", TRIAL), ("joined", TRIAL), (best, BIG - 2 * TRIAL)]
    assert made.rates["relay"] == pytest.approx(100 * MIB)
    assert made.notes == []


async def test_a_small_transfer_goes_by_relay_at_once(pair: tuple[Place, Place]) -> None:
    legs = await Tour(chooser(pair), {"relay": 1.0}, size=TRIED_FROM - 1).go()
    assert legs == [("relay", TRIED_FROM - 1)]


@pytest.mark.parametrize(("rates", "first"), [({"relay": 9e7, "joined": 3e8}, "joined"),
                                              ({"relay": 9e7, "joined": 9e7}, "relay")])  # fmt: skip
async def test_what_was_measured_last_time_is_not_measured_again(
    pair: tuple[Place, Place], rates: Rates, first: Route
) -> None:
    legs = await Tour(chooser(pair, remembered=rates), {"relay": 9e7, "joined": 3e8}).go()
    if first == "relay":
        assert legs == [("relay", BIG)]
    else:
        # That ssh gets in is found out again, beside the first leg.
        assert legs == [("relay", TRIAL), ("joined", BIG - TRIAL)]


async def test_what_was_remembered_of_another_network_is_forgotten(pair: tuple[Place, Place]) -> None:
    made = chooser(pair, remembered={"relay": 1e7, "joined": 1e7})
    assert await Tour(made, {"relay": 2e8, "joined": 5e8}).go() == [("relay", BIG)]
    assert made.rates == {"relay": pytest.approx(2e8)}  # so that the next transfer tries again
    again = chooser(pair, remembered=made.rates)
    legs = await Tour(again, {"relay": 2e8, "joined": 5e8}).go()
    assert legs == [("relay", TRIAL), ("joined", TRIAL), ("joined", BIG - 2 * TRIAL)]


async def test_where_ssh_does_not_get_in_the_relay_carries_and_says_so(pair: tuple[Place, Place]) -> None:
    made = chooser(pair)
    for there in pair:
        await there.host.run(["true"])
    assert pair[1].sshd is not None
    (pair[1].sshd.folder / "authorized_keys").write_text("")
    legs = await Tour(made, {"relay": 100.0 * MIB}).go()
    assert legs == [("relay", TRIAL), ("relay", BIG - TRIAL)]
    assert [note for note in made.notes if "does not get to eval" in note and "Permission denied" in note]


async def test_joined_that_fails_is_dropped_for_good(pair: tuple[Place, Place]) -> None:
    made = chooser(pair)
    engine: Engine | None = None
    left = BIG
    while engine is None or engine.route != "joined":
        engine, most = await made.choose(left)
        made.measured(engine, most, 1.0)
        await asyncio.sleep(0.05)
    assert made.failed(engine, "it has gone")
    engine, most = await made.choose(left)
    assert (engine.route, most) == ("relay", left)
    assert made.notes == ["it has gone"]
    assert not made.failed(engine, "nothing works")
    await made.close()


async def test_what_is_started_only_once_does_not_count_as_speed(pair: tuple[Place, Place]) -> None:
    made = chooser(pair)
    engine = joined.JoinedEngine()
    engine.started_seconds = 1.0
    made.measured(engine, TRIAL, 2.0)
    assert made.rates == {"joined": TRIAL}
    made.measured(engine, CHUNK // 2, 100.0)
    assert made.rates == {"joined": TRIAL}


async def test_direct_carries_where_the_source_gets_to_the_destination(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    let_in(source, destination)
    for wanted in ("direct", "auto"):
        made = chooser(pair, wanted)
        data = fill(source.real / "f", 3 * MIB)
        engine, most = await made.choose(len(data))
        assert (engine.route, most) == ("direct", len(data))
        await engine.carry(leg(source, Output("f", (Range("f", 0, len(data)),)), destination, Told()))
        assert (destination.real / ".x.part").read_bytes() == data
        (destination.real / ".x.part").unlink()


async def test_direct_that_is_wanted_and_does_not_work_is_a_failure_that_says_why(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    let_in(source, destination, key=False)
    made = chooser(pair, "direct")
    for _ in range(2):
        with pytest.raises(TransferError, match=r"train can't log in to .*Permission denied.*--route relay"):
            await made.choose(BIG)
    with pytest.raises(TransferError, match="train to eval"):
        await make_chooser(source.host, destination.host, "direct").choose(BIG)
    assert os.listdir(destination.real) == []


async def test_auto_goes_on_by_relay_where_there_is_no_direct_way(pair: tuple[Place, Place]) -> None:
    let_in(*pair, known=False)
    made = chooser(pair, "auto")
    legs = await Tour(made, {"relay": 1e8, "joined": 3e8}).go()
    assert [route for route, _ in legs] == ["relay", "joined", "joined"]
    assert "key verification failed" in made.notes[0]


async def test_auto_leaves_a_direct_way_that_breaks(pair: tuple[Place, Place]) -> None:
    let_in(*pair)
    made = chooser(pair, "auto")
    engine, _ = await made.choose(BIG)
    assert engine.route == "direct"
    assert made.failed(engine, "train lost eval")
    engine, _ = await made.choose(MIB)
    assert engine.route == "relay"
    only = chooser(pair, "direct")
    engine, _ = await only.choose(BIG)
    assert not only.failed(engine, "train lost eval")
    with pytest.raises(TransferError, match="train lost eval"):
        await only.choose(BIG)


async def test_a_trial_that_still_runs_ends_with_its_transfer(pair: tuple[Place, Place]) -> None:
    source, destination = pair

    async def found() -> DirectRoute | str:
        return "there is none"

    made = make_chooser(source.host, destination.host, "auto", found)
    engine, most = await made.choose(BIG)
    assert (engine.route, most) == ("relay", TRIAL)
    before = asyncio.all_tasks()
    await made.close()
    assert len(asyncio.all_tasks()) < len(before)


async def test_keys_that_ssh_can_t_be_told_of_mean_relay(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    source.host.address = replace(source.host.address, client_keys=[object()])  # type: ignore[attr-defined]
    made = chooser((source, destination))
    legs = await Tour(made, {"relay": 100.0 * MIB}).go()
    assert {route for route, _ in legs} == {"relay"}
    assert any("can't be said" in note for note in made.notes)


async def test_a_speed_that_was_held_back_is_neither_kept_nor_compared(pair: tuple[Place, Place]) -> None:
    source, destination = pair
    free = False
    made = make_chooser(source.host, destination.host, "relay", None, None, lambda seconds: free)
    legs = await Tour(made, {"relay": 2e7, "joined": 5e7}).go()
    assert {route for route, _ in legs} == {"relay"}
    assert made.rates == {}
    remembered: dict[tuple[str, str], Rates] = {("train", "eval"): {"relay": 1e8, "joined": 3e8}}
    made = make_chooser(source.host, destination.host, "relay", None, remembered, lambda seconds: free)
    await Tour(made, {"relay": 2e7, "joined": 2e7}).go()
    assert made.rates == {"relay": 1e8, "joined": 3e8}
    free = True
    made = make_chooser(source.host, destination.host, "relay", None, None, lambda seconds: free)
    assert (await Tour(made, {"relay": 1e8, "joined": 3e8}).go())[-1][0] == "joined"
