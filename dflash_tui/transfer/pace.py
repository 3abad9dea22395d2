"""How fast bytes may pass, and whose turn it is: one limit that running transfers share, and a few at a time."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator

from dflash_tui.transfer.company import Company
from dflash_tui.transfer.engine import Pace

_BURST_SECONDS = 0.1
"""What is let pass at once, and what may be saved up for it: a pause is not made good by a flood."""

_LOOK_SECONDS = 0.5
"""How long it may take until another process's transfer is seen."""

_LATE_SECONDS = 0.5

_AT_ONCE = 2


class Shared:
    """A limit in bytes per second (None: none) that all lanes share, and places for so many transfers at a time.

    Of the lanes that want to send, each gets an equal share, and what one of them leaves goes to the others. Of the
    transfers that run in other processes (`company`) each counts for as much as one here: the limit holds for all
    together. Made and used in one event loop.
    """

    def __init__(
        self,
        limit_bytes_per_second: float | None = None,
        *,
        at_once: int = _AT_ONCE,
        company: Company | None = None,
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
        self._company = company
        self._running = self._others = 0
        self._looking: asyncio.TimerHandle | None = None
        self._disturbed = -math.inf
        self._free = at_once
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []

    @property
    def limit(self) -> float | None:
        """Bytes per second of all transfers together."""
        return self._limit

    @limit.setter
    def limit(self, bytes_per_second: float | None) -> None:
        limit = _checked(bytes_per_second)
        self._count()
        self._note()
        self._limit = limit
        self._serve()

    @property
    def share(self) -> float | None:
        """What of it is for the lanes of this process."""
        running = max(1, self._running)
        return None if self._limit is None else self._limit * running / (running + self._others)

    def undisturbed(self, seconds: float) -> bool:
        """Whether for so long, until now, there was no limit and not more than one transfer: only then does a speed
        say what the way can carry."""
        return not self._note() and self._clock() - self._disturbed > seconds

    def _note(self) -> bool:
        now = self._limit is not None or self._running + self._others > 1
        if now:
            self._disturbed = self._clock()
        return now

    def lane(self) -> Lane:
        """A lane for one transfer."""
        return Lane(self)

    @contextlib.asynccontextmanager
    async def admitted(self, order: float = 0.0) -> AsyncIterator[None]:
        """A place among those that run. Who waits is let in by the greatest `order` (a step: the newest checkpoint
        first), equals in the order in which they came."""
        await self._enter(order)
        try:
            self._begin(1)
            yield
        finally:
            self._begin(-1)
            self._leave()

    def _begin(self, more: int) -> None:
        """One more transfer runs here, or one less."""
        self._note()
        self._count()
        self._running += more
        if self._company is not None:
            (self._company.enter if more > 0 else self._company.leave)()
            self._look()
        self._serve()

    def _look(self) -> None:
        """See who else is there, as long as anything runs here."""
        assert self._company is not None
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._note()
        others = self._company.others() if self._running else 0
        if others != self._others:
            self._count()
            self._others = others
        self._note()
        if self._running:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

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
        self._count()
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
        share = self.share
        while self._asking and (share is None or self._missing(share) <= 0):
            come, _, nbytes, granted = heapq.heappop(self._asking)
            if not granted.done():
                self._served = max(self._served, come)
                self._tokens -= nbytes
                granted.set_result(None)
        if self._asking and share is not None:
            wait = max(self._missing(share) / share, 0.001)
            self._timer = asyncio.get_running_loop().call_later(wait, self._serve)

    def _missing(self, share: float) -> float:
        """Bytes that must be earned until the next piece may pass: all of it, for none is waited for afterwards."""
        nbytes, granted = self._asking[0][2:]
        return 0.0 if granted.done() else min(nbytes, _piece(share)) - self._tokens

    def _count(self) -> None:
        now, share = self._clock(), self.share
        if share is None:
            self._tokens = 0.0
        else:
            # A debt that was made under a greater share is not waited for under a smaller one.
            saved = max(self._tokens, -_piece(share)) + (now - self._counted) * share
            # While somebody waited nothing was saved up: the clock only rang late.
            self._tokens = min(saved, max(1.0, share * _LATE_SECONDS) if self._asking else _piece(share))
        self._counted = now


class Lane:
    """The turn of one transfer: a `Pace`. `come` is how many bytes it has been given, counted from where the others
    were when it last began to send."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.come = 0.0

    async def __call__(self, nbytes: int) -> None:
        """Return when so many more bytes may pass."""
        left = nbytes
        while left:
            share = self._shared.share
            if share is None:
                return
            now = min(left, int(_piece(share)))
            await self._shared._pass(self, now)
            left -= now

    def at_once(self, most: int) -> int:
        """How many of so many bytes should be asked for at once, so that they pass evenly."""
        share = self._shared.share
        return most if share is None else min(most, int(_piece(share)))


def at_once(pace: Pace, most: int) -> int:
    """As `Lane.at_once`, of any pace: one without a limit takes all."""
    return pace.at_once(most) if isinstance(pace, Lane) else most


def pieces(pace: Pace, data: bytes) -> Iterator[bytes]:
    """The bytes in such pieces."""
    at = 0
    while at < len(data):
        size = at_once(pace, len(data) - at)
        yield data if size == len(data) else data[at : at + size]
        at += size


def _piece(share: float) -> float:
    return max(1.0, share * _BURST_SECONDS)


def _checked(limit: float | None) -> float | None:
    if limit is not None and limit < 1:
        raise ValueError(f"a limit is at least one byte per second, not {limit:g}; leave it out for none")
    return limit
