"""A host that asks a person about an unknown key before it gives up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from dflash_tui.hosts import known_hosts
from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import Completed, Entry, Host, HostKeyUnknown, KeyOffer, Process, Space, Stat

T = TypeVar("T")

Ask = Callable[[KeyOffer], Awaitable[bool]]
"""Shows an offered key to a person; True when it may be added to known_hosts."""


class Asker:
    """Asks about each offered key once, one question at a time, however many wait for the answer; what was accepted is
    added to known_hosts before anybody goes on."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._asked: dict[tuple[str, str, str], asyncio.Task[bool]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def accepted(self, offer: KeyOffer) -> bool:
        """Whether the key is in known_hosts now. Raises HostError when it could not be added."""
        key = (offer.file, offer.entry, offer.fingerprint)
        if not offer.file:
            return False
        if key not in self._asked or self._asked[key].cancelled():
            self._asked[key] = asyncio.create_task(self._accept(offer))
        return await asyncio.shield(self._asked[key])

    async def close(self) -> None:
        """Take back the questions that nobody has answered."""
        tasks = tuple(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, offer: KeyOffer) -> bool:
        async with self._one_at_a_time:
            accepted = await self._ask(offer)
        if accepted:
            await known_hosts.add(offer)
        return accepted


class AskingHost:
    """Any host; where its key, or that of a jump on the way, is unknown, `asker` is asked and the same is tried again.
    Nothing has happened on a host whose key was refused, and time limits don't run while a person thinks."""

    def __init__(self, inner: Host, asker: Asker) -> None:
        self.name, self.detaches, self.dear = inner.name, inner.detaches, inner.dear
        self.inner = inner
        self._asker = asker

    async def _asking(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        seen: set[str] = set()
        while True:
            try:
                return await work()
            except HostKeyUnknown as error:
                # One that is accepted and refused again would be asked for without end.
                if error.offer.line in seen or not await self._asker.accepted(error.offer):
                    raise
                seen.add(error.offer.line)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 60.0, check: bool = True
    ) -> Completed:
        """See `Host.run`."""
        return await self._asking(partial(self.inner.run, argv, stdin=stdin, timeout=timeout, check=check))

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        """See `Host.stream`."""
        return self._stream(argv, stdin)

    @asynccontextmanager
    async def _stream(self, argv: Sequence[str], stdin: bool) -> AsyncIterator[Process]:
        async with AsyncExitStack() as stack:
            yield await self._asking(lambda: stack.enter_async_context(self.inner.stream(argv, stdin=stdin)))

    def system_command(
        self, argv: Sequence[str], *, stdin: bool = False, login: Sequence[str] | None = None
    ) -> list[str] | None:
        """See `Host.system_command`."""
        return self.inner.system_command(argv, stdin=stdin, login=login)

    def ssh_address(self) -> SshAddress | None:
        """See `Host.ssh_address`."""
        return self.inner.ssh_address()

    async def read(self, path: str, offset: int, length: int) -> bytes:
        """See `Host.read`."""
        return await self._asking(partial(self.inner.read, path, offset, length))

    async def read_many(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `Host.read_many`."""
        return await self._asking(partial(self.inner.read_many, path, ranges))

    async def stat(self, path: str, *, follow: bool = True) -> Stat:
        """See `Host.stat`."""
        return await self._asking(partial(self.inner.stat, path, follow=follow))

    async def stat_many(self, paths: Sequence[str], *, follow: bool = True) -> list[Stat | None]:
        """See `Host.stat_many`."""
        return await self._asking(partial(self.inner.stat_many, paths, follow=follow))

    async def list(self, path: str) -> list[Entry]:
        """See `Host.list`."""
        return await self._asking(partial(self.inner.list, path))

    async def write(self, path: str, data: bytes) -> None:
        """See `Host.write`."""
        await self._asking(partial(self.inner.write, path, data))

    async def make_folder(self, path: str, *, exclusive: bool = False) -> None:
        """See `Host.make_folder`."""
        await self._asking(partial(self.inner.make_folder, path, exclusive=exclusive))

    async def free_space(self, path: str) -> Space:
        """See `Host.free_space`."""
        return await self._asking(partial(self.inner.free_space, path))

    async def close(self) -> None:
        """See `Host.close`."""
        await self.inner.close()
