"""A training as it is watched: its log and its saved checkpoints together, live or once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from dflash_tui.hosts.base import FileMissing, Host, HostError, HostKeyRefused, HostUnreachable, ReadShort
from dflash_tui.hosts.shell import ShellHost, asked_together
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.records.facts import Fact
from dflash_tui.watch.arguments import Arguments, read_arguments, training_facts
from dflash_tui.watch.clock import Clock, HostClock, read_clock
from dflash_tui.watch.events import (
    CheckpointsListed,
    HostAnswered,
    MachineRead,
    TrainingProgressed,
    WatchEvent,
    WatchLost,
    WatchRestored,
)
from dflash_tui.watch.fold import Fold
from dflash_tui.watch.follow import (
    TAIL,
    Answered,
    CaughtUp,
    Chunk,
    Followed,
    Follower,
    Lost,
    Opened,
    Pace,
    Restored,
    Waiting,
)
from dflash_tui.watch.lines import Line, LineSplitter
from dflash_tui.watch.machine import read_machine
from dflash_tui.watch.progress import Progress
from dflash_tui.watch.saved import CheckpointLister, Wait

EVENT_INTERVAL = 0.25  # seconds between two TrainingProgressed at least
LISTING_INTERVAL = 10.0  # seconds between two looks at the checkpoints folder
MACHINE_INTERVAL = 15.0  # seconds between two looks at the machine: through a container each costs four commands
NEW_LINES = 500  # of the log in one event


@dataclass(frozen=True)
class Snapshot:
    """A training at one moment. `progress` is None when the log can't be read (`log_problem` says why);
    `checkpoints_problem` likewise."""

    progress: Progress | None
    checkpoints: tuple[SavedCheckpoint, ...]
    facts: tuple[Fact, ...]
    host_clock: HostClock
    arguments: Arguments | None = None
    log_problem: str = ""
    checkpoints_problem: str = ""

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be read, as sentences."""
        arguments = self.arguments.problem if self.arguments is not None else ""
        return tuple(text for text in (self.log_problem, self.checkpoints_problem, arguments) if text)


async def read_once(
    host: Host,
    log_path: str,
    checkpoints_root: str,
    args_path: str = "",
    *,
    lister: CheckpointLister | None = None,
    clock: Clock = time.time,
    wait: Wait | None = None,
) -> Snapshot:
    """Look once: the log's tail, the saved checkpoints, the arguments, the host's clock. With `wait`, checkpoints of
    which only a second look tells whether they are whole get one. Raises HostUnreachable and HostKeyRefused; what is
    only missing or refused is said in the snapshot."""
    checkpoints: tuple[SavedCheckpoint, ...] = ()
    checkpoints_problem = ""
    async with asked_together(host) as asked:
        host_clock = await read_clock(asked, clock)
        lister = lister or CheckpointLister(asked, checkpoints_root, clock=clock)
        try:
            checkpoints = await (lister.settle(host_clock, wait) if wait is not None else lister.look(host_clock))
        except HostUnreachable:
            raise
        except HostError as error:
            checkpoints_problem = str(error)
        progress, log_problem = await _read_tail(asked, log_path, host_clock, clock)
        arguments = await read_arguments(asked, args_path)
    facts = training_facts(host.name, log_path, progress, checkpoints, arguments, now=clock())
    return Snapshot(progress, checkpoints, facts, host_clock, arguments, log_problem, checkpoints_problem)


async def _read_tail(host: Host, path: str, host_clock: HostClock, clock: Clock) -> tuple[Progress | None, str]:
    try:
        found = await host.stat(path)
        begin = max(0, found.size - TAIL)
        data = await host.read(path, begin, found.size - begin)
    except (FileMissing, ReadShort) as error:
        return None, str(error)
    except HostUnreachable:
        raise
    except HostError as error:
        return None, str(error)
    log = _Log(clock)
    log.take(Opened(begin, None if begin else 1, partial_head=begin > 0))
    log.take(Chunk(data, None))
    log.take(CaughtUp(host_clock.here(found.mtime), host_clock))
    return log.progress(), ""


