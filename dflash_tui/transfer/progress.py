"""How far a transfer is, told at most ten times a second."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

Phase = Literal["planning", "moving", "verifying", "publishing", "done"]

_INTERVAL = 0.1
_RATE_SECONDS = 3.0
_BEAT = 1.0


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

    def __init__(
        self,
        total: int,
        emit: Callable[[TransferProgress], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`total`: the bytes that are going to move; `clock` in seconds."""
        self._emit = emit
        self._clock = clock
        self._now = TransferProgress("planning", total=total)
        self._samples: deque[tuple[float, int]] = deque()
        self._emitted = 0.0

    def phase(self, phase: Phase, file: str = "") -> None:
        """Enter a phase; what moved before is not its speed."""
        self._samples.clear()
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
        now = self._clock()
        self._now = replace(self._now, read=self._now.read + read, written=self._now.written + written)
        self._samples.append((now, self._now.written))
        if now - self._emitted >= _INTERVAL:
            self._tell()

    async def beat(self) -> None:
        """Tell every second, also while nothing moves: the speed of a line that is silent falls to nothing. Ends by
        being cancelled."""
        while True:
            await asyncio.sleep(_BEAT)
            self._tell()

    def _tell(self) -> None:
        rate, now = 0.0, self._clock()
        while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_SECONDS:
            self._samples.popleft()
        if len(self._samples) > 1:
            (began, had), (_, has) = self._samples[0], self._samples[-1]
            rate = (has - had) / (now - began) if now > began else 0.0
        left = self._now.total - self._now.written
        eta = 0.0 if self._now.phase == "done" else left / rate if rate > 0 else None
        self._now = replace(self._now, rate=rate, eta=eta)
        self._emitted = now
        self._emit(self._now)
