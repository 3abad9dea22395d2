"""Bytes through this process: source → here → destination, proven on the way, never more than a few MiB in memory."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
from collections import deque
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dflash_tui.checkpoints.segments import Late, Range, clipped
from dflash_tui.hosts.base import CommandFailed, Completed, FileMissing, HostUnreachable, Process, ReadShort
from dflash_tui.hosts.running import together
from dflash_tui.transfer.emission import Emission, emission
from dflash_tui.transfer.engine import Leg, Passed, Route
from dflash_tui.transfer.errors import NoSpace, SourceChanged, TransferCorrupt, TransferError
from dflash_tui.transfer.in_flight import Done, InFlight, Wrong, built
from dflash_tui.transfer.pace import pieces
from dflash_tui.transfer.writing import BUSY, free, writing

_T = TypeVar("_T")

_STALL_SECONDS = 120.0
_READ = 1 << 20
_HELD = 2 << 20
"""Bytes that wait between two of reading, hashing and writing."""
_BATCH = 512 << 10
_NAP = 0.002
"""A task or a thread is worth waking for half a MiB, or for what has come a moment later."""
_FED = 256 << 10
_FREEING = (0.0, 0.5, 1.0, 2.0)
_FREE_SECONDS = 60.0


class RelayEngine:
    """Carries legs by one command at the source and one at the destination."""

    route: Route = "relay"

    async def carry(self, leg: Leg) -> Passed:
        """See `Engine.carry`. A writer that a broken connection left behind is ended first."""
        for pause in _FREEING:
            carrying = _Carrying(leg)
            try:
                return await carrying.carry()
            except _Busy:
                leg.count(-carrying.read, -carrying.written)
                await asyncio.sleep(pause)
                await leg.destination.run(free(leg.part), timeout=_FREE_SECONDS, check=False)
        raise TransferError(
            f"{leg.destination.name}:{leg.part} is held open by another program that can't be ended; "
            "is it being fetched by another user?"
        )


class _Busy(Exception):
    """Another writer has the part open."""


class _Carrying:
    """One attempt at a leg: three tasks (reading, hashing, writing) and what waits between them."""

    def __init__(self, leg: Leg) -> None:
        self.leg = leg
        self.read = self.written = 0
        segments = leg.output.segments
        self._late = segments[-1] if segments and isinstance(segments[-1], Late) else None
        self._late_at = leg.size - (self._late.nbytes if self._late else 0)
        self._until = max(leg.start, min(leg.stop, self._late_at))
        """Where the bytes of the source end."""
        self._sums = InFlight(leg.output, leg.start, leg.stop)
        self._arrived = _Belt()
        self._summed = _Belt()
        self._done: deque[Done] = deque()
        self._from = f"{leg.source.name}:{posixpath.join(leg.folder, *leg.output.sources[:1])}"
        self._there = f"{leg.destination.name}:{leg.part}"

    async def carry(self) -> Passed:
        with ThreadPoolExecutor(1, "dflash-hash") as thread:
            # Both ends are opened at once: each needs some round trips before the first byte.
            await together(self._from_source(), self._sum(thread), self._to_destination())
        return Passed(self._sums.crcs)

    async def _from_source(self) -> None:
        leg = self.leg
        if self._until > leg.start:
            wanted = emission(leg.folder, clipped(leg.output.segments, leg.start, self._until))
            async with leg.source.stream(wanted.argv, stdin=True) as out:
                await together(self._ask(out, wanted), self._take(out))
        self._arrived.end()

    async def _to_destination(self) -> None:
        leg = self.leg
        async with leg.destination.stream(writing(leg.part, leg.start, leg.size), stdin=True) as into:
            await self._give(into)

    async def _ask(self, out: Process, wanted: Emission) -> None:
        # The shell reads its program while the first bytes already come, and no further than it has got: a program that
        # no buffer holds is fed as slowly as those are let pass. What stands still is noticed where they are read.
        with contextlib.suppress(CommandFailed):
            for at in range(0, len(wanted.stdin), _FED):
                await out.write(wanted.stdin[at : at + _FED])
            await out.close_stdin()

    async def _take(self, out: Process) -> None:
        expected = self._until - self.leg.start
        while data := await _unless_stalled(out.read(_READ), self._from):
            if self.read + len(data) > expected:
                raise SourceChanged(
                    f"{self._from} gave more than the {expected:,} bytes that were asked for; plan again"
                )
            for piece in pieces(self.leg.pace, data):
                await self.leg.pace(len(piece))
                self.read += len(piece)
                self.leg.count(len(piece), 0)
                await self._arrived.put(piece)
            if len(data) < _BATCH:
                await asyncio.sleep(_NAP)
        judge_source(self._from, await _unless_stalled(out.wait(), self._from))
        if self.read != expected:
            raise ReadShort(f"{self._from} ended after {self.read:,} of {expected:,} bytes")

    async def _sum(self, thread: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        try:
            while blocks := await self._arrived.take(_BATCH):
                self._done += await loop.run_in_executor(thread, self._sums.update, blocks)
                for block in blocks:
                    await self._summed.put(block)
            if self._late is not None and self.leg.stop > self._late_at:
                await self._add_late(self._late, thread)
        except Wrong as wrong:
            raise await self._explained(wrong) from None
        self._summed.end()

    async def _add_late(self, late: Late, thread: ThreadPoolExecutor) -> None:
        data = built(self.leg.output, late, {**self.leg.crcs, **self._sums.crcs}, self._from)
        data = data[max(0, self.leg.start - self._late_at) : self.leg.stop - self._late_at]
        self.read += len(data)
        self.leg.count(len(data), 0)
        self._done += await asyncio.get_running_loop().run_in_executor(thread, self._sums.update, [data])
        await self._summed.put(data)

    async def _give(self, into: Process) -> None:
        try:
            while blocks := await self._summed.take(1):
                for block in blocks:
                    await _unless_stalled(into.write(block), self._there)
                    self.written += len(block)
                    self.leg.count(0, len(block))
                self._tell(self.leg.start + self.written - 1)
            await into.close_stdin()
        except CommandFailed:
            # The writer ended early; its own words say why.
            self._judge(await into.wait())
            raise
        self._judge(await _unless_stalled(into.wait(), self._there))
        self._tell(self.leg.stop)

    def _tell(self, until: int) -> None:
        """Chunks that were handed on up to here; the last one once the writer has ended well."""
        while self._done and self._done[0].stop <= until:
            done = self._done.popleft()
            self.leg.arrived(done.number, done.sha256)

    def _judge(self, done: Completed) -> None:
        if done.status == BUSY:
            raise _Busy
        judge_destination(self._there, done)

    async def _explained(self, wrong: Wrong) -> Exception:
        """A range that is not what its CRC-32 says: the file shrank below it, or its bytes are wrong."""
        segment = self.leg.output.segments[wrong.index]
        if not isinstance(segment, Range):
            return TransferError(
                f"{self.leg.source.name}: its shell did not print the {segment.nbytes:,} bytes that it was given as "
                "they are; is its `printf` one of POSIX?"
            )
        path = posixpath.join(self.leg.folder, segment.file)
        where = f"{self.leg.source.name}:{path}"
        try:
            size = (await self.leg.source.stat(path)).size
        except FileMissing:
            return SourceChanged(f"{where} is gone since the transfer was planned")
        if size < segment.offset + segment.nbytes:
            return SourceChanged(f"{where} has shrunk to {size:,} bytes since the transfer was planned; plan again")
        return TransferCorrupt(
            f"{where}: the {segment.nbytes:,} bytes at offset {segment.offset:,} (byte {wrong.start:,} of "
            f"{self.leg.output.name}) arrived with CRC-32 {wrong.found:08x}, where the file itself states "
            f"{segment.crc:08x}"
        )


class _Belt:
    """Blocks on their way from one task to the next, few at a time."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._held = 0
        self._ended = False
        self._some, self._room = asyncio.Event(), asyncio.Event()

    async def put(self, block: bytes) -> None:
        """Lay a block down once there is room."""
        while self._held >= _HELD:
            self._room.clear()
            await self._room.wait()
        self._blocks.append(block)
        self._held += len(block)
        self._some.set()

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._some.set()

    async def take(self, worth: int) -> list[bytes]:
        """Everything that lies there; a moment is given to what is less than `worth` bytes. [] at the end."""
        while not self._blocks and not self._ended:
            self._some.clear()
            await self._some.wait()
        if self._held < worth and not self._ended:
            await asyncio.sleep(_NAP)
        blocks, self._blocks, self._held = self._blocks, [], 0
        self._room.set()
        return blocks


