"""How far a part is that a host fills by itself, while nobody here sees a byte of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from dflash_tui.hosts.base import Host, HostError
from dflash_tui.hosts.running import goes_on

_LOOK, _LOOK_DEAR = 1.0, 5.0
"""Seconds between two looks."""


async def watched(
    work: Awaitable[int], host: Host, part: str, start: int, most: int, count: Callable[[int, int], None]
) -> int:
    """Await what fills `part` from byte `start` on with at most `most` bytes, and count (as `Leg.count`) what lies
    there meanwhile; how many bytes it says that it were."""
    told = 0

    def reached(nbytes: int) -> None:
        nonlocal told
        if nbytes != told:
            count(nbytes - told, nbytes - told)
            told = nbytes

    async def look() -> None:
        while goes_on():
            await asyncio.sleep(_LOOK_DEAR if host.dear else _LOOK)
            with contextlib.suppress(HostError):
                size = (await host.stat(part, follow=False)).size
                reached(min(max(told, size - start), most))

    looking = asyncio.create_task(look())
    try:
        nbytes = await work
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    reached(nbytes)
    return nbytes
