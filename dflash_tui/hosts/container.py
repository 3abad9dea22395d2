"""A container, pod or allocation reached by a launcher on another host (`pct exec 200 --`, `docker exec c`, …).

Everything goes through the launcher as argv, never with a PTY and never by the launcher's own copy command
(`pct pull` stages the whole file and exits 0 on a short copy). What is sent for files is the table in
`commands.py`; beside it only `pct status ID`, on the host itself, when a command was refused.
The launcher's status is its program's: byte counts and hashes are judged above it.

Most programs outlive a launcher that is killed, so each tells its process id first, and is ended by it from inside.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager

from dflash_tui.hosts import commands
from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import Completed, Entry, Host, HostError, HostUnreachable, Process, Space, Stat
from dflash_tui.hosts.launchers import parse_prefix
from dflash_tui.hosts.running import announcing, command_text, ending, ending_later, new_mark, run_to_end

_TELL, _REAP = 5.0, 15.0
"""Seconds to wait for a process id when a command is left at its start, and for ending it: a cluster takes a while to
start even that."""


class ContainerHost:
    """The inside of a container. `prefix` is put before every command and run on `inner`, which this host does not own:
    `close` leaves it open."""

    dear = True

    def __init__(self, inner: Host, prefix: Sequence[str], name: str, *, attached: bool = False) -> None:
        """`attached`: what is started there ends with its launcher, whatever is known of the launcher. Raises
        HostError when the prefix can't be used."""
        self.name = name
        self._inner = inner
        self._prefix = parse_prefix(prefix, name)
        self.detaches = self._prefix.detaches and inner.detaches and not attached
        self._left: dict[str, int] = {}

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 60.0, check: bool = True
    ) -> Completed:
        """See `Host.run`. A container that does not run raises HostUnreachable."""
        opened = self.stream(argv, stdin=bool(stdin))
        return await run_to_end(self.name, argv, opened, stdin=stdin, timeout=timeout, check=check)

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        """See `Host.stream`."""
        return self._stream(argv, stdin)

    @contextlib.asynccontextmanager
    async def _stream(self, argv: Sequence[str], stdin: bool) -> AsyncIterator[Process]:
        mark = "" if self._prefix.in_group else new_mark()
        command = announcing(argv, mark) if mark else argv
        pid: int | None = None
        try:
            async with self._inner.stream([*self._prefix.argv(stdin=stdin), *command], stdin=stdin) as process:
                inside = _ContainerProcess(self, process, mark)
                try:
                    yield inside
                finally:
                    if mark and not inside.ended:
                        pid = await process.announced(mark, _TELL)
                        if pid is not None:
                            self._left[mark] = pid
        finally:
            # After the launcher, whose session may be the last that the host below gives.
            if pid is not None and not inside.cut:
                await self._end(mark, ending(pid))

    async def _end(self, mark: str, argv: Sequence[str]) -> None:
        self._left.pop(mark, None)
        command = [*self._prefix.argv(stdin=False), *argv]
        task = asyncio.create_task(self._inner.run(command, timeout=_REAP, check=False))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise
        except HostError:
            return

    async def end_left(self) -> None:
        """End the programs that a broken link has left behind, now that the container answers again."""
        while self._left:
            mark, pid = self._left.popitem()
            await self._end(mark, ending_later(pid, mark))

    async def explain(self, done: Completed, begun: bool) -> None:
        """Raise HostUnreachable or PermissionRefused when a launcher could not start a command. `begun`: it did."""
        trouble = self._prefix.trouble(done.stderr, self._inner.name) if done.status != 0 and not begun else None
        if trouble is None:
            return
        shown = f"{self.name} (`{command_text(self._prefix.argv(stdin=False))}` on {self._inner.name})"
        kind, means = trouble
        if (status := self._prefix.status_command()) is not None:
            state = await self._inner.run(status, timeout=20, check=False)
            if state.status == 0 and "running" in state.text:
                return  # the words came from a program inside, or the container has just come up
        raise kind(f"{shown} {means}")

    def cleaned(self, done: Completed) -> Completed:
        """What a program said, without its launcher's remarks."""
        return Completed(done.status, done.stdout, self._prefix.cleaned(done.stderr))

    def system_command(
        self, argv: Sequence[str], *, stdin: bool = False, login: Sequence[str] | None = None
    ) -> list[str] | None:
        """See `Host.system_command`."""
        return self._inner.system_command([*self._prefix.argv(stdin=stdin), *argv], stdin=stdin, login=login)

    def ssh_address(self) -> SshAddress | None:
        """See `Host.ssh_address`."""
        return self._inner.ssh_address()

    async def read(self, path: str, offset: int, length: int) -> bytes:
        """See `Host.read`."""
        return await commands.read(self, path, offset, length)

    async def read_many(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `Host.read_many`."""
        return await commands.read_many(self, path, ranges)

    async def stat(self, path: str, *, follow: bool = True) -> Stat:
        """See `Host.stat`."""
        return await commands.stat(self, path, follow=follow)

    async def stat_many(self, paths: Sequence[str], *, follow: bool = True) -> list[Stat | None]:
        """See `Host.stat_many`."""
        return await commands.stat_many(self, paths, follow=follow)

    async def list(self, path: str) -> list[Entry]:
        """See `Host.list`."""
        return await commands.list_folder(self, path)

    async def write(self, path: str, data: bytes) -> None:
        """See `Host.write`."""
        await commands.write(self, path, data)

    async def make_folder(self, path: str, *, exclusive: bool = False) -> None:
        """See `Host.make_folder`."""
        await commands.make_folder(self, path, exclusive=exclusive)

    async def free_space(self, path: str) -> Space:
        """See `Host.free_space`."""
        return await commands.free_space(self, path)

    async def close(self) -> None:
        """The host that the container runs on stays open."""


class _ContainerProcess:
    """`ended`: its status is known. `cut`: the link broke, so that nothing can be ended inside now."""

    def __init__(self, host: ContainerHost, process: Process, mark: str) -> None:
        self._host, self._process, self._mark = host, process, mark
        self.ended = self.cut = False
        self.close_stdin = process.close_stdin
        self.announced = process.announced

    async def read(self, limit: int = 1 << 20) -> bytes:
        with self._watched():
            return await self._process.read(limit)

    async def write(self, data: bytes) -> None:
        with self._watched():
            await self._process.write(data)

    async def wait(self) -> Completed:
        with self._watched():
            done = await self._process.wait()
        self.ended = True
        begun = bool(self._mark) and await self._process.announced(self._mark, 0) is not None
        if begun:
            await self._host.end_left()
        await self._host.explain(done, begun)
        return self._host.cleaned(done)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except HostUnreachable:
            self.cut = True
            raise
