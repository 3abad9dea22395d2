"""Paths in portions that one command takes, however many they are."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence

from dflash_tui.hosts.base import Host

_ARGUMENTS = 60_000
"""Bytes of one command: a login shell takes all of it as one argument of at most 128 KiB."""
_WORDS = 500


def portions(paths: Sequence[str]) -> Iterator[list[str]]:
    """In their order."""
    some: list[str] = []
    room = _ARGUMENTS
    for path in paths:
        length = len(os.fsencode(shlex.quote(path))) + 2
        if some and (length > room or len(some) == _WORDS):
            yield some
            some, room = [], _ARGUMENTS
        some.append(path)
        room -= length
    if some:
        yield some


async def remove_files(host: Host, paths: Sequence[str]) -> None:
    """Remove files that may be gone already. Raises HostError for a host that can't be asked."""
    for some in portions(paths):
        await host.run(["rm", "-f", *some], check=False)
