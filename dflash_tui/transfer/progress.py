"""How far a transfer is, told at most ten times a second."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

Phase = Literal["planning", "moving", "verifying", "publishing", "done"]

_INTERVAL = 0.1
_RATE_SECONDS = 3.0


@dataclass(frozen=True)
class TransferProgress:
    """`read` from the source and `written` to the destination, of `total` bytes to move, all files together; `rate` in
    bytes/s over the last seconds; `eta` in seconds, None while unknown; `attempt` counts from 1; `problem` is the
    sentence of the cut that this attempt follows."""

    phase: Phase
    read: int = 0
    written: int = 0
    total: int = 0
    rate: float = 0.0
    eta: float | None = None
    file: str = ""
    attempt: int = 1
    problem: str = ""


class Meter:
    """Counts bytes and emits progress: every change of phase, and bytes at most ten times a second."""

    def __init__(self, total: int, emit: Callable[[TransferProgress], None]) -> None:
        """`total`: the bytes that are going to move."""
        self._emit = emit
        self._now = TransferProgress("planning", total=total)
        self._samples: deque[tuple[float, int]] = deque()
        self._emitted = 0.0

    def phase(self, phase: Phase, file: str = "") -> None:
        """Enter a phase."""
        self._now = replace(self._now, phase=phase, file=file or self._now.file)
        self._tell()

    def attempt(self, number: int, problem: str) -> None:
        """Begin another attempt after a cut."""
        self._samples.clear()
        self._now = replace(self._now, attempt=number, problem=problem, rate=0.0, eta=None)
        self._tell()

    def at(self, read: int, written: int) -> None:
        """Set both counts: where a file begins, or is continued."""
        self._samples.clear()
        self._now = replace(self._now, read=read, written=written)

    def add(self, *, read: int = 0, written: int = 0) -> None:
        """Count bytes that passed."""
        now = time.monotonic()
        self._now = replace(self._now, read=self._now.read + read, written=self._now.written + written)
        self._samples.append((now, self._now.written))
        while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_SECONDS:
            self._samples.popleft()
        if now - self._emitted >= _INTERVAL:
            self._tell()

    def _tell(self) -> None:
        rate = 0.0
        if len(self._samples) > 1:
            (began, had), (ended, has) = self._samples[0], self._samples[-1]
            rate = (has - had) / (ended - began) if ended > began else 0.0
        left = self._now.total - self._now.written
        eta = 0.0 if self._now.phase == "done" else left / rate if rate > 0 else None
        self._now = replace(self._now, rate=rate, eta=eta)
        self._emitted = time.monotonic()
        self._emit(self._now)
