"""Steps a second: from steps seen arriving, else from the log's time stamps, else from the bar's own figure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dflash_tui.watch.progress import Rate, Reported

WINDOW = 600.0  # seconds of the newest observations that count


@dataclass(frozen=True)
class Observation:
    """A new step: when it arrived (POSIX seconds; None when it was there before anybody looked) and its log stamp."""

    step: int
    at: float | None
    stamp: datetime | None


def measured_rate(seen: Sequence[Observation], reported: Reported) -> Rate | None:
    """The best rate there is; None while nothing tells it."""
    live = [(item.step, item.at) for item in seen if item.at is not None]
    stamped = _stamped(seen)
    if found := _slope(live):
        return Rate(found[0], "observed", found[1])
    if found := _slope(stamped):
        return Rate(found[0], "log", found[1])
    own = reported.steps_per_second or (1.0 / reported.step_seconds if reported.step_seconds else None)
    return Rate(own, "bar", 0) if own else None


def median_interval(seen: Sequence[Observation]) -> float | None:
    """Median seconds between two logged steps, by arrival where known, else by stamps; None under two intervals."""
    live = [item.at for item in seen if item.at is not None]
    times = live if len(live) >= 3 else [at for _, at in _stamped(seen)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times) if later > earlier]
    return statistics.median(gaps) if len(gaps) >= 2 else None


def _stamped(seen: Sequence[Observation]) -> list[tuple[int, float]]:
    stamped = [(item.step, item.stamp) for item in seen if item.stamp is not None]
    if not stamped:
        return []
    named = stamped[-1][1].tzinfo is not None
    # Only differences of these are used, so a naive stamp may be read in any one zone: UTC has no summer time.
    return [
        (step, (stamp if named else stamp.replace(tzinfo=UTC)).timestamp())
        for step, stamp in stamped
        if (stamp.tzinfo is not None) == named
    ]


def _slope(points: Sequence[tuple[int, float]]) -> tuple[float, int] | None:
    points = [(step, at) for step, at in points if at >= points[-1][1] - WINDOW]
    if len(points) < 2:
        return None
    (first, begin), (last, end) = points[0], points[-1]
    if last <= first or end <= begin:
        return None
    return (last - first) / (end - begin), last - first
