"""A host whose small questions go through one shell that stands open: where every command is dear (a launcher's start
costs its host up to half a second of CPU), asking the same few things again and again must not start one each time."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from dflash_tui.hosts import commands
from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import Completed, Entry, Host, HostError, HostUnreachable, Process, Space, Stat
from dflash_tui.hosts.running import command_failed, command_text

_AGAIN_SECONDS = 60.0
"""After a shell that did not stand, questions are commands of their own for this long."""

_BEGIN = b"exec 3>&1; n=/dev/null; test -e $n || n=/\n"
"""A bare chroot has no /dev; reading from a folder ends at once, too."""

_PATIENCE = 5.0
_SMALL_READ = 1 << 20


@contextlib.asynccontextmanager
async def asked_together(host: Host) -> AsyncIterator[Host]:
    """The host for some questions: through one shell where commands are dear."""
    shell = ShellHost(host) if host.dear else None
    try:
        yield shell or host
    finally:
        if shell is not None:
            await shell.close()


class ShellHost:
    """`inner`, asked through a shell: `run` without input, and files by the commands of `commands.py`.

    What has input, much output or streams is a command of its own on `inner`, and so is what would wait long behind
    another question, and the question that a shell died of: its answer says why. `close` ends the shell and leaves
    `inner` open.
    """

    dear = False

    def __init__(self, inner: Host) -> None:
        self.name, self.detaches, self.inner = inner.name, inner.detaches, inner
        self._busy = asyncio.Lock()
        self._open = AsyncExitStack()
        self._shell: Process | None = None
        self._not_before = 0.0

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 60.0, check: bool = True
    ) -> Completed:
        """See `Host.run`. The command must be harmless to ask twice."""
        done = None
        if not stdin and time.monotonic() >= self._not_before and await self._turn():
            try:
                done = await self._asked(argv, timeout)
            finally:
                self._busy.release()
        if done is None:
            return await self.inner.run(argv, stdin=stdin, timeout=timeout, check=check)
        if check and done.status != 0:
            raise command_failed(self.name, argv, done)
        return done

    async def _turn(self) -> bool:
        """The shell for oneself, unless it is long in coming."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                return await self._busy.acquire()
        return False

    async def _asked(self, argv: Sequence[str], timeout: float) -> Completed | None:
        """The answer, or None when the shell does not stand. One that was left in the middle of an answer is ended."""
        answered, begin = False, b""
        try:
            if self._shell is None:
                # Bounded by the connection's own limits: on the way a person may be asked about the host's key.
                self._shell = await self._open.enter_async_context(self.inner.stream(["sh"], stdin=True))
                begin = _BEGIN
            async with asyncio.timeout(timeout):
                if begin:
                    await self._shell.write(begin)
                done = await self._answer(self._shell, argv)
                answered = True
                return done
        except TimeoutError:
            raise HostError(
                f"{self.name}: `{command_text(argv)}` did not end within {timeout:g} s and was stopped; "
                "the host or its disk may be overloaded"
            ) from None
        except HostUnreachable:
            raise
        except HostError:
            self._not_before = time.monotonic() + _AGAIN_SECONDS
            return None
        finally:
            if not answered:
                await self.close()

    async def _answer(self, shell: Process, argv: Sequence[str]) -> Completed:
        mark = secrets.token_hex(12)
        command = shlex.join(argv).encode("utf-8", "surrogateescape")
        # Its stdout passes as it is; stderr is kept until the status is known. The answer ends a line: srun passes
        # nothing on before a line has ended.
        await shell.write(
            b'e=$( { %b; } 2>&1 1>&3 3>&- <$n); s=$?; printf \'%%s %%s\\n%%s\\n%%s\\n\' %b "$s" "$e" %b\n'
            % (command, mark.encode(), mark.encode())
        )
        told = b""
        while told.count(mark.encode()) < 2 or not told.endswith(b"\n"):
            data = await shell.read()
            if not data:
                await shell.wait()  # raises what is known of the reason
                raise HostError(f"{self.name}: the shell ended while it was asked `{command_text(argv)}`")
            told += data
        out, said, _ = told.split(mark.encode())
        status, _, stderr = said.strip(b" ").partition(b"\n")
        return Completed(int(status), out, stderr.removesuffix(b"\n").decode("utf-8", "replace"))

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        """See `Host.stream`."""
        return self.inner.stream(argv, stdin=stdin)

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
        if length > _SMALL_READ:
            return await self.inner.read(path, offset, length)
        return await commands.read(self, path, offset, length)

    async def read_many(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `Host.read_many`."""
        if sum(length for _, length in ranges) > _SMALL_READ:
            return await self.inner.read_many(path, ranges)
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

    async def free_space(self, path: str) -> Space:
        """See `Host.free_space`."""
        return await commands.free_space(self, path)

    async def write(self, path: str, data: bytes) -> None:
        """See `Host.write`."""
        await self.inner.write(path, data)

    async def make_folder(self, path: str, *, exclusive: bool = False) -> None:
        """See `Host.make_folder`."""
        await self.inner.make_folder(path, exclusive=exclusive)

    async def close(self) -> None:
        """End the shell; the next question opens another."""
        self._shell = None
        opened, self._open = self._open, AsyncExitStack()
        with contextlib.suppress(HostError):
            await opened.aclose()
