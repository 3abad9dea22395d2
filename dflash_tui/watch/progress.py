"""Where a training is: readings of its log, folded in order into one frozen `Progress`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from dflash_tui.watch.lines import Line
from dflash_tui.watch.reading import Throughput

HISTORY_LIMIT = 2000  # points kept for a chart
STALL_FLOOR = 60.0  # seconds without a new step that are never called a stall
STALL_FACTOR = 6.0  # median step intervals without a new step that are

DEAD_AFTER = 600.0  # seconds without a new step after which a stalled training is presumed dead

Condition = Literal["waiting", "live", "stale", "presumed dead", "failed", "finished"]
Phase = Literal["waiting", "setup", "training", "evaluating", "saving", "finished", "failed"]
RateBasis = Literal["observed", "log", "bar"]


@dataclass(frozen=True)
class Rate:
    """Steps a second over `steps` steps. `basis`: "observed" = seen arriving by this tool; "log" = from the time stamps
    in the log's tail; "bar" = the progress bar's own figure, which is wrong right after a resume."""

    steps_per_second: float
    basis: RateBasis
    steps: int

    @property
    def seconds_per_step(self) -> float:
        """Seconds for one step."""
        return 1.0 / self.steps_per_second


@dataclass(frozen=True)
class Announced:
    """A checkpoint that the log calls saved (whether it is whole, only its bytes can tell)."""

    path: str
    step: int | None
    line: Line


@dataclass(frozen=True)
class Reported:
    """The log's own timing figures, in seconds and steps a second: shown as its claims, never computed with."""

    eta_seconds: float | None = None
    elapsed_seconds: float | None = None
    step_seconds: float | None = None
    steps_per_second: float | None = None


@dataclass(frozen=True)
class Progress:
    """A training's state as its log tells it. None: not said so far.

    `loss` and `grad_norm` are None while the newest one is not finite (`nan`, since step `nan_since`); `finite_loss` is
    the newest finite loss. `history`: (step, loss), ascending, at most HISTORY_LIMIT points. `epoch_scope`: step and
    total count within an epoch. `block_size` with the line that says so. `segments`: 1 + the times the step went back
    (`went_back_from` → `resumed_from`). `last_line_at`, `last_step_at`: POSIX seconds of this machine (None: unknown);
    `at` is when this was folded. `stalled`: no new step for `stall_after` seconds. `finished`, `error`: the log's
    sentence, "" while there is none; `trouble` keeps error sentences also after the training went on. `waiting`: why
    there is no log to read yet.
    """

    at: float
    phase: Phase = "waiting"
    step: int | None = None
    total: int | None = None
    epoch_scope: bool = False
    epoch: float | None = None
    epochs: float | None = None
    loss: float | None = None
    finite_loss: float | None = None
    history: tuple[tuple[int, float], ...] = ()
    lr: float | None = None
    grad_norm: float | None = None
    nan: bool = False
    nan_since: int | None = None
    throughput: Throughput | None = None
    block_size: int | None = None
    block_size_line: Line | None = None
    rate: Rate | None = None
    eta_seconds: float | None = None
    reported: Reported = Reported()
    last_line: Line | None = None
    last_line_at: float | None = None
    last_step_line: Line | None = None
    last_step_at: float | None = None
    logged_at: datetime | None = None
    stalled: bool = False
    stall_after: float = STALL_FLOOR
    segments: int = 1
    went_back_from: int | None = None
    resumed_from: int | None = None
    saved: tuple[Announced, ...] = ()
    finished: str = ""
    error: str = ""
    trouble: tuple[str, ...] = ()
    metrics: tuple[tuple[str, float], ...] = ()
    waiting: str = ""

    @property
    def fraction(self) -> float | None:
        """Done, 0 … 1."""
        return min(1.0, self.step / self.total) if self.step is not None and self.total else None


def line_age(progress: Progress, now: float) -> float | None:
    """Seconds since the log's last line."""
    return None if progress.last_line_at is None else max(0.0, now - progress.last_line_at)


def step_age(progress: Progress, now: float) -> float | None:
    """Seconds since the last new step."""
    return None if progress.last_step_at is None else max(0.0, now - progress.last_step_at)


def stalled(progress: Progress, now: float) -> bool:
    """No new step for `stall_after` seconds, though the training has neither finished nor failed."""
    age = step_age(progress, now)
    return age is not None and age > progress.stall_after and progress.phase not in ("finished", "failed")


def condition(progress: Progress, now: float) -> Condition:
    """Whether the training is alive, as far as its log tells."""
    if progress.phase == "finished" or progress.finished:
        return "finished"
    if progress.phase == "failed":
        return "failed"
    if stalled(progress, now):
        return "presumed dead" if (step_age(progress, now) or 0.0) >= DEAD_AFTER else "stale"
    return "waiting" if progress.phase in ("waiting", "setup") else "live"


Dater = Callable[[datetime], "float | None"]
"""From a log's time stamp to POSIX seconds of this machine, None where that can't be known."""