async def _unless_stalled(step: Awaitable[_T], where: str) -> _T:
    try:
        async with asyncio.timeout(_STALL_SECONDS):
            return await step
    except TimeoutError:
        raise HostUnreachable(f"{where}: no byte moved for {_STALL_SECONDS:.0f} s") from None


def judge_source(where: str, done: Completed) -> None:
    """Raise for a reading command that did not end well: HostUnreachable, SourceChanged, TransferError."""
    if done.status > 128:
        raise HostUnreachable(f"{where}: reading was ended by signal {done.status - 128}")
    if done.status != 0:
        said = _said(done)
        if "No such file" in said:
            raise SourceChanged(f"{where} is gone since the transfer was planned: {said}")
        raise TransferError(f"{where} can't be read: {said}")


def judge_destination(where: str, done: Completed) -> None:
    """Raise for a writing command that did not end well: HostUnreachable, NoSpace, TransferError."""
    if done.status > 128:
        raise HostUnreachable(f"{where}: writing was ended by signal {done.status - 128}")
    if done.status != 0:
        said = _said(done)
        if "No space left" in done.stderr or "quota" in done.stderr.lower():
            raise NoSpace(f"{where}: the disk or quota is full ({said}); remove files there and try again")
        raise TransferError(f"{where} can't be written: {said}")


def _said(done: Completed) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    lines = [line for line in lines if " records " not in line and " copied, " not in line]  # dd's account of itself
    return lines[0] if lines else f"status {done.status}"
