"""A machine over SSH: one connection, made at first use and again after a break."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

from dflash_tui.hosts import commands
from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import (
    CommandFailed,
    Completed,
    Entry,
    FileMissing,
    HostError,
    HostUnreachable,
    Process,
    ReadShort,
    Space,
    Stat,
)
from dflash_tui.hosts.local import kind_of, temporary_name
from dflash_tui.hosts.openssh import command_line, ssh_login
from dflash_tui.hosts.running import (
    Tail,
    announcing,
    command_failed,
    command_text,
    ending,
    new_mark,
    run_to_end,
    shell_line,
)
from dflash_tui.hosts.ssh_link import connect, disconnect, translated
from dflash_tui.hosts.together import each

if TYPE_CHECKING:
    import asyncssh

    from dflash_tui.hosts.ssh_session import Session

_WINDOW = 8 << 20
"""Receive window of a stream: asyncssh's default of 2 MiB halves the speed at 40 ms."""

_SESSIONS = 6
"""Commands at a time: sshd allows ten sessions a connection, SFTP and the ending of a command included."""

_OPENING_WAITS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds to wait before a refused session is asked for again: sshd counts a closed one a little longer."""

_NO_SUCH_SUBSYSTEM = 0xFFFFFFFF
"""asyncssh's code for a session that was opened and whose request was refused."""

_REQUESTS = 64
"""Small questions to SFTP under way together: a round trip for so many."""

_FILE_SECONDS = 30.0
_BYTES_A_SECOND = 1 << 20
_REAP = 5.0


