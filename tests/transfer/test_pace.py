"""One limit shared by what runs, and places for a few."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_tui.transfer.company import Company
from dflash_tui.transfer.pace import Lane, Shared, pieces

BLOCK = 10_000


async def send(lane: Lane, sent: dict[str, int], name: str, pause: float = 0.0) -> None:
    """Send blocks without an end, `pause` seconds apart."""
    while True:
        await lane(BLOCK)
        sent[name] += BLOCK
        await asyncio.sleep(pause)


async def during(seconds: float, shared: Shared, **pauses: float) -> dict[str, int]:
    """What lanes send in a time."""
    sent = dict.fromkeys(pauses, 0)
    tasks = [asyncio.create_task(send(shared.lane(), sent, name, pause)) for name, pause in pauses.items()]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return sent


async def test_a_limit_is_the_limit_of_all_together_in_equal_shares() -> None:
    sent = await during(1.0, Shared(1_000_000), one=0.0, two=0.0, three=0.0)
    assert sum(sent.values()) == pytest.approx(1_000_000, rel=0.15)
    assert max(sent.values()) - min(sent.values()) <= 2 * BLOCK


async def test_what_a_slow_one_leaves_goes_to_the_others() -> None:
    sent = await during(1.0, Shared(1_000_000), slow=0.1, fast=0.0)
    assert sent["slow"] == pytest.approx(100_000, abs=3 * BLOCK)
    assert sum(sent.values()) == pytest.approx(1_000_000, rel=0.15)


async def test_who_comes_later_gets_its_share_and_no_arrears() -> None:
    shared, sent = Shared(1_000_000), {"first": 0, "second": 0}
    first = asyncio.create_task(send(shared.lane(), sent, "first"))
    await asyncio.sleep(0.5)
    before = dict(sent)
    second = asyncio.create_task(send(shared.lane(), sent, "second"))
    await asyncio.sleep(0.6)
    for task in (first, second):
        task.cancel()
    gained = sent["first"] - before["first"]
    assert gained == pytest.approx(sent["second"], abs=3 * BLOCK)


async def test_no_byte_passes_before_it_is_earned() -> None:
    lane, began = Shared(100_000).lane(), time.monotonic()
    for size in (40_000, 30_000, 5_000):
        await lane(size)
    assert time.monotonic() - began > 0.6


def test_blocks_are_cut_to_what_passes_in_a_quarter_of_a_second() -> None:
    data = bytes(range(250)) * 4000
    slow = list(pieces(Shared(100_000).lane(), data))
    assert b"".join(slow) == data
    assert max(map(len, slow)) <= 25_000
    assert list(pieces(Shared().lane(), data)) == [data]
    assert max(map(len, pieces(Shared(1).lane(), data[:9]))) == 1


async def test_the_limit_holds_for_the_transfers_of_all_processes(tmp_path: Path) -> None:
    one, other = (Shared(1_000_000, company=Company(tmp_path)) for _ in range(2))
    async with one.admitted(), other.admitted():
        await asyncio.sleep(0.6)
        sent = await asyncio.gather(during(1.0, one, a=0.0), during(1.0, other, b=0.0))
        assert sum(sum(each.values()) for each in sent) == pytest.approx(1_000_000, rel=0.15)
        assert other.share == 500_000
    async with one.admitted():
        assert one.share == 1_000_000
    assert list(tmp_path.iterdir()) == []


async def test_a_process_that_died_takes_no_share(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib\nfrom dflash_tui.transfer.company import Company\n"
        "Company(pathlib.Path(sys.argv[1])).enter()\nprint('in', flush=True)\ntime.sleep(600)\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"in\n"
    shared = Shared(1_000_000, company=Company(tmp_path))
    try:
        async with shared.admitted():
            assert shared.share == 500_000
            assert not shared.undisturbed(0)
            process.kill()
            await process.wait()
            async with asyncio.timeout(10):
                while shared.share != 1_000_000:
                    await asyncio.sleep(0.05)
    finally:
        if process.returncode is None:
            process.kill()
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_that_can_not_be_written_only_means_to_be_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shared = Shared(1_000_000, company=Company(tmp_path / "file"))
    async with shared.admitted():
        assert shared.share == 1_000_000


async def test_a_speed_is_the_ways_own_without_a_limit_and_alone() -> None:
    now = 0.0
    shared = Shared(clock=lambda: now)
    async with shared.admitted():
        now = 10.0
        assert shared.undisturbed(9)
        async with shared.admitted():
            assert not shared.undisturbed(0)
        now = 15.0
        assert shared.undisturbed(4)
        assert not shared.undisturbed(6)
        shared.limit = 1000
        assert not shared.undisturbed(0)
        now = 20.0
        shared.limit = None
        now = 21.0
        assert shared.undisturbed(0.5)
        assert not shared.undisturbed(2)


async def test_without_a_limit_nothing_waits() -> None:
    lane = Shared().lane()
    async with asyncio.timeout(10):
        for _ in range(1000):
            await lane(1 << 40)


async def test_the_limit_can_be_changed_and_lifted_while_bytes_wait() -> None:
    shared = Shared(1_000)
    lane = shared.lane()
    waiting = asyncio.create_task(lane(100_000))  # 100 s
    await asyncio.sleep(0.05)
    assert not waiting.done()
    shared.limit = 1_000_000
    async with asyncio.timeout(5):
        await waiting
    shared.limit = 1
    waiting = asyncio.create_task(lane(1 << 40))
    again = asyncio.create_task(lane(1 << 40))
    await asyncio.sleep(0)
    shared.limit = None
    async with asyncio.timeout(5):
        await asyncio.gather(waiting, again)


async def test_one_that_is_cancelled_while_it_waits_gives_its_turn_away() -> None:
    shared = Shared(1_000)
    given_up = asyncio.create_task(shared.lane()(1 << 40))
    kept = asyncio.create_task(shared.lane()(1))
    await asyncio.sleep(0)
    given_up.cancel()
    async with asyncio.timeout(10):
        await kept


@pytest.mark.parametrize("limit", [0.0, -1.0, 0.5])
def test_a_limit_below_a_byte_is_refused(limit: float) -> None:
    with pytest.raises(ValueError, match="at least one byte per second"):
        Shared(limit)


def test_places_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one transfer"):
        Shared(at_once=0)


async def entering(shared: Shared, order: float, name: str, log: list[str], out: asyncio.Event) -> None:
    async with shared.admitted(order=order):
        log.append(name)
        await out.wait()


async def turn_over() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_newest_of_those_that_wait_is_next_and_equals_in_their_order() -> None:
    shared, log = Shared(at_once=2), list[str]()
    outs = {name: asyncio.Event() for name in ("a1", "b1", "c2", "d5", "e2", "f5")}
    tasks = []
    for name, out in outs.items():
        tasks.append(asyncio.create_task(entering(shared, float(name[1]), name, log, out)))
        await turn_over()
    assert log == ["a1", "b1"]
    for name in ("a1", "b1", "d5", "f5"):
        outs[name].set()
        await turn_over()
    assert log == ["a1", "b1", "d5", "f5", "c2", "e2"]
    for out in outs.values():
        out.set()
    await asyncio.gather(*tasks)


@settings(max_examples=50, deadline=None)
@given(st.data())
async def test_places_are_never_lost_nor_made_whoever_is_cancelled(data: st.DataObject) -> None:
    places = data.draw(st.integers(1, 3))
    shared = Shared(at_once=places)
    inside: set[int] = set()
    outs: dict[int, asyncio.Event] = {}
    tasks: dict[int, asyncio.Task[None]] = {}
    numbers = itertools.count()

    async def run(number: int, order: float) -> None:
        async with shared.admitted(order):
            inside.add(number)
            assert len(inside) <= places
            try:
                await outs[number].wait()
            finally:
                inside.discard(number)

    def come() -> None:
        number = next(numbers)
        outs[number] = asyncio.Event()
        tasks[number] = asyncio.create_task(run(number, data.draw(st.integers(0, 3))))

    def some() -> int | None:
        alive = [number for number, task in tasks.items() if not task.done()]
        return data.draw(st.sampled_from(alive)) if alive else None

    def leave() -> None:
        if (number := some()) is not None:
            outs[number].set()

    def cancel() -> None:
        if (number := some()) is not None:
            tasks[number].cancel()

    steps: list[Callable[[], None]] = [come, come, leave, cancel]
    for _ in range(data.draw(st.integers(1, 30))):
        data.draw(st.sampled_from(steps))()
        if data.draw(st.booleans()):
            await turn_over()
    await turn_over()
    alive = sum(not task.done() for task in tasks.values())
    assert len(inside) == min(places, alive)
    for out in outs.values():
        out.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    assert not inside
