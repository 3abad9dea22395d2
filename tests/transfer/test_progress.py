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
