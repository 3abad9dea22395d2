"""One part gets its name."""

from __future__ import annotations

from dflash_tui.hosts.base import Host, Stat
from dflash_tui.transfer.publish import Proven, publish


async def name(host: Host, part: str, final: str, proven: Stat) -> None:
    """Raises what `publish` says of it."""
    (taken,) = await publish(host, [Proven(part, final, proven)])
    if taken is not None:
        raise taken
