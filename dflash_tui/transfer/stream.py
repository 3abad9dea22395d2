"""One file's bytes: source → here → destination, hashed on the way, never more than a few MiB in memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dflash_tui.hosts.base import CommandFailed, Completed, Host, HostUnreachable, Process, ReadShort
from dflash_tui.hosts.running import together
from dflash_tui.transfer.errors import NoSpace, SourceChanged, TransferCut, TransferError
from dflash_tui.transfer.progress import Meter

BLOCK = 1 << 20
"""Positions to continue from are whole blocks: `dd` seeks and skips by them everywhere."""

_T = TypeVar("_T")

_STALL_SECONDS = 120.0
_QUEUED = 8
_MARK = 64 << 20


@dataclass
class Running:
    """A hash that grows with the stream and remembers itself every 64 MiB, so that a cut costs no more than that.
    `whole` is False once a piece was continued whose bytes never passed here."""

    digest: Any = field(default_factory=hashlib.sha256)
    at: int = 0
    whole: bool = True
    marks: list[tuple[int, Any]] = field(default_factory=list)

    def update(self, data: bytes) -> None:
        """Take in the next bytes of the stream."""
        while data:
            room = _MARK - self.at % _MARK
            self.digest.update(data[:room])
            self.at += min(room, len(data))
            data = data[room:]
            if self.at % _MARK == 0 and self.whole:
                self.marks.append((self.at, self.digest.copy()))

    def back_to(self, offset: int) -> int:
        """Go back to the last mark that is not beyond `offset`, and tell where that is: 0 without one."""
        self.marks = [mark for mark in self.marks if mark[0] <= offset]
        self.at, digest = self.marks[-1] if self.marks else (0, hashlib.sha256())
        self.digest = digest.copy()
        self.whole = True
        return self.at

    def continue_unseen(self, offset: int) -> None:
        """Go on from a piece that is proven but never passed here."""
        self.at, self.marks, self.whole = offset, [], False

    @property
    def hex(self) -> str:
        """The SHA-256 of everything that passed, "" if not everything did."""
        return self.digest.hexdigest() if self.whole else ""


async def pump(
    source: Host, path: str, destination: Host, part: str, size: int, running: Running, meter: Meter
) -> None:
    """Stream a file from byte `running.at` (whole blocks) to its end into `part`, which is cut there first. Raises
    ReadShort and HostUnreachable for a cut, SourceChanged for a file that grew, NoSpace, TransferError."""
    queue: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED)
    skip = running.at // BLOCK
    where, there = f"{source.name}:{path}", f"{destination.name}:{part}"
    reading = ["dd", f"if={path}", f"bs={BLOCK}", f"skip={skip}"]
    writing = ["dd", f"of={part}", f"bs={BLOCK}", f"seek={skip}"]

    async def take(process: Process) -> None:
        while data := await _unless_stalled(process.read(BLOCK), where):
            running.update(data)
            if running.at > size:
                raise SourceChanged(f"{where} grew beyond its {size:,} bytes: it is still being written; plan again")
            meter.add(read=len(data))
            await queue.put(data)
        _judge_source(where, await _unless_stalled(process.wait(), where))
        if running.at != size:
            raise ReadShort(f"{where} ended at {running.at:,} of {size:,} bytes")
        await queue.put(b"")

    async def give(process: Process) -> None:
        while data := await queue.get():
            await _unless_stalled(process.write(data), there)
            meter.add(written=len(data))
        await process.close_stdin()
        _judge_destination(there, await _unless_stalled(process.wait(), there))

    try:
        async with destination.stream(writing, stdin=True) as into, source.stream(reading) as out:
            await together(take(out), give(into))
    except CommandFailed as error:
        # The writing `dd` ended early; its words say why.
        _judge_destination(there, Completed(error.status, b"", error.stderr))
        raise


async def _unless_stalled(step: Awaitable[_T], where: str) -> _T:
    try:
        async with asyncio.timeout(_STALL_SECONDS):
            return await step
    except TimeoutError:
        raise TransferCut(f"{where}: no byte moved for {_STALL_SECONDS:.0f} s") from None


def _judge_source(where: str, done: Completed) -> None:
    if done.status > 128:
        raise HostUnreachable(f"{where}: reading was ended by signal {done.status - 128}")
    if done.status != 0:
        raise TransferError(f"{where} can't be read: {_last_line(done)}")


def _judge_destination(where: str, done: Completed) -> None:
    if done.status > 128:
        raise HostUnreachable(f"{where}: writing was ended by signal {done.status - 128}")
    if done.status != 0:
        if "No space left" in done.stderr or "quota" in done.stderr.lower():
            raise NoSpace(f"{where}: the disk or quota is full ({_last_line(done)}); remove files there and try again")
        raise TransferError(f"{where} can't be written: {_last_line(done)}")


def _last_line(done: Completed) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip() and " records " not in line]
    return lines[0] if lines else f"status {done.status}"
