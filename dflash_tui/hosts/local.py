"""The workstation itself as a host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import stat as modes
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Literal

from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import (
    CommandFailed,
    Completed,
    Entry,
    FileMissing,
    HostError,
    PermissionRefused,
    Process,
    ReadShort,
    Space,
    Stat,
)
from dflash_tui.hosts.openssh import command_line
from dflash_tui.hosts.running import Tail, command_failed, command_text, run_to_end

_REAP = 5.0
"""Seconds to wait for a killed process and for the end of its stderr."""


def kind_of(mode: int) -> Literal["file", "folder", "link", "other"]:
    """The kind that a st_mode tells."""
    if modes.S_ISREG(mode):
        return "file"
    if modes.S_ISDIR(mode):
        return "folder"
    return "link" if modes.S_ISLNK(mode) else "other"


def temporary_name(path: str) -> str:
    """A hidden name beside `path` that nobody else uses."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name[:40]}.{secrets.token_hex(6)}.tmp")


class LocalHost:
    """Commands and files of this machine. A command runs in its own session, so that all it starts can be ended."""

    detaches = True
    dear = False

    def __init__(self, name: str = "local") -> None:
        self.name = name

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 60.0, check: bool = True
    ) -> Completed:
        """See `Host.run`."""
        opened = self.stream(argv, stdin=bool(stdin))
        return await run_to_end(self.name, argv, opened, stdin=stdin, timeout=timeout, check=check)

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        """See `Host.stream`."""
        return self._stream(argv, stdin)

    @contextlib.asynccontextmanager
    async def _stream(self, argv: Sequence[str], stdin: bool) -> AsyncIterator[Process]:
        try:
            child = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
                limit=1 << 20,
            )
        except OSError as error:
            status = 127 if isinstance(error, FileNotFoundError) else 126  # as a shell on another host would end
            said = f"{self.name}: cannot start `{command_text(argv)}`: {error.strerror}"
            raise CommandFailed(said, status, error.strerror or "") from error
        process = _LocalProcess(self.name, argv, child)
        try:
            yield process
        finally:
            await process.end()

    def system_command(
        self, argv: Sequence[str], *, stdin: bool = False, login: Sequence[str] | None = None
    ) -> list[str] | None:
        """See `Host.system_command`."""
        return list(argv) if login is None else [*login, command_line(argv)]

    def ssh_address(self) -> SshAddress | None:
        """See `Host.ssh_address`."""
        return None

    async def read(self, path: str, offset: int, length: int) -> bytes:
        """See `Host.read`."""
        return await asyncio.to_thread(self._read, path, offset, length)

    async def read_many(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `Host.read_many`."""
        return [await self.read(path, offset, length) for offset, length in ranges]

    def _read(self, path: str, offset: int, length: int) -> bytes:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not modes.S_ISREG(os.fstat(handle).st_mode):
                    raise HostError(f"{self.name}: {path} is not a regular file")
                parts, have = [], 0
                while have < length and (part := os.pread(handle, min(length - have, 1 << 24), offset + have)):
                    parts.append(part)
                    have += len(part)
            finally:
                os.close(handle)
        except OSError as error:
            raise self._error(path, error) from error
        if have != length:
            raise ReadShort(f"{self.name}: {path} gave {have} of the {length} bytes at offset {offset}")
        return b"".join(parts)

    async def stat(self, path: str, *, follow: bool = True) -> Stat:
        """See `Host.stat`."""
        return await asyncio.to_thread(self._stat, path, follow)

    def _stat(self, path: str, follow: bool) -> Stat:
        try:
            return _stat(os.stat(path, follow_symlinks=follow))
        except OSError as error:
            raise self._error(path, error) from error

    async def stat_many(self, paths: Sequence[str], *, follow: bool = True) -> list[Stat | None]:
        """See `Host.stat_many`."""
        return await asyncio.to_thread(lambda: [self._stat_or_none(path, follow) for path in paths])

    def _stat_or_none(self, path: str, follow: bool) -> Stat | None:
        try:
            return self._stat(path, follow)
        except FileMissing:
            return None

    async def list(self, path: str) -> list[Entry]:
        """See `Host.list`."""
        try:
            return await asyncio.to_thread(_entries, path)
        except OSError as error:
            raise self._error(path, error) from error

    async def write(self, path: str, data: bytes) -> None:
        """See `Host.write`."""
        await asyncio.to_thread(self._write, path, data)

    def _write(self, path: str, data: bytes) -> None:
        temporary = temporary_name(path)
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise self._error(path, error) from error

    async def make_folder(self, path: str, *, exclusive: bool = False) -> None:
        """See `Host.make_folder`."""
        try:
            if exclusive:
                os.makedirs(os.path.dirname(path.rstrip("/")) or "/", exist_ok=True)
                os.mkdir(path)
            else:
                os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise self._error(path, error) from error

    async def free_space(self, path: str) -> Space:
        """See `Host.free_space`."""
        while True:
            try:
                found = await asyncio.to_thread(os.statvfs, path)
            except FileNotFoundError:
                path = os.path.dirname(path.rstrip("/")) or "/"
            except OSError as error:
                raise self._error(path, error) from error
            else:
                return Space(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)

    async def close(self) -> None:
        """Nothing is held open."""

    def _error(self, path: str, error: OSError) -> HostError:
        if isinstance(error, FileNotFoundError):
            return FileMissing(f"{self.name}: {path} does not exist")
        if isinstance(error, PermissionError):
            return PermissionRefused(f"{self.name}: {path} may not be used by this user: {error.strerror}")
        if isinstance(error, FileExistsError):
            return HostError(f"{self.name}: {path} already exists")
        return HostError(f"{self.name}: {path}: {error.strerror or error}")


class _LocalProcess:
    def __init__(self, name: str, argv: Sequence[str], child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        self._name, self._argv, self._child = name, argv, child
        self._stdout = child.stdout
        self._tail = Tail(child.stderr.read, (OSError,))

    async def read(self, limit: int = 1 << 20) -> bytes:
        return await self._stdout.read(limit)

    async def write(self, data: bytes) -> None:
        assert self._child.stdin is not None, "the stream was opened without stdin"
        try:
            self._child.stdin.write(data)
            await self._child.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise command_failed(self._name, self._argv, await self.wait()) from None

    async def close_stdin(self) -> None:
        if self._child.stdin is not None:
            self._child.stdin.close()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await self._child.stdin.wait_closed()

    async def wait(self) -> Completed:
        status = await self._child.wait()
        return Completed(status if status >= 0 else 128 - status, b"", await self._tail.text(_REAP))

    async def announced(self, mark: str, patience: float) -> int | None:
        return await self._tail.pid(mark, patience)

    async def end(self) -> None:
        """Kill what still runs of the session and reap the child."""
        if self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
        if self._child.stdin is not None:
            self._child.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REAP):
                # What nobody has read holds the pipe open, and with it the wait.
                while await self._stdout.read(1 << 20):
                    pass
                await self._child.wait()
        await self._tail.close()


def _stat(found: os.stat_result) -> Stat:
    return Stat(kind_of(found.st_mode), found.st_size, found.st_mtime, found.st_ino, found.st_nlink)


def _entries(path: str) -> list[Entry]:
    entries = []
    with os.scandir(path) as found:
        for item in found:
            # An entry may vanish between its name and its stat: a training folder lives.
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(item.path) if item.is_symlink() else ""
                entries.append(Entry(item.name, _stat(os.lstat(item.path)), target))
    return sorted(entries, key=lambda entry: entry.name)
