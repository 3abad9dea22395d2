"""A host's clock, asked once."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dflash_tui.hosts.local import LocalHost
from dflash_tui.watch.clock import HostClock, read_clock


def date_that_prints(folder: Path, monkeypatch: pytest.MonkeyPatch, seconds: str, zone: str, status: int = 0) -> None:
    script = folder / "date"
    script.write_text(f'#!/bin/sh\n[ "$1" = +%z ] && echo "{zone}" || echo "{seconds}"\nexit {status}\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


async def test_a_clock_that_is_ahead_is_measured_and_taken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    date_that_prints(tmp_path, monkeypatch, "1800000090.250000000", "+0530")
    found = await read_clock(LocalHost(), lambda: 1_800_000_000.0)
    assert found == HostClock(ahead=90.25, uncertain=0.0, zone_minutes=330, known=True)
    assert found.here(1_800_000_090.25) == 1_800_000_000.0
    stamp = datetime(2027, 1, 15, 13, 30)
    assert found.dated(stamp) == datetime(2027, 1, 15, 8, 0, tzinfo=UTC).timestamp() - 90.25
    assert found.dated(stamp.replace(tzinfo=UTC)) == stamp.replace(tzinfo=UTC).timestamp() - 90.25


@pytest.mark.parametrize("printed", ["1800000000", "1800000000.%N", "1800000000.N", "1800000000."])
async def test_a_date_without_fractions_is_good_to_half_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    date_that_prints(tmp_path, monkeypatch, printed, "-0800")
    found = await read_clock(LocalHost(), lambda: 1_800_000_000.0)
    assert (found.ahead, found.uncertain, found.zone_minutes) == (0.5, 0.5, -480)


async def test_a_host_that_tells_no_time_is_assumed_to_agree_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    date_that_prints(tmp_path, monkeypatch, "what time is it", "", 1)
    found = await read_clock(LocalHost())
    assert found == HostClock()
    assert not found.known
    assert found.dated(datetime(2027, 1, 15)) is None
