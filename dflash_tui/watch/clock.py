"""A host's clock beside this machine's: what turns its file times and the stamps in its logs into ages."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from dflash_tui.hosts.base import CommandFailed, Host

Clock = Callable[[], float]
"""POSIX seconds of this machine."""

_SECONDS = re.compile(r"(\d{9,12})(?:\.(\d{1,9}))?")
_ZONE = re.compile(r"([+-])(\d\d)(\d\d)")


@dataclass(frozen=True)
class HostClock:
    """`ahead`: seconds that the host's clock is ahead of this machine's. `uncertain`: half the round trip that measured
    it. `zone_minutes`: its offset from UTC, None when it could not be asked. `known` is False when nothing answered
    and the clocks are only assumed to agree."""

    ahead: float = 0.0
    uncertain: float = 0.0
    zone_minutes: int | None = None
    known: bool = False

    def here(self, seconds: float) -> float:
        """A POSIX time of the host on this machine's clock."""
        return seconds - self.ahead

    def dated(self, stamp: datetime) -> float | None:
        """A log's stamp on this machine's clock; None for a naive one where the host's zone is unknown."""
        if stamp.tzinfo is None:
            if self.zone_minutes is None:
                return None
            stamp = stamp.replace(tzinfo=timezone(timedelta(minutes=self.zone_minutes)))
        return self.here(stamp.timestamp())


async def read_clock(host: Host, clock: Clock = time.time) -> HostClock:
    """Ask the host for its time (`date +%s.%N`, where busybox prints no fraction) and zone (`date +%z`). Raises
    HostError when the host can't be asked at all; a host without `date` gives a clock that is not `known`."""
    try:
        before = clock()
        seconds = await host.run(["date", "+%s.%N"], timeout=20)
        after = clock()
        zone = await host.run(["date", "+%z"], timeout=20)
    except CommandFailed:
        return HostClock()
    said = _SECONDS.match(seconds.text.strip())
    if said is None:
        return HostClock()
    fraction = float(f"0.{said[2]}") if said[2] else 0.5  # whole seconds only: the middle of the second
    ahead = int(said[1]) + fraction - (before + after) / 2
    offset = _ZONE.match(zone.text.strip())
    minutes = None if offset is None else (int(offset[2]) * 60 + int(offset[3])) * (-1 if offset[1] == "-" else 1)
    return HostClock(ahead, (after - before) / 2 + (0.0 if said[2] else 0.5), minutes, known=True)
