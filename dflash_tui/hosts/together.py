"""Many small questions to a host at once: by few commands where it is asked by commands, else several under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from dflash_tui.hosts import commands
from dflash_tui.hosts.base import Entry, Host, HostError, HostKeyRefused, HostUnreachable
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.shell import ShellHost

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = 8
"""Questions under way to one host."""

_SMALL_READ = 1 << 20


async def each(work: Callable[[T], Awaitable[R]], items: Sequence[T], at_once: int = AT_ONCE) -> list[R]:
    """What `work` makes of each item, some under way at a time; none goes on when one has failed."""
    gate = asyncio.Semaphore(at_once)

    async def one(item: T) -> R:
        async with gate:
            return await work(item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def list_folders(host: Host, paths: Sequence[str]) -> dict[str, list[Entry] | HostError]:
    """The entries of each folder, or why it can't be listed. Raises HostUnreachable, HostKeyRefused."""
    found: dict[str, list[Entry] | HostError] = {}
    if len(paths) > 1 and _by_commands(host):
        found |= await commands.list_folders(host, paths)

    async def one(path: str) -> list[Entry] | HostError:
        try:
            return await host.list(path)
        except (HostUnreachable, HostKeyRefused):
            raise
        except HostError as error:
            return error

    left = [path for path in paths if path not in found]
    found |= dict(zip(left, await each(one, left), strict=True))
    return found


async def read_files(host: Host, ranges: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
    """The bytes of each (path, offset, length) where few commands tell them; None for what has to be read by itself.
    Raises HostUnreachable, HostKeyRefused."""
    if not ranges or not _by_commands(host):
        return [None] * len(ranges)
    if isinstance(host, ShellHost) and sum(length for _, _, length in ranges) > _SMALL_READ:
        host = host.inner  # nobody else has to wait for so much
    try:
        return await commands.read_files(host, ranges)
    except (HostUnreachable, HostKeyRefused):
        raise
    except HostError:
        return [None] * len(ranges)


def _by_commands(host: Host) -> bool:
    return isinstance(host, (ShellHost, ContainerHost)) or host.ssh_address() is not None
