"""Paths in portions that one command takes, and files in those that are looked at together, however many they are."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from dflash_tui.hosts.base import Host
from dflash_tui.transfer.engine import CHUNK

T = TypeVar("T")

_ARGUMENTS = 60_000
"""Bytes of one command: a login shell takes all of it as one argument of at most 128 KiB."""
_WORDS = 500
_FILES = 100


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


def batches(
    items: Sequence[T], size: Callable[[T], int], apart: Callable[[T], bool] = lambda item: False
) -> Iterator[list[T]]:
    """In their order, in portions of small files that are looked at together: what is long is a portion by itself, and
    those that are `apart` have none with the others."""
    some: list[T] = []
    room = CHUNK
    for item in items:
        if some and (size(item) > room or len(some) == _FILES or apart(item) != apart(some[-1])):
            yield some
            some, room = [], CHUNK
        some.append(item)
        room -= size(item)
    if some:
        yield some


async def remove_files(host: Host, paths: Sequence[str]) -> None:
    """Remove files that may be gone already. Raises HostError for a host that can't be asked."""
    for some in portions(paths):
        await host.run(["rm", "-f", *some], check=False)
