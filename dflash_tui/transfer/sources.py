"""That the files of a source are what they were when they were looked at, by few questions however many they are."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from dflash_tui.hosts.base import Host, Stat
from dflash_tui.transfer.errors import SourceChanged, TransferError
from dflash_tui.transfer.record import Identity


async def seen_sources(
    source: Host, folder: str, names: Sequence[str], read: Mapping[str, Identity]
) -> dict[str, Identity]:
    """What the files of these names are. Raises TransferError for what is no file, SourceChanged for one that was
    `read` as another one, HostError."""
    paths = [posixpath.join(folder, name) for name in names]
    stats = await source.stat_many(paths)
    return {
        name: _same(source, path, stat, read.get(name)) for name, path, stat in zip(names, paths, stats, strict=True)
    }


async def same_as_read(source: Host, path: str, read: Identity | None) -> Identity:
    """What a source file is. Raises SourceChanged unless it is what it was when it was read."""
    (stat,) = await source.stat_many([path])
    return _same(source, path, stat, read)


async def refuse_changed_sources(source: Host, folder: str, planned: Mapping[str, Identity]) -> None:
    """Raise SourceChanged unless the files of these names are what they were when they were planned. Raises
    HostError."""
    paths = [posixpath.join(folder, name) for name in planned]
    for path, identity, stat in zip(paths, planned.values(), await source.stat_many(paths), strict=True):
        if stat is None:
            raise SourceChanged(f"{source.name}:{path} is gone since the transfer was planned")
        # A link that was made of it changes neither size nor time nor inode.
        if (now := Identity.of(stat)) != identity:
            raise SourceChanged(
                f"{source.name}:{path} is not the file that was planned any more (planned {identity.size:,} bytes, now "
                f"{now.size:,}; written again or replaced); plan again"
            )


def _same(source: Host, path: str, stat: Stat | None, read: Identity | None) -> Identity:
    if stat is None:
        raise TransferError(f"{source.name}:{path} does not exist; nothing was moved")
    if stat.kind != "file":
        raise TransferError(f"{source.name}:{path} is a {stat.kind}; expected a file")
    now = Identity.of(stat)
    if read is not None and now != read:
        raise SourceChanged(
            f"{source.name}:{path} was written again or replaced after it had been read ({read.size:,} bytes then, "
            f"{now.size:,} now); plan again"
        )
    return now
