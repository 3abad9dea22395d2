"""Two pipes of this machine and the bytes that are moved from one to the other without being looked at."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import threading
import time
from concurrent.futures import ThreadPoolExecutor

_ROOM = 1 << 20
_TURN = 0.2
"""Seconds after which a thread that moves bytes looks up, whether anything moved or not."""


class FarEndGone(Exception):
    """Whoever reads the second pipe has closed it."""


class Join:
    """`out` is a writer's stdout, `into` a reader's stdin; what comes out of the one is moved into the other, exactly
    as many bytes as are asked for. The kernel moves pages (`splice`) where it can."""

    def __init__(self) -> None:
        self._from, self.out = os.pipe()
        self.into, self._to = os.pipe()
        for end in (self._from, self._to):
            # The other ends are descriptions of their own, and stay blocking for the programs that have them.
            os.set_blocking(end, False)
            if resize := getattr(fcntl, "F_SETPIPE_SZ", None):
                with contextlib.suppress(OSError):  # a user may have only so much in pipes
                    fcntl.fcntl(end, resize, _ROOM)
        self._thread = ThreadPoolExecutor(1, "join")
        self._stop = threading.Event()

    def begun(self) -> None:
        """The programs have their ends: they are closed here."""
        self.out, self.into = _closed(self.out), _closed(self.into)

    async def move(self, most: int) -> int:
        """Move up to `most` bytes, as soon as some are there; 0 at the end. Raises FarEndGone."""
        moved: int | None = None
        while moved is None:
            work = asyncio.get_running_loop().run_in_executor(
                self._thread, _move, self._from, self._to, most, self._stop
            )
            try:
                moved = await asyncio.shield(work)
            except asyncio.CancelledError:
                self._stop.set()
                await asyncio.wait([work])
                if not work.cancelled():
                    work.exception()
                raise
            except BrokenPipeError:
                raise FarEndGone from None
        return moved

    def left(self) -> bool:
        """Whether more came out than was moved."""
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._from, 1))
        return False

    def finish(self) -> None:
        """No more will be moved: the second pipe's reader comes to its end."""
        self._to = _closed(self._to)

    def close(self) -> None:
        """Close what is still open here."""
        self._stop.set()
        self._thread.shutdown()
        self.begun()
        self.finish()
        self._from = _closed(self._from)


def _closed(end: int) -> int:
    if end >= 0:
        os.close(end)
    return -1


def _move(near: int, far: int, most: int, stop: threading.Event) -> int | None:
    """At most `most` bytes, for as long as one turn: how many; 0 at the end, None when there were none."""
    until, moved, ended = time.monotonic() + _TURN, 0, False
    while moved < most and not ended and not stop.is_set():
        try:
            count = _pass(near, far, most - moved, stop)
            moved, ended = moved + count, count == 0
        except BlockingIOError:
            left = until - time.monotonic()
            if left <= 0 or not _ready(near, far, left):
                break
    return moved if moved or ended else None


def _ready(near: int, far: int, seconds: float) -> bool:
    """Wait until there is something to move and room for it. Raises BrokenPipeError when nobody reads any more."""
    until = time.monotonic() + seconds
    for wanted in ((near, select.POLLIN), (far, select.POLLOUT)):
        poll = select.poll()
        poll.register(far, 0)  # its end is always told
        poll.register(*wanted)
        found = dict(poll.poll(max(until - time.monotonic(), 0) * 1000))
        if found.get(far, 0) & select.POLLERR:
            raise BrokenPipeError
        if not found:
            return False
    return True


def _splice(near: int, far: int, most: int, stop: threading.Event) -> int:
    return os.splice(near, far, most)


def _copy(near: int, far: int, most: int, stop: threading.Event) -> int:
    """Where the kernel can't: through this process. What was read is written, unless all is stopped."""
    rest = data = memoryview(os.read(near, min(most, _ROOM)))
    while rest and not stop.is_set():
        try:
            rest = rest[os.write(far, rest) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(far, select.POLLOUT)
            poll.poll(_TURN * 1000)
    return len(data)


_pass = _splice if hasattr(os, "splice") else _copy