class TrainingWatch:
    """Follows a training until cancelled. `lister` may be given to `read_once`, so that nothing is read twice."""

    def __init__(
        self,
        host: Host,
        log_path: str,
        checkpoints_root: str,
        *,
        pace: Pace | None = None,
        listing_interval: float = LISTING_INTERVAL,
        machine_interval: float = MACHINE_INTERVAL,
        clock: Clock = time.time,
    ) -> None:
        self._host = ShellHost(host) if host.dear else host
        self._log_path, self._checkpoints_root = log_path, checkpoints_root
        self._clock = clock
        self._listing_interval = listing_interval
        self._machine_interval = machine_interval
        self._log = _Log(clock)
        self.lister = CheckpointLister(self._host, checkpoints_root, clock=clock)
        self._pace = pace or Pace()
        self._changed = asyncio.Event()
        self._look_at_checkpoints = asyncio.Event()
        self._reachable = asyncio.Event()  # the log's follower alone tries again when it is not, at its own pace
        self._reachable.set()

    async def run(self, emit: Callable[[WatchEvent], None]) -> None:
        """Emit what happens, TrainingProgressed at most four times a second, until cancelled. Returns only where a
        person has to act first: the key or the login was refused (a WatchLost without `retry_in` came before)."""

        def deliver(item: Followed) -> None:
            self._deliver(item, emit)

        follower = Follower(self._host, self._log_path, deliver, pace=self._pace, clock=self._clock)
        others = [asyncio.create_task(work(emit)) for work in (self._tell, self._list, self._measure)]
        following = asyncio.create_task(follower.run())
        try:
            done, _ = await asyncio.wait([following, *others], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (following, *others):
                task.cancel()
            await asyncio.gather(following, *others, return_exceptions=True)
            if isinstance(self._host, ShellHost):
                await self._host.close()

    def _deliver(self, item: Followed, emit: Callable[[WatchEvent], None]) -> None:
        match item:
            case Answered(milliseconds):
                emit(HostAnswered(self._host.name, milliseconds))
            case Lost(reason, retry_in, unreachable):
                if unreachable:
                    self._reachable.clear()
                emit(WatchLost(reason, retry_in))
            case Restored():
                self._reachable.set()
                emit(WatchRestored())
                self._look_at_checkpoints.set()
            case _:
                saved = self._log.saved
                self._log.take(item)
                self._changed.set()
                if self._log.saved != saved:
                    self._look_at_checkpoints.set()

    async def _tell(self, emit: Callable[[WatchEvent], None]) -> None:
        stalled, first = False, True
        while True:
            try:
                async with asyncio.timeout(1.0):
                    await self._changed.wait()
            except TimeoutError:
                pass
            progress = self._log.progress()
            if self._changed.is_set() or progress.stalled != stalled:
                self._changed.clear()
                stalled = progress.stalled
                emit(TrainingProgressed(progress, self._log.new_lines(), first))
                first = False
            await asyncio.sleep(EVENT_INTERVAL)

    async def _list(self, emit: Callable[[WatchEvent], None]) -> None:
        told: CheckpointsListed | None = None
        while True:
            await self._reachable.wait()
            try:
                listed = CheckpointsListed(await self.lister.look(self._log.host_clock))
            except HostUnreachable:
                listed = None  # the log's follower says so, and when it is back
            except HostError as error:
                listed = CheckpointsListed((), str(error))
            if listed is not None and listed != told:
                told = listed
                emit(listed)
            try:
                async with asyncio.timeout(self._listing_interval):
                    await self._look_at_checkpoints.wait()
                self._look_at_checkpoints.clear()
            except TimeoutError:
                pass

    async def _measure(self, emit: Callable[[WatchEvent], None]) -> None:
        while True:
            await self._reachable.wait()
            with suppress(HostUnreachable, HostKeyRefused):  # the log's follower says so, and when it is back
                emit(MachineRead(await read_machine(self._host, self._checkpoints_root)))
            await asyncio.sleep(self._machine_interval)


class _Log:
    """A followed log's lines and what they say."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._splitter = LineSplitter()
        self._fold = Fold()
        self._lines: list[str] = []
        self._waiting = ""
        self.host_clock = HostClock()

    @property
    def saved(self) -> int:
        """How many checkpoints the log has announced."""
        return self._fold.announced

    def take(self, item: Followed) -> None:
        """Take what the follower gives."""
        match item:
            case Opened(offset, number, partial_head):
                self._add(self._splitter.close())
                self._splitter = LineSplitter(offset, number, partial_head=partial_head)
                self._waiting = ""
            case Chunk(data, at):
                for line in self._splitter.feed(data, at):
                    self._add(line)
                if (pending := self._splitter.pending) is not None:
                    self._fold.add_unfinished(replace(pending, at=at))
            case CaughtUp(modified_at, host_clock):
                self.host_clock = host_clock
                self._fold.settle(modified_at, host_clock.dated)
            case Waiting(reason):
                self._waiting = reason
            case _:
                pass

    def progress(self) -> Progress:
        """The progress now."""
        return replace(self._fold.snapshot(self._clock()), waiting=self._waiting)

    def new_lines(self) -> tuple[str, ...]:
        """The lines since the last call, the newest NEW_LINES of them."""
        lines, self._lines = self._lines[-NEW_LINES:], []
        return tuple(lines)

    def _add(self, line: Line | None) -> None:
        if line is not None:
            self._fold.add(line)
            self._lines.append(line.text)
            if len(self._lines) > 4 * NEW_LINES:
                del self._lines[:-NEW_LINES]
