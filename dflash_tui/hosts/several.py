"""What several files are that all have to be there."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_tui.hosts.base import FileMissing, Host, Stat


async def stats_of(host: Host, paths: Sequence[str], *, follow: bool = True) -> list[Stat]:
    """The stat of each. Raises FileMissing for the first that is missing, and as `Host.stat_many` does."""
    found: list[Stat] = []
    for path, stat in zip(paths, await host.stat_many(paths, follow=follow), strict=True):
        if stat is None:
            raise FileMissing(f"{host.name}: {path} does not exist")
        found.append(stat)
    return found
