"""A follower at work in a test: what it gave so far, and waiting for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from dflash_tui.hosts.base import Host
from dflash_tui.watch.follow import CaughtUp, Chunk, Followed, Follower, Lost, Opened, Pace, Restored, Waiting

BRISK = Pace(look=0.05, quiet=0.3, missing=0.05, first_retry=0.05, last_retry=0.2)


@dataclass
class Taken:
    """Everything that was delivered, in order."""

    items: list[Followed] = field(default_factory=list)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def deliver(self, item: Followed) -> None:
        self.items.append(item)
        self._more.set()

    @property
    def text(self) -> str:
        """All bytes, decoded."""
        return b"".join(item.data for item in self.items if isinstance(item, Chunk)).decode()

    def has(self, kind: type[Opened | CaughtUp | Waiting | Lost | Restored]) -> bool:
        return any(isinstance(item, kind) for item in self.items)

    async def until(self, what: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait until something is true; checked whenever anything comes."""
        async with asyncio.timeout(seconds):
            while not what():
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def following(host: Host, path: str, pace: Pace = BRISK) -> AsyncIterator[Taken]:
    """Follow until the block ends."""
    taken = Taken()
    task = asyncio.create_task(Follower(host, path, taken.deliver, pace=pace).run())
    try:
        yield taken
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def numbered(first: int, last: int) -> str:
    """Lines that are all different."""
    return "".join(f"step={number}/9000 loss={9000 - number}.5\n" for number in range(first, last + 1))
