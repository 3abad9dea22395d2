"""The engine whose bytes never enter this process: two system `ssh`, joined by pipes of this machine.

One Python core carries what a 2.5 Gbit network does; two `ssh` programs carry more than twice that, each on a core of
its own. The kernel moves pages from one program's pipe to the other's and tells how many bytes they were.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import tempfile
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import IO

from dflash_tui.hosts.base import Completed, Host, HostError, HostUnreachable, ReadShort
from dflash_tui.hosts.programs import Program, answer, started
from dflash_tui.hosts.running import announcing, ending_later, new_mark, together
from dflash_tui.transfer.emission import Emission
from dflash_tui.transfer.engine import Leg, Passed, Route
from dflash_tui.transfer.errors import SourceChanged, TransferError
from dflash_tui.transfer.pace import at_once
from dflash_tui.transfer.pipes import FarEndGone, Join
from dflash_tui.transfer.relaying import judge_destination, judge_source
from dflash_tui.transfer.token import token
from dflash_tui.transfer.unseen import (
    SSH_FAILED,
    Busy,
    check_arrived,
    cleared,
    destination_of,
    emission_of,
    free_part,
    last_words,
    source_of,
    unless_stalled,
)
from dflash_tui.transfer.writing import BUSY, writing

TRYING_SECONDS = 20.0

_STEP = 4 << 20
_LOOK = 'export LC_ALL=C; stat -c "%d %i %s %Y" "$1" 2>&1 || ls -lidn "$1" 2>&1'
_FREEING = (0.0, 0.5, 1.0, 2.0)


async def unusable(source: Host, destination: Host) -> str:
    """Why the system's `ssh` can't carry between two hosts, after trying to log in to both without any question; ""
    when it can."""
    found = await asyncio.gather(_unusable(source), _unusable(destination))
    return next((sentence for sentence in found if sentence), "")


async def _unusable(host: Host) -> str:
    command = host.system_command(["echo", "there"])
    if command is None:
        return _cannot_be_said(host)
    if host.ssh_address() is None:
        return ""
    try:
        done = await answer(command, timeout=TRYING_SECONDS)
    except HostError as error:
        return str(error)
    return "" if done.text == "there\n" else f"the system's ssh does not get to {host.name}: {last_words(done)}"


class JoinedEngine:
    """Carries legs by one `ssh` from the source and one to the destination; programs of this machine where one of them
    is here. `started_seconds` is how long the last leg took to its first byte: no part of its speed."""

    route: Route = "joined"

    def __init__(self) -> None:
        self.started_seconds = 0.0
        self._proven: set[tuple[str, str]] = set()

    async def carry(self, leg: Leg) -> Passed:
        """See `Engine.carry`. TransferError also when `ssh` can't say or reach what is meant, or would reach another
        machine than is meant."""
        began = time.monotonic()
        emission = emission_of(leg)
        if (leg.source.name, leg.destination.name) not in self._proven:
            # `ssh` reads a configuration by itself: it must be led to the same files as we are.
            await together(_prove_source(leg), _prove_destination(leg))
            self._proven.add((leg.source.name, leg.destination.name))
        for pause in _FREEING:
            carrying = _Carrying(leg, emission)
            try:
                await carrying.carry()
            except Busy:
                leg.count(-carrying.moved, -carrying.moved)
                await asyncio.sleep(pause)
                await free_part(leg)
            else:
                self.started_seconds = carrying.first_byte - began
                return Passed()
        raise TransferError(
            f"{destination_of(leg)} is held open by another program that can't be ended; is it being fetched by "
            "another user?"
        )


class _Carrying:
    """One attempt at a leg."""

    def __init__(self, leg: Leg, emission: Emission) -> None:
        self.leg, self._emission = leg, emission
        self.moved = 0
        self.first_byte = time.monotonic()
        self._marks = (new_mark(), new_mark())
        self._reading: int | None = None

    async def carry(self) -> None:
        """Raises Busy beside what `Engine.carry` does."""
        leg = self.leg
        reading = _command(leg.source, announcing(self._emission.argv, self._marks[0]))
        write = announcing(writing(leg.part, leg.start, leg.size), self._marks[1])
        try:
            await self._run(reading, _command(leg.destination, write))
        except BaseException as error:
            if not isinstance(error, Busy):
                # Their pipes have ended, which is all that most commands need; a launcher may have kept them.
                steps: list[Awaitable[object]] = [free_part(leg)]
                if self._reading is not None:
                    steps.append(_ended(leg.source, self._reading, self._marks[0]))
                await cleared(*steps)
            raise
        await check_arrived(leg)

    async def _run(self, reading: Sequence[str], write: Sequence[str]) -> None:
        async with AsyncExitStack() as stack:
            join = Join()
            stack.callback(join.close)
            script = stack.enter_context(_file(self._emission.stdin))
            into = await stack.enter_async_context(started(write, stdin=join.into, stdout=asyncio.subprocess.DEVNULL))
            out = await stack.enter_async_context(started(reading, stdin=script, stdout=join.out))
            join.begun()
            try:
                await self._move(join, out, into)
                await self._end(join, out, into)
            finally:
                self._reading = await out.announced(self._marks[0], 0)

    async def _move(self, join: Join, out: Program, into: Program) -> None:
        leg, left = self.leg, self.leg.stop - self.leg.start
        while left:
            granted = min(left, at_once(leg.pace, _STEP))
            await leg.pace(granted)
            while granted:
                try:
                    count = await unless_stalled(join.move(granted), source_of(leg))
                except FarEndGone:
                    await self._judge_writer(into)
                    raise HostUnreachable(f"{destination_of(leg)}: the writer ended early") from None
                if count == 0:
                    await self._judge_reader(out)
                    raise ReadShort(f"{source_of(leg)} ended after {self.moved:,} of {leg.stop - leg.start:,} bytes")
                if not self.moved:
                    self.first_byte = time.monotonic()
                self.moved += count
                granted, left = granted - count, left - count
                leg.count(count, count)

    async def _end(self, join: Join, out: Program, into: Program) -> None:
        join.finish()
        await self._judge_reader(out)
        if join.left():
            raise SourceChanged(f"{source_of(self.leg)} gave more bytes than were asked for; plan again")
        await self._judge_writer(into)

    async def _judge_reader(self, out: Program) -> None:
        done = await unless_stalled(out.wait(), source_of(self.leg))
        await _judge_ssh(self.leg.source, done, out, self._marks[0])
        judge_source(source_of(self.leg), done)

    async def _judge_writer(self, into: Program) -> None:
        done = await unless_stalled(into.wait(), destination_of(self.leg))
        if done.status == BUSY:
            raise Busy
        await _judge_ssh(self.leg.destination, done, into, self._marks[1])
        judge_destination(destination_of(self.leg), done)


async def _judge_ssh(host: Host, done: Completed, program: Program, mark: str) -> None:
    if done.status == SSH_FAILED:
        begun = await program.announced(mark, 0) is not None
        what = "lost its connection" if begun else "could not begin"
        raise HostUnreachable(f"{host.name}: the system's ssh {what}: {last_words(done)}")


async def _ended(host: Host, pid: int, mark: str) -> None:
    await host.run(ending_later(pid, mark), check=False)


async def _prove_destination(leg: Leg) -> None:
    host = leg.destination
    if host.ssh_address() is None:
        return
    async with token(host, posixpath.dirname(leg.part)) as there:
        done = await _answer(_command(host, there.reading))
    if done.status != 0 or done.text != there.text:
        raise TransferError(
            f"the system's ssh does not find {host.name}'s files; does it get to another machine? ({last_words(done)})"
        )


async def _prove_source(leg: Leg) -> None:
    host = leg.source
    if host.ssh_address() is None or not leg.output.sources:
        return
    look = ["sh", "-c", _LOOK, "dflash", posixpath.join(leg.folder, leg.output.sources[0])]
    known = await host.run(look)
    done = await _answer(_command(host, look))
    if done.status != 0 or done.stdout != known.stdout:
        raise TransferError(
            f"the system's ssh does not find {source_of(leg)} as it is; does it get to another machine? "
            f"({last_words(done)})"
        )


async def _answer(command: Sequence[str]) -> Completed:
    try:
        return await answer(command, timeout=TRYING_SECONDS)
    except HostError as error:
        raise TransferError(str(error)) from error


def _command(host: Host, argv: Sequence[str]) -> list[str]:
    command = host.system_command(argv, stdin=True)
    if command is None:
        raise TransferError(_cannot_be_said(host))
    return command


def _cannot_be_said(host: Host) -> str:
    return f"{host.name} can't be reached by the system's ssh: there is none, or the way there can't be said to it"


@contextlib.contextmanager
def _file(data: bytes) -> Iterator[IO[bytes]]:
    """For a program's stdin: a pipe would have to be fed."""
    with tempfile.TemporaryFile(prefix="dflash-") as file:
        file.write(data)
        file.seek(0)
        yield file
