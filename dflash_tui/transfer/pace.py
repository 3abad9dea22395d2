"""How fast bytes may pass, and whose turn it is: one limit that running transfers share, and a few at a time."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from collections.abc import AsyncIterator, Callable

_BURST_SECONDS = 0.25
"""Bytes that were not used for so long may pass at once afterwards: a pause is not made good by a flood."""

_AT_ONCE = 2


class Shared:
    """A limit in bytes per second (None: none) that all lanes share, and places for so many transfers at a time.

    Of the lanes that want to send, each gets an equal share, and what one of them leaves goes to the others. Made and
    used in one event loop.
    """

    def __init__(
        self,
        limit_bytes_per_second: float | None = None,
        *,
        at_once: int = _AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ValueError for a limit or a number of places below one."""
        if at_once < 1:
            raise ValueError(f"at least one transfer must run at a time, not {at_once}")
        self._clock = clock
        self._numbers = itertools.count()
        self._limit = _checked(limit_bytes_per_second)
        self._tokens, self._counted = 0.0, clock()
        self._served = 0.0  # how far the lane that is served now has come: who begins, begins there
        self._asking: list[tuple[float, int, float, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._free = at_once
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    @property
    def limit(self) -> float | None:
        """Bytes per second of all lanes together."""
        return self._limit

    @limit.setter
    def limit(self, bytes_per_second: float | None) -> None:
        limit = _checked(bytes_per_second)
        self._count()
        self._limit = limit
        if limit is not None:
            # What passed too much under a higher limit is not waited for under a lower one.
            self._tokens = max(min(self._tokens, limit * _BURST_SECONDS), -limit * _BURST_SECONDS)
        self._serve()

    def lane(self) -> Lane:
        """A lane for one transfer."""
        return Lane(self)

    @contextlib.asynccontextmanager
    async def admitted(self, order: float = 0.0) -> AsyncIterator[None]:
        """A place among those that run. Who waits is let in by the greatest `order` (a step: the newest checkpoint
        first), equals in the order in which they came."""
        await self._enter(order)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, order: float) -> None:
        if self._free and not self._waiting:
            self._free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (-order, next(self._numbers), place))
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave()  # it had been let in already
            raise

    def _leave(self) -> None:
        while self._waiting:
            _, _, place = heapq.heappop(self._waiting)
            if not place.done():
                place.set_result(None)
                return
        self._free += 1

    async def _pass(self, lane: Lane, nbytes: int) -> None:
        if self._limit is None:
            return
        lane.come = max(lane.come, self._served)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._asking, (lane.come, next(self._numbers), float(nbytes), granted))
        lane.come += nbytes
        self._serve()
        await granted

    def _serve(self) -> None:
        """Let pass who may, the one that came least far first, and set the clock for the next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._count()
        while self._asking and (self._limit is None or self._tokens >= 0):
            come, _, nbytes, granted = heapq.heappop(self._asking)
            if not granted.done():
                self._served = max(self._served, come)
                self._tokens -= nbytes
                granted.set_result(None)
        if self._asking and self._limit is not None:
            wait = max(-self._tokens / self._limit, 0.001)
            self._timer = asyncio.get_running_loop().call_later(wait, self._serve)

    def _count(self) -> None:
        now = self._clock()
        if self._limit is not None:
            earned = (now - self._counted) * self._limit
            self._tokens = min(self._tokens + earned, self._limit * _BURST_SECONDS)
        self._counted = now


class Lane:
    """The turn of one transfer: a `Pace`. `come` is how many bytes it has been given, counted from where the others
    were when it last began to send."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.come = 0.0

    async def __call__(self, nbytes: int) -> None:
        """Return when so many more bytes may pass."""
        await self._shared._pass(self, nbytes)


def _checked(limit: float | None) -> float | None:
    if limit is not None and limit < 1:
        raise ValueError(f"a limit is at least one byte per second, not {limit:g}; leave it out for none")
    return limit
