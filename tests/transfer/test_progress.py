"""What a transfer tells of its speed."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from dflash_tui.transfer.progress import Meter, TransferProgress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def moving(seconds: int) -> tuple[Meter, Clock, list[TransferProgress]]:
    """A meter after some seconds at 100 bytes a second, of 10,000 that are to move; 5,000 were there before."""
    told: list[TransferProgress] = []
    clock = Clock()
    meter = Meter(10_000, told.append, clock=clock)
    meter.phase("moving")
    meter.at(5_000, 5_000)
    for _ in range(seconds + 1):
        meter.add(read=100, written=100)
        clock.now += 1.0
    clock.now -= 1.0
    return meter, clock, told


def test_what_was_there_before_is_no_speed() -> None:
    _, _, told = moving(5)
    assert told[-1].written == 5_600
    assert told[-1].rate == pytest.approx(100.0)
    assert told[-1].eta == pytest.approx(44.0)


async def test_the_speed_of_a_silent_line_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dflash_tui.transfer.progress._BEAT", 0.0)
    meter, clock, told = moving(5)
    rates = []
    beating = asyncio.create_task(meter.beat())
    for _ in range(3):
        clock.now += 30.0
        count = len(told)
        async with asyncio.timeout(10):
            while len(told) < count + 2:
                await asyncio.sleep(0)
        rates.append(told[-1].rate)
    beating.cancel()
    with suppress(asyncio.CancelledError):
        await beating
    assert 100.0 > rates[0] > rates[1] > rates[2]
    assert told[-1].written == 5_600


def test_verifying_has_no_speed() -> None:
    meter, _, told = moving(5)
    meter.phase("verifying")
    assert (told[-1].rate, told[-1].eta) == (0.0, None)


def test_resumed_bytes_are_told_apart_and_are_no_speed() -> None:
    told: list[TransferProgress] = []
    clock = Clock()
    meter = Meter(10_000, told.append, clock=clock)
    meter.phase("moving")
    meter.resume(6_000)
    for _ in range(6):
        meter.add(read=100, written=100)
        clock.now += 1.0
    last = told[-1]
    assert (last.resumed, last.written, last.read) == (6_000, 6_600, 6_600)
    assert last.moved == 600
    assert last.rate == pytest.approx(100.0)
    assert last.eta == pytest.approx(34.0)
    meter.at(2_000, 2_000)  # a chunk proved wrong
    meter.phase("moving")
    assert (told[-1].written, told[-1].resumed) == (2_000, 2_000)


def test_a_burst_and_a_pause_do_not_make_the_time_left_jump() -> None:
    told: list[TransferProgress] = []
    clock = Clock()
    meter = Meter(1_000_000, told.append, clock=clock)
    meter.phase("moving")
    for second in range(60):
        meter.add(read=1_000, written=1_000 if second % 4 else 0)
        clock.now += 1.0
    etas = [progress.eta for progress in told[-12:]]
    assert all(eta is not None for eta in etas)
    assert max(filter(None, etas)) < 1.35 * min(filter(None, etas))


def test_each_hop_has_its_speed() -> None:
    told: list[TransferProgress] = []
    clock = Clock()
    meter = Meter(10_000, told.append, clock=clock)
    meter.phase("moving")
    for _ in range(6):
        meter.add(read=300, written=100)
        clock.now += 1.0
    assert told[-1].read_rate == pytest.approx(300.0)
    assert told[-1].rate == pytest.approx(100.0)


def test_a_proof_has_its_own_count_speed_and_time_left() -> None:
    told: list[TransferProgress] = []
    clock = Clock()
    meter = Meter(10_000, told.append, left_out=7, clock=clock)
    meter.route("relay")
    meter.add(read=10_000, written=10_000)
    meter.phase("verifying", "checkpoint.pt")
    meter.to_verify(10_000)
    meter.to_verify(10_000)
    for _ in range(5):
        meter.verify(1_000)
        clock.now += 1.0
    last = told[-1]
    assert (last.verified, last.to_verify, last.written) == (5_000, 20_000, 10_000)
    assert last.rate == pytest.approx(1_000.0)
    assert last.eta == pytest.approx(15.0)
    assert (last.route, last.left_out, last.file) == ("relay", 7, "checkpoint.pt")
    meter.verify(-5_000)
    meter.phase("done")
    assert (told[-1].verified, told[-1].eta) == (0, 0.0)


def test_bytes_are_told_ten_times_a_second_at_most() -> None:
    told: list[TransferProgress] = []
    clock = Clock()
    meter = Meter(10_000_000, told.append, clock=clock)
    meter.phase("moving")
    for _ in range(1_000):
        meter.add(read=1, written=1)
        clock.now += 0.001
    assert 9 <= len(told) <= 12
    assert told[-1].rate == pytest.approx(1_000.0, rel=0.05)