class SshHost:
    """Commands and files of a machine over SSH.

    `stat` and `list` go by command where the host has `stat -c`, because SFTP 3 tells neither inodes nor link counts
    (they are 0 and 1 where only SFTP answers). Reading, writing, folders and free space go by SFTP, and by the commands
    of `commands.py` where SFTP is not offered.
    """

    detaches = True
    dear = False

    def __init__(self, name: str, address: SshAddress) -> None:
        self.name = name
        self.address = address
        self._lock = asyncio.Lock()
        self._sessions = asyncio.Semaphore(_SESSIONS)
        self._endings = asyncio.Lock()
        self._connections: list[asyncssh.SSHClientConnection] = []
        self._sftp: asyncssh.SFTPClient | None = None
        self._without_sftp = False
        self._without_stat = False

    async def _connection(self) -> asyncssh.SSHClientConnection:
        async with self._lock:
            if not self._connections or any(connection.is_closed() for connection in self._connections):
                old, self._connections = self._connections, []
                self._sftp, self._without_sftp = None, False
                await disconnect(old)
                self._connections = await connect(self.name, self.address)
            return self._connections[-1]

    async def _files(self) -> asyncssh.SFTPClient | None:
        """The SFTP session, or None where the host offers none."""
        connection = await self._connection()
        import asyncssh

        async with self._lock:
            if self._sftp is None and not self._without_sftp:
                try:
                    async with translated(self.name, "SFTP"), asyncio.timeout(_FILE_SECONDS):
                        self._sftp = await connection.start_sftp_client(path_errors="surrogateescape")
                except HostUnreachable as error:
                    cause = error.__cause__
                    if not isinstance(cause, asyncssh.ChannelOpenError) or cause.code != _NO_SUCH_SUBSYSTEM:
                        raise
                    self._without_sftp = True
                except HostError:
                    # A forced command or a missing sftp-server answers with something that is not SFTP.
                    self._without_sftp = True
            return self._sftp

    @contextlib.asynccontextmanager
    async def _using(self, sftp: asyncssh.SFTPClient, path: str, seconds: float) -> AsyncIterator[None]:
        try:
            async with translated(self.name, path), asyncio.timeout(seconds):
                yield
        except HostUnreachable:
            if self._sftp is sftp:
                self._sftp = None
                sftp.exit()
            raise

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 60.0, check: bool = True
    ) -> Completed:
        """See `Host.run`."""
        opened = self.stream(argv, stdin=bool(stdin))
        return await run_to_end(self.name, argv, opened, stdin=stdin, timeout=timeout, check=check)

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        """See `Host.stream`. Never with a PTY."""
        return self._stream(argv, stdin)

    @contextlib.asynccontextmanager
    async def _stream(self, argv: Sequence[str], stdin: bool) -> AsyncIterator[Process]:
        async with self._sessions, AsyncExitStack() as stack:
            connection = await self._connection()
            import asyncssh

            from dflash_tui.hosts.ssh_session import Session

            heeds = _heeds_signals(connection)
            mark = "" if heeds else new_mark()
            # A server that heeds signals is no OpenSSH and starts no login shell. asyncssh sends bytes as they are.
            line = shell_line(announcing(argv, mark)) if mark else shlex.join(argv).encode("utf-8", "surrogateescape")
            command = cast(str, line)

            async def open_session() -> Session:
                channel, session = await connection.create_session(
                    Session, command, encoding=None, window=_WINDOW, request_pty=False
                )
                if not stdin:
                    channel.write_eof()
                return cast(Session, session)

            async def start() -> _SshProcess:
                async with translated(self.name, f"`{command_text(argv)}`"):
                    for wait in _OPENING_WAITS:
                        try:
                            remote = await open_session()
                            break
                        except asyncssh.ChannelOpenError:
                            if connection.is_closed():
                                raise
                            await asyncio.sleep(wait)
                    else:
                        remote = await open_session()
                process = _SshProcess(self.name, argv, connection, remote)
                stack.push_async_callback(process.end, mark, self._endings)
                return process

            # Cancelled in the middle of a start, nobody would know what to end: let it finish, then end it.
            starting = asyncio.create_task(start())
            try:
                process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                await asyncio.wait([starting])
                if not starting.cancelled():
                    starting.exception()  # nobody waits for it any more, and nothing is left to be done about it
                raise
            yield process

    def system_command(
        self, argv: Sequence[str], *, stdin: bool = False, login: Sequence[str] | None = None
    ) -> list[str] | None:
        """See `Host.system_command`."""
        words = ssh_login(self.address) if login is None else login
        return None if words is None else [*words, command_line(argv)]

    def ssh_address(self) -> SshAddress | None:
        """See `Host.ssh_address`."""
        return self.address

    async def read(self, path: str, offset: int, length: int) -> bytes:
        """See `Host.read`."""
        sftp = await self._files()
        if sftp is None:
            return await commands.read(self, path, offset, length)
        commands.absolute(self, path)
        async with self._using(sftp, path, _FILE_SECONDS + length / _BYTES_A_SECOND):
            # Opening a FIFO would block the whole SFTP session.
            if kind_of((await sftp.stat(path)).permissions or 0) != "file":
                raise HostError(f"{self.name}: {path} is not a regular file")
            async with sftp.open(path, "rb", encoding=None) as file:
                data = cast(bytes, await file.read(length, offset)) if length else b""
        if len(data) != length:
            raise ReadShort(f"{self.name}: {path} gave {len(data)} of the {length} bytes at offset {offset}")
        return data

    async def read_many(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `Host.read_many`. The file is opened once, and many reads are under way together."""
        sftp = await self._files()
        if sftp is None:
            return await commands.read_many(self, path, ranges)
        seconds = _FILE_SECONDS + sum(length for _, length in ranges) / _BYTES_A_SECOND
        async with self._using(sftp, commands.absolute(self, path), seconds):
            if kind_of((await sftp.stat(path)).permissions or 0) != "file":
                raise HostError(f"{self.name}: {path} is not a regular file")
            async with sftp.open(path, "rb", encoding=None) as file:

                async def one(place: tuple[int, int]) -> bytes:
                    offset, length = place
                    return cast(bytes, await file.read(length, offset)) if length else b""

                found = await each(one, ranges, _REQUESTS)
        for (offset, length), data in zip(ranges, found, strict=True):
            if len(data) != length:
                raise ReadShort(f"{self.name}: {path} gave {len(data)} of the {length} bytes at offset {offset}")
        return found

    async def stat(self, path: str, *, follow: bool = True) -> Stat:
        """See `Host.stat`."""
        if not self._without_stat:
            try:
                return await commands.stat(self, path, follow=follow)
            except CommandFailed:
                self._without_stat = await self._files() is not None
                if not self._without_stat:
                    raise
        sftp = await self._need_files()
        commands.absolute(self, path)
        async with self._using(sftp, path, _FILE_SECONDS):
            return _stat(await (sftp.stat(path) if follow else sftp.lstat(path)))

    async def stat_many(self, paths: Sequence[str], *, follow: bool = True) -> list[Stat | None]:
        """See `Host.stat_many`. Where SFTP answers, many questions are under way together."""
        if not self._without_stat:
            try:
                return await commands.stat_many(self, paths, follow=follow)
            except CommandFailed:
                self._without_stat = await self._files() is not None
                if not self._without_stat:
                    raise
        sftp = await self._need_files()

        async def one(path: str) -> Stat | None:
            with contextlib.suppress(FileMissing):
                async with self._using(sftp, commands.absolute(self, path), _FILE_SECONDS):
                    return _stat(await (sftp.stat(path) if follow else sftp.lstat(path)))
            return None

        return await each(one, paths, _REQUESTS)

    async def list(self, path: str) -> list[Entry]:
        """See `Host.list`."""
        if not self._without_stat:
            try:
                return await commands.list_folder(self, path)
            except CommandFailed:
                self._without_stat = await self._files() is not None
                if not self._without_stat:
                    raise
        sftp = await self._need_files()
        entries = []
        async with self._using(sftp, commands.absolute(self, path), 2 * _FILE_SECONDS):
            for item in await sftp.readdir(path):
                name = item.filename if isinstance(item.filename, str) else os.fsdecode(item.filename)
                if name not in (".", ".."):
                    found = _stat(item.attrs)
                    target = await sftp.readlink(os.path.join(path, name)) if found.kind == "link" else ""
                    entries.append(Entry(name, found, target))
        return sorted(entries, key=lambda entry: entry.name)

    async def write(self, path: str, data: bytes) -> None:
        """See `Host.write`."""
        sftp = await self._files()
        if sftp is None:
            return await commands.write(self, path, data)
        import asyncssh

        temporary = temporary_name(commands.absolute(self, path))
        async with self._using(sftp, path, _FILE_SECONDS + len(data) / _BYTES_A_SECOND):
            try:
                async with sftp.open(temporary, "xb", encoding=None) as file:
                    await file.write(data)
                    with contextlib.suppress(asyncssh.SFTPOpUnsupported):
                        await file.fsync()
                await sftp.posix_rename(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError, asyncssh.Error):
                    await asyncio.wait_for(sftp.remove(temporary), _REAP)
                raise

    async def make_folder(self, path: str, *, exclusive: bool = False) -> None:
        """See `Host.make_folder`."""
        sftp = await self._files()
        if sftp is None:
            return await commands.make_folder(self, path, exclusive=exclusive)
        path = commands.absolute(self, path).rstrip("/") or "/"
        async with self._using(sftp, path, _FILE_SECONDS):
            if not exclusive:
                return await sftp.makedirs(path, exist_ok=True)
            await sftp.makedirs(os.path.dirname(path), exist_ok=True)
            # SFTP 3 has no word for "exists": it must be asked, before, and again when the making fails.
            if await sftp.lexists(path):
                raise HostError(f"{self.name}: {path} already exists")
            await sftp.mkdir(path)

    async def free_space(self, path: str) -> Space:
        """See `Host.free_space`."""
        sftp = await self._files()
        if sftp is None:
            return await commands.free_space(self, path)
        import asyncssh

        path = commands.absolute(self, path)
        while True:
            try:
                async with self._using(sftp, path, _FILE_SECONDS):
                    found = await sftp.statvfs(path)
            except FileMissing:
                path = os.path.dirname(path.rstrip("/")) or "/"
            except HostError as error:
                if isinstance(error.__cause__, asyncssh.SFTPOpUnsupported):
                    return await commands.free_space(self, path)
                raise
            else:
                return Space(found.bavail * found.frsize, found.favail if found.files else None)

    async def _need_files(self) -> asyncssh.SFTPClient:
        sftp = await self._files()
        if sftp is None:
            raise HostError(f"{self.name}: the host offers neither SFTP nor a `stat` that knows -c")
        return sftp

    async def close(self) -> None:
        """Close the connection and those of its jumps. The next use would open them again."""
        async with self._lock:
            if self._sftp is not None:
                self._sftp.exit()
            self._sftp = None
            connections, self._connections = self._connections, []
            await disconnect(connections)


class _SshProcess:
    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        connection: asyncssh.SSHClientConnection,
        remote: Session,
    ) -> None:
        import asyncssh

        self._name, self._argv = name, argv
        self._what = f"`{command_text(argv)}`"
        self._connection, self._remote, self._channel = connection, remote, remote.channel
        self._tail = Tail(remote.stderr.read, (OSError, asyncssh.Error))

    async def read(self, limit: int = 1 << 20) -> bytes:
        async with translated(self._name, self._what):
            return await self._remote.stdout.read(limit)

    async def write(self, data: bytes) -> None:
        try:
            async with translated(self._name, self._what):
                await self._remote.write(data)
        except HostUnreachable:
            # A command that ended before it read its input also breaks the pipe; then its status is the reason.
            if self._connection.is_closed():
                raise
            raise command_failed(self._name, self._argv, await self.wait()) from None

    async def close_stdin(self) -> None:
        async with translated(self._name, self._what):
            if not self._channel.is_closing():
                self._channel.write_eof()

    async def wait(self) -> Completed:
        async with translated(self._name, self._what):
            await self._channel.wait_closed()
        stderr = await self._tail.text(_REAP)
        if (ended := self._channel.get_exit_signal()) is not None:
            number = getattr(signal, f"SIG{ended[0]}", signal.SIGKILL)
            return Completed(128 + int(number), b"", stderr)
        status = self._channel.get_exit_status()
        if status is None:
            raise HostUnreachable(f"{self._name}: the connection broke before {self._what} told its status")
        return Completed(status, b"", stderr)

    async def announced(self, mark: str, patience: float) -> int | None:
        return await self._tail.pid(mark, patience)

    async def end(self, mark: str, endings: asyncio.Lock) -> None:
        """Kill the command if it still runs, and give its channel back. `mark`: of a command that announced itself
        ("": the server heeds signals); killing it takes a session, and they are few: `endings` are one at a time."""
        import asyncssh

        if self._channel.get_exit_status() is None and not self._connection.is_closed():
            with contextlib.suppress(OSError, asyncssh.Error):
                self._channel.kill()
                if mark and (pid := await self._tail.pid(mark, _REAP)) is not None:
                    async with endings:
                        await self._connection.run(shlex.join(ending(pid)), timeout=_REAP, stdin=asyncssh.DEVNULL)
        self._channel.close()
        with contextlib.suppress(OSError, asyncssh.Error):
            await asyncio.wait_for(self._channel.wait_closed(), _REAP)
        await self._tail.close()


def _heeds_signals(connection: asyncssh.SSHClientConnection) -> bool:
    """Whether the server passes signals on to a command. OpenSSH does so only for other users than root."""
    return "asyncssh" in str(connection.get_extra_info("server_version")).lower()


def _stat(found: Any) -> Stat:
    size, mtime, links = found.size or 0, float(found.mtime or 0), found.nlink or 1
    return Stat(kind_of(found.permissions or 0), size, mtime, 0, links)
