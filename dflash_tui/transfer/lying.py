"""What lies at a destination under the names that a transfer gives there, by few questions however many they are."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Sequence

from dflash_tui.hosts.base import FileMissing, Host, Stat
from dflash_tui.hosts.together import list_folders

_MANY = 100
"""Names in a folder that are worth listing it: one command, where asking for each takes several."""


async def lying(host: Host, paths: Sequence[str]) -> dict[str, Stat]:
    """The stats of those that are there, by their paths; a link is not followed. Raises HostError."""
    folders: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        folders[posixpath.dirname(path)].append(path)
    found: dict[str, Stat] = {}
    listed = await list_folders(host, [folder for folder, inside in folders.items() if len(inside) > _MANY])
    for folder, entries in listed.items():
        if isinstance(entries, list):
            there = {entry.name: entry.stat for entry in entries}
            inside = ((path, posixpath.basename(path)) for path in folders.pop(folder))
            found |= {path: there[name] for path, name in inside if name in there}
        elif isinstance(entries, FileMissing):
            del folders[folder]
    # A folder may let nobody list it and still tell of each name.
    left = [path for inside in folders.values() for path in inside]
    stats = zip(left, await host.stat_many(left, follow=False), strict=True)
    return found | {path: stat for path, stat in stats if stat is not None}
