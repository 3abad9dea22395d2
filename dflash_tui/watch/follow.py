"""Following a growing file on a host: its tail first, then every byte as it comes, nothing lost and nothing twice.

One `tail -c +N -f PATH` runs as long as it lives: it holds the open file, so one that was renamed away is read to its
end. A `stat` every few seconds sees what a stream can't: that the path names another file now, or a shorter one.
Offsets are ours, so after a broken link, a rotation or a truncation the reading goes on at the right byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from dflash_tui.hosts.base import (
    FileMissing,
    Host,
    HostError,
    HostKeyRefused,
    HostUnreachable,
    LoginRefused,
    PermissionRefused,
    Process,
    ReadShort,
    Stat,
)
from dflash_tui.watch.clock import Clock, HostClock, read_clock

TAIL = 256 * 1024  # bytes of a file's end that are read at first
_MEMORY = 64 * 1024  # of the newest bytes, to recognise them in a file that was cut or replaced
_COMPARED = 256
_MOUTHFUL = 16 * 1024  # bytes that are read (and understood) without a pause


@dataclass(frozen=True)
class Opened:
    """What follows begins at byte `offset`, line `number` (None: not counted), maybe inside a line. `again` when it is
    another file, or the same one emptied."""

    offset: int
    number: int | None
    partial_head: bool
    again: bool = False


@dataclass(frozen=True)
class Chunk:
    """Bytes. `at`: when they came, POSIX seconds of this machine; None for those that were there before."""

    data: bytes
    at: float | None


@dataclass(frozen=True)
class CaughtUp:
    """Everything that was there has been given. `modified_at`: the file's last change, on this machine's clock."""

    modified_at: float
    clock: HostClock


@dataclass(frozen=True)
class Waiting:
    """The file is not there yet (or not any more); it is looked for again and again."""

    reason: str


@dataclass(frozen=True)
class Lost:
    """Nothing can be read. `retry_in` seconds, None when only a person can change it; `unreachable`: nothing else on
    that host can be, either."""

    reason: str
    retry_in: float | None
    unreachable: bool = True


@dataclass(frozen=True)
class Answered:
    """The host answered a small question in `milliseconds`."""

    milliseconds: float


@dataclass(frozen=True)
class Restored:
    """After Lost: reading goes on."""


Followed = Opened | Chunk | CaughtUp | Waiting | Lost | Restored | Answered


@dataclass(frozen=True)
class Pace:
    """Seconds: between two looks at the file, of silence after which a renamed file counts as read, between two
    searches for a missing file, and of the shortest and the longest wait after a failure."""

    look: float = 3.0
    quiet: float = 2.5
    missing: float = 2.0
    first_retry: float = 1.0
    last_retry: float = 30.0
    drain_limit: float = 30.0


class Follower:
    """Follows `path` on `host` and hands everything to `deliver`, in order, until cancelled."""

    def __init__(
        self,
        host: Host,
        path: str,
        deliver: Callable[[Followed], None],
        *,
        pace: Pace | None = None,
        clock: Clock = time.time,
    ) -> None:
        self._host = host
        self._path = path
        self._deliver = deliver
        self._pace = pace or Pace()
        self._clock = clock
        self._host_clock = HostClock()
        self._inode: int | None = None
        self._offset = 0  # of the next byte to come
        self._newest = b""  # the last bytes given, at most _MEMORY
        self._backlog_end: int | None = None
        self._modified_at = 0.0
        self._came = asyncio.Event()  # bytes, since it was cleared
        self._failures = 0
        self._lost = False

    async def run(self) -> None:
        """Follow until cancelled; returns only where trying again is useless (the key or the login was refused)."""
        while True:
            try:
                await self._session()
            except FileMissing as error:
                self._well()
                self._deliver(Waiting(str(error)))
                await asyncio.sleep(self._pace.missing)
            except (HostKeyRefused, LoginRefused) as error:
                self._deliver(Lost(str(error), None))
                return
            except HostError as error:
                wait = self._pace.last_retry
                if not isinstance(error, PermissionRefused):
                    wait = min(wait, self._pace.first_retry * 2.0 ** min(self._failures, 10))
                self._failures += 1
                self._lost = True
                self._deliver(Lost(str(error), wait, isinstance(error, HostUnreachable)))
                await asyncio.sleep(wait)

    async def _session(self) -> None:
        """One stream from its start to its end. Returns where another has to be started at once."""
        if not self._host_clock.known or self._lost:
            self._host_clock = await read_clock(self._host, self._clock)
        found = await self._look()
        if self._inode is None:
            self._begin(found)
        elif _another(self._inode, found):
            await self._read_renamed(self._inode)
            self._start_over(found, 0, 1)
        elif not await self._continues(found):
            self._start_over(found, 0, 1)
        self._inode = found.inode
        self._backlog_end = found.size
        self._modified_at = self._host_clock.here(found.mtime)
        self._catch_up()
        async with self._host.stream(["tail", "-c", f"+{self._offset + 1}", "-f", self._path]) as process:
            tasks = {asyncio.create_task(self._pump(process)), asyncio.create_task(self._watch(found.inode))}
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, found: Stat) -> None:
        self._offset = max(0, found.size - TAIL)
        self._deliver(Opened(self._offset, None if self._offset else 1, partial_head=self._offset > 0))

    def _start_over(self, found: Stat, offset: int, number: int) -> None:
        self._inode, self._offset, self._newest = found.inode, offset, b""
        self._deliver(Opened(offset, number, partial_head=False, again=True))

    async def _pump(self, process: Process) -> None:
        while data := await process.read(_MOUTHFUL):
            self._well()
            self._came.set()
            self._take(data)
            await asyncio.sleep(0)  # after a long cut much is there at once, and others want to draw
        done = await process.wait()
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise HostError(
            f"{self._host.name}: following {self._path} ended with status {done.status} ({said[0][:200]}); "
            "it is started again"
        )

    def _take(self, data: bytes) -> None:
        end = self._backlog_end
        if end is not None and self._offset < end:
            old = data[: end - self._offset]
            self._give(old, None)
            self._catch_up()
            data = data[len(old) :]
        if data:
            self._give(data, self._clock())

    def _give(self, data: bytes, at: float | None) -> None:
        self._offset += len(data)
        self._newest = (self._newest + data)[-_MEMORY:]
        self._deliver(Chunk(data, at))

    def _catch_up(self) -> None:
        if self._backlog_end is not None and self._offset >= self._backlog_end:
            self._backlog_end = None
            self._deliver(CaughtUp(self._modified_at, self._host_clock))

    async def _watch(self, inode: int) -> None:
        """Looks at the file; returns when the stream no longer reads what the path names."""
        while True:
            await asyncio.sleep(self._pace.look)
            given = self._offset
            try:
                found = await self._look()
            except FileMissing:
                continue  # renamed away and not made anew yet: its writer still has it, and so have we
            self._well()
            if _another(inode, found):
                await self._quiet()
                return
            if found.size < given:
                await self._after_truncation(found)
                return

    async def _quiet(self) -> None:
        """Waits until the renamed file has given nothing for a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.drain_limit):
                while True:
                    self._came.clear()
                    async with asyncio.timeout(self._pace.quiet):
                        await self._came.wait()

    async def _after_truncation(self, found: Stat) -> None:
        """Begin again where the emptied file holds what was not given yet: GNU tail has started over by itself, others
        have not, so what of the new beginning has come already is told by its bytes."""
        head = await self._bytes(0, min(found.size, _MEMORY))
        given = _overlap(self._newest, head)
        whole = head[:given].rfind(b"\n") + 1  # the rest of a line is given once more: its reader starts anew
        self._start_over(found, whole, 1 + head[:whole].count(b"\n"))

    async def _continues(self, found: Stat) -> bool:
        """Whether the file still holds the newest bytes where they were: it may have been emptied and grown again."""
        if found.size < self._offset:
            return False
        length = min(_COMPARED, len(self._newest), self._offset)
        return await self._bytes(self._offset - length, length) == self._newest[len(self._newest) - length :]

    async def _bytes(self, offset: int, length: int) -> bytes:
        try:
            return await self._host.read(self._path, offset, length) if length > 0 else b""
        except ReadShort:
            return b""

    async def _read_renamed(self, inode: int) -> None:
        """Give what a file that was renamed away (found by its inode in the same folder) still holds."""
        folder, _, _ = self._path.rpartition("/")
        try:
            entries = await self._host.list(folder or "/")
            entry = next((item for item in entries if item.stat.inode == inode and item.stat.kind == "file"), None)
            while entry is not None and self._offset < entry.stat.size:
                length = min(_MOUTHFUL, entry.stat.size - self._offset)
                self._give(await self._host.read(f"{folder}/{entry.name}", self._offset, length), None)
        except HostUnreachable:
            raise
        except HostError:
            return  # removed or packed meanwhile: nothing more can be read of it

    async def _look(self) -> Stat:
        loop = asyncio.get_running_loop()
        before = loop.time()
        found = await self._host.stat(self._path)
        self._deliver(Answered((loop.time() - before) * 1000))
        return found

    def _well(self) -> None:
        self._failures = 0
        if self._lost:
            self._lost = False
            self._deliver(Restored())


def _another(inode: int, found: Stat) -> bool:
    # 0: a host that tells no inodes. Its truncations are seen by size and contents alone.
    return found.inode != inode and 0 not in (inode, found.inode)


def _overlap(newest: bytes, head: bytes) -> int:
    """The longest beginning of `head` with which `newest` ends, counted from the start of a line."""
    for length in range(min(len(newest), len(head)), 0, -1):
        start = len(newest) - length
        if (start == 0 or newest[start - 1] == 0x0A) and newest.endswith(head[:length]):
            return length
    return 0
