"""What one line of a log says: a frozen record that parsers produce and `progress` folds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

Scope = Literal["unknown", "global", "per_gpu", "per_device"]
EventKind = Literal["saving", "saved", "resumed", "started", "finished", "error", "evaluating"]


@dataclass(frozen=True)
class Throughput:
    """A speed as printed: `value` in `unit` ("tok/s", "samples/s"). `scope` is "unknown" unless the line itself (its
    key) says whether it counts one device or all."""

    value: float
    unit: str
    scope: Scope = "unknown"


@dataclass(frozen=True)
class Announcement:
    """Something that happened, in the log's own words. `path` and `step` where the sentence names them."""

    kind: EventKind
    sentence: str
    path: str = ""
    step: int | None = None


@dataclass(frozen=True)
class Reading:
    """Values of one record. None: not said. `loss` and `grad_norm` may be nan or infinite.

    `bar`: the record is a progress bar's frame, whose count may be of an epoch, of set-up or of a nested loop;
    `description` is the text before it. `evaluation`: the values are of a validation and replace no training value.
    `step_seconds`, `steps_per_second`, `eta_seconds`, `elapsed_seconds` are the log's own. `metrics` holds every other
    number by its printed key. `logged_at` is naive where the log names no zone.
    """

    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    epochs: float | None = None
    loss: float | None = None
    lr: float | None = None
    grad_norm: float | None = None
    throughput: Throughput | None = None
    block_size: int | None = None
    step_seconds: float | None = None
    steps_per_second: float | None = None
    eta_seconds: float | None = None
    elapsed_seconds: float | None = None
    logged_at: datetime | None = None
    metrics: tuple[tuple[str, float], ...] = ()
    bar: bool = False
    description: str = ""
    evaluation: bool = False
    announcement: Announcement | None = None
