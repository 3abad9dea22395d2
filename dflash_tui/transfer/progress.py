"""How far a transfer is, told at most ten times a second."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from dflash_tui.transfer.engine import Route

Phase = Literal["planning", "moving", "verifying", "publishing", "done"]

_INTERVAL = 0.1
_RATE_SECONDS = 3.0
"""What the shown speed remembers: two thirds of it are of the last three seconds."""
_ETA_SECONDS = 15.0
"""What the time left is computed from: it must not jump with every pause of a disk."""
_BEAT = 1.0


@dataclass(frozen=True)
class TransferProgress:
    """`read` from the source and `written` to the destination, of `total` bytes of all files together; `resumed` of
    them lay at the destination before and are neither in `rate` (written, bytes/s over the last seconds), `read_rate`
    nor in what `eta` (seconds, None while unknown) is computed from. `route` is what carries, "" until it is known.

    `waits_for` says what a transfer that moves nothing waits for, "" where it does not wait.

    `verified` of `to_verify` bytes are proven: of both ends, so that it may be twice the total. `left_out` is what a
    slim copy saves. `attempt` counts from 1; `problem` is the sentence of the cut that this attempt follows.
    `notice` is what could not be done beside a transfer that ended well.
    """

    phase: Phase
    read: int = 0
    written: int = 0
    total: int = 0
    rate: float = 0.0
    eta: float | None = None
    file: str = ""
    attempt: int = 1
    problem: str = ""
    resumed: int = 0
    read_rate: float = 0.0
    route: Route | Literal[""] = ""
    verified: int = 0
    to_verify: int = 0
    left_out: int = 0
    waits_for: str = ""
    notice: str = ""

    @property
    def moved(self) -> int:
        """Bytes that arrived now: without those that lay there before."""
        return self.written - self.resumed


class Meter:
    """Counts bytes and emits progress: every change of phase, and bytes at most ten times a second."""

    def __init__(
        self,
        total: int,
        emit: Callable[[TransferProgress], None],
        *,
        left_out: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`total`: the bytes that are going to move; `left_out`: those that a slim copy saves; `clock` in seconds."""
        self._emit = emit
        self._clock = clock
        self._now = TransferProgress("planning", total=total, left_out=left_out)
        self._forget()
        self._emitted = -math.inf

    def phase(self, phase: Phase, file: str = "") -> None:
        """Enter a phase, or its next file; what moved in another phase is not its speed."""
        if phase != self._now.phase:
            self._forget()
        self._now = replace(self._now, phase=phase, file=file or self._now.file)
        self._tell()

    def attempt(self, number: int, problem: str) -> None:
        """Begin another attempt after a cut."""
        self._forget()
        self._now = replace(self._now, attempt=number, problem=problem)
        self._tell()

    def waits(self, sentence: str) -> None:
        """Wait for something, or ("") go on."""
        if sentence != self._now.waits_for:
            self._now = replace(self._now, waits_for=sentence)
            self._tell()

    def notice(self, sentence: str) -> None:
        """Something beside the transfer could not be done."""
        self._now = replace(self._now, notice=sentence)
        self._tell()

    def route(self, route: Route) -> None:
        """What carries from now on; told when it is another than before."""
        if route != self._now.route:
            self._now = replace(self._now, route=route)
            self._tell()

    def at(self, read: int, written: int) -> None:
        """Set both counts: where a file begins, is continued, or goes back to."""
        self._forget()
        self._now = replace(self._now, read=read, written=written, resumed=min(self._now.resumed, written))

    def resume(self, nbytes: int) -> None:
        """So many bytes more lie at the destination already: they count as read and written, never as speed."""
        now = self._now
        self._now = replace(now, read=now.read + nbytes, written=now.written + nbytes, resumed=now.resumed + nbytes)
        self._tell()

    def add(self, *, read: int = 0, written: int = 0) -> None:
        """Count bytes that passed."""
        now = self._clock()
        self._now = replace(self._now, read=self._now.read + read, written=self._now.written + written)
        for speed in (self._rate, self._steady):
            speed.add(now, written)
        self._read_rate.add(now, read)
        if now - self._emitted >= _INTERVAL:
            self._tell()

    def to_verify(self, nbytes: int) -> None:
        """So many bytes more are to be proven."""
        self._now = replace(self._now, to_verify=self._now.to_verify + nbytes)
        self._tell()

    def verify(self, nbytes: int) -> None:
        """So many bytes more are proven (fewer, when a proof begins again: negative)."""
        self._now = replace(self._now, verified=max(0, self._now.verified + nbytes))
        if self._now.phase == "verifying":
            now = self._clock()
            for speed in (self._rate, self._steady):
                speed.add(now, nbytes)
        if self._clock() - self._emitted >= _INTERVAL or self._now.verified >= self._now.to_verify:
            self._tell()

    async def beat(self) -> None:
        """Tell every second, also while nothing moves: the speed of a line that is silent falls to nothing. Ends by
        being cancelled."""
        while True:
            await asyncio.sleep(_BEAT)
            self._tell()

    def _forget(self) -> None:
        self._rate, self._read_rate, self._steady = _Speed(_RATE_SECONDS), _Speed(_RATE_SECONDS), _Speed(_ETA_SECONDS)

    def _tell(self) -> None:
        now = self._clock()
        rate, steady = self._rate.at(now), self._steady.at(now)
        proving = self._now.phase == "verifying"
        left = self._now.to_verify - self._now.verified if proving else self._now.total - self._now.written
        # Below a byte a second there is no telling.
        eta = 0.0 if self._now.phase == "done" else left / steady if steady >= 1.0 else None
        self._now = replace(self._now, rate=rate, read_rate=self._read_rate.at(now), eta=eta)
        self._emitted = now
        self._emit(self._now)


class _Speed:
    """Bytes a second, older ones counting less: by 1/e every `seconds`. The first bytes only start the clock, because
    nobody knows for how long they were on their way."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began: float | None = None
        self._last = 0.0
        self._waiting = 0
        self._mean = 0.0

    def add(self, now: float, nbytes: int) -> None:
        if self._began is None:
            if nbytes:
                self._began = self._last = now
            return
        self._waiting += nbytes
        # Bytes come in bursts shorter than a clock tells apart.
        if now - self._last >= _INTERVAL:
            self._take(now)

    def at(self, now: float) -> float:
        if self._began is None:
            return 0.0
        if now - self._last >= _INTERVAL:
            self._take(now)
        seen = -math.expm1((self._began - self._last) / self._seconds)
        return self._mean / seen if seen > 0 else 0.0

    def _take(self, now: float) -> None:
        passed = now - self._last
        kept = math.exp(-passed / self._seconds)
        self._mean = self._mean * kept + self._waiting / passed * (1 - kept)
        self._last, self._waiting = now, 0
