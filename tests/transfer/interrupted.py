"""Hosts whose line breaks at a chosen moment, and a place to move files between two of them on this machine."""

from __future__ import annotations

import builtins
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from dflash_tui.checkpoints.segments import Output
from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import Completed, Entry, Host, HostUnreachable, Process, Space, Stat
from dflash_tui.hosts.local import LocalHost
from dflash_tui.transfer.engine import CHUNK, Chooser
from dflash_tui.transfer.move import Moved, move
from dflash_tui.transfer.plan import TransferPlan, make_plan
from dflash_tui.transfer.progress import TransferProgress

MIB = 1 << 20
_T = TypeVar("_T")


class BreakingHost:
    """A host whose line breaks at its command number `at` (from 1): before it is run, or after it (`answered` False:
    nobody hears how it ended), or after so many of its bytes where it is a stream; or when more than `wire` bytes have
    been written to it by streams. It stays broken for good, unless it `mends`."""

    def __init__(
        self,
        inner: Host,
        *,
        at: int = 0,
        done: bool = False,
        nbytes: int = 0,
        wire: int | None = None,
        mends: bool = False,
    ) -> None:
        self.inner, self.name, self.detaches, self.dear = inner, inner.name, inner.detaches, inner.dear
        self._at, self._done, self._nbytes, self._mends = at, done, nbytes, mends
        self._wire = wire
        self.commands = 0
        self.broken = False

    def wrote(self, nbytes: int) -> None:
        """Count what goes over the wire."""
        if self._wire is not None:
            self._wire -= nbytes
            if self._wire < 0:
                self.break_now()

    def break_now(self) -> None:
        """No command comes through any more."""
        self.broken = not self._mends
        raise HostUnreachable(f"{self.name}: the cable is out")

    async def _call(self, work: Callable[[], Awaitable[_T]]) -> _T:
        self.commands += 1
        if self.broken:
            raise HostUnreachable(f"{self.name}: the cable is out")
        now = self.commands == self._at
        if now and not self._done:
            self.break_now()
        found = await work()
        if now:
            self.break_now()
        return found

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 60.0, check: bool = True
    ) -> Completed:
        return await self._call(lambda: self.inner.run(argv, stdin=stdin, timeout=timeout, check=check))

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        return self._stream(argv, stdin)

    @contextlib.asynccontextmanager
    async def _stream(self, argv: Sequence[str], stdin: bool) -> AsyncIterator[Process]:
        self.commands += 1
        if self.broken:
            raise HostUnreachable(f"{self.name}: the cable is out")
        limit = self._nbytes if self.commands == self._at else None
        if limit == 0 and not self._done:
            self.break_now()
        async with self.inner.stream(argv, stdin=stdin) as process:
            yield _BreakingProcess(self, process, limit)

    async def read(self, path: str, offset: int, length: int) -> bytes:
        return await self._call(lambda: self.inner.read(path, offset, length))

    async def read_many(self, path: str, ranges: Sequence[tuple[int, int]]) -> builtins.list[bytes]:
        return await self._call(lambda: self.inner.read_many(path, ranges))

    async def stat(self, path: str, *, follow: bool = True) -> Stat:
        return await self._call(lambda: self.inner.stat(path, follow=follow))

    async def stat_many(self, paths: Sequence[str], *, follow: bool = True) -> builtins.list[Stat | None]:
        return await self._call(lambda: self.inner.stat_many(paths, follow=follow))

    async def list(self, path: str) -> builtins.list[Entry]:
        return await self._call(lambda: self.inner.list(path))

    async def write(self, path: str, data: bytes) -> None:
        await self._call(lambda: self.inner.write(path, data))

    async def make_folder(self, path: str, *, exclusive: bool = False) -> None:
        await self._call(lambda: self.inner.make_folder(path, exclusive=exclusive))

    async def free_space(self, path: str) -> Space:
        return await self._call(lambda: self.inner.free_space(path))

    def system_command(
        self, argv: Sequence[str], *, stdin: bool = False, login: Sequence[str] | None = None
    ) -> builtins.list[str] | None:
        return self.inner.system_command(argv, stdin=stdin, login=login)

    def ssh_address(self) -> SshAddress | None:
        return self.inner.ssh_address()

    async def close(self) -> None:
        await self.inner.close()


class _BreakingProcess:
    """Breaks after `limit` bytes in either direction, or when its end is asked for."""

    def __init__(self, host: BreakingHost, inner: Process, limit: int | None) -> None:
        self._host, self._inner, self._left = host, inner, limit
        self.close_stdin, self.announced = inner.close_stdin, inner.announced

    def _pass(self, nbytes: int) -> None:
        if self._host.broken:
            self._host.break_now()
        if self._left is not None:
            self._left -= nbytes
            if self._left < 0:
                self._host.break_now()

    async def read(self, limit: int = 1 << 20) -> bytes:
        data = await self._inner.read(limit)
        self._pass(len(data))
        return data

    async def write(self, data: bytes) -> None:
        self._pass(len(data))
        self._host.wrote(len(data))
        await self._inner.write(data)

    async def wait(self) -> Completed:
        done = await self._inner.wait()
        if self._left is not None or self._host.broken:
            self._host.break_now()
        return done


@dataclass
class Place:
    """A source folder `there` and a destination folder `here`, of two hosts that are both this machine."""

    there: Path
    here: Path
    source: Host = field(default_factory=lambda: LocalHost("ct200"))
    destination: Host = field(default_factory=lambda: LocalHost("ct129"))
    seen: list[TransferProgress] = field(default_factory=list)

    def make(self, size: int, name: str = "checkpoint.pt", *, seed: int = 0) -> bytes:
        """A file of the source. Every block is another one, so that none can stand for another."""
        blocks = [(seed * 1_000_003 + number).to_bytes(8, "big") * 512 for number in range(-(-size // 4096))]
        data = b"".join(blocks)[:size]
        (self.there / name).parent.mkdir(parents=True, exist_ok=True)
        (self.there / name).write_bytes(data)
        return data

    async def plan(self, *outputs: Output | str) -> TransferPlan:
        """A plan for what is named."""
        return await make_plan(
            self.source, str(self.there), outputs or ("checkpoint.pt",), self.destination, str(self.here)
        )

    async def move(
        self, *outputs: Output | str, chooser: Chooser | None = None, tries: int = 6, plan: TransferPlan | None = None
    ) -> Moved:
        """Plan and move."""
        plan = plan or await self.plan(*outputs)
        return await move(
            plan, self.source, self.destination, self.seen.append, chooser=chooser, tries=tries, pause=0.01
        )

    def names(self) -> set[str]:
        """What lies at the destination, the record aside."""
        found = {str(path.relative_to(self.here)) for path in self.here.rglob("*") if path.is_file()}
        return found - {".transfer.json"}

    @property
    def part(self) -> Path:
        """The only part."""
        (found,) = self.here.rglob(".*.part")
        return found


def place_in(folder: Path) -> Place:
    """A place below a folder."""
    there, here = folder / "train", folder / "eval" / "checkpoints" / "run" / "step_4000"
    there.mkdir(parents=True)
    return Place(there, here)


TWO_CHUNKS = CHUNK + 3 * MIB + 17


def disk_of(path: Path) -> int:
    """The device that a path lies on."""
    return os.stat(path).st_dev
