"""Running a command to its end over any host's byte streams: feed, collect, judge the status."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from dflash_tui.hosts.base import CommandFailed, Completed, HostError, Process

STDERR_TAIL = 64 << 10
"""Bytes of stderr that are kept: the end, where the reason is."""

_SHOWN = 160
_ANNOUNCED = re.compile(rb"^dflash-pid:(\d+)\n", re.MULTILINE)


def command_text(argv: Sequence[str]) -> str:
    """argv as it would be typed, cut to a length that fits in a sentence."""
    text = shlex.join(argv)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def command_failed(name: str, argv: Sequence[str], done: Completed) -> CommandFailed:
    """The error for a command that ended with a status other than 0, with the last line that it complained with."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    said = f": {lines[-1]}" if lines else ", and said nothing on stderr"
    sentence = f"{name}: `{command_text(argv)}` ended with status {done.status}{said}"
    return CommandFailed(sentence, done.status, done.stderr)


async def run_to_end(
    name: str,
    argv: Sequence[str],
    opened: AbstractAsyncContextManager[Process],
    *,
    stdin: bytes,
    timeout: float,
    check: bool,
) -> Completed:
    """Run an opened command to its end within `timeout` seconds, starting included. Raises HostError when it takes
    longer (the command is then killed), CommandFailed with `check` and a status other than 0."""
    chunks: list[bytes] = []

    async def feed(process: Process) -> None:
        # A command may end without reading all of its input; its status says whether that was well.
        with contextlib.suppress(CommandFailed):
            for start in range(0, len(stdin), 1 << 18):
                await process.write(stdin[start : start + (1 << 18)])
            await process.close_stdin()

    async def collect(process: Process) -> None:
        while data := await process.read():
            chunks.append(data)

    try:
        async with asyncio.timeout(timeout), opened as process:
            if stdin:
                await together(feed(process), collect(process))
            else:
                await collect(process)
            ended = await process.wait()
    except TimeoutError:
        raise HostError(
            f"{name}: `{command_text(argv)}` did not end within {timeout:g} s and was stopped; "
            "the host or its disk may be overloaded"
        ) from None
    done = Completed(ended.status, b"".join(chunks), ended.stderr)
    if check and done.status != 0:
        raise command_failed(name, argv, done)
    return done


async def together(*parts: Awaitable[None]) -> None:
    """Await all; when one fails the others are cancelled and awaited, and the first error is raised."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def announcing(argv: Sequence[str]) -> list[str]:
    """argv as a command that first tells its process id on stderr, which `Tail` takes out again. sshd has no other way
    to end a command for root: it refuses signals, and closing a channel doesn't end what is silent."""
    return ["sh", "-c", 'echo "dflash-pid:$$" >&2; exec "$@"', "dflash", *argv]


def ending(pid: int) -> list[str]:
    """The command that kills an announced one with its process group, or alone where it leads no group."""
    return ["sh", "-c", 'kill -9 "-$1" || kill -9 "$1"', "dflash", str(pid)]


class Tail:
    """The last `STDERR_TAIL` bytes of a stream, collected by a task that lives as long as the process."""

    def __init__(self, read: Callable[[int], Awaitable[bytes]], broken: tuple[type[Exception], ...]) -> None:
        """`broken`: the errors of `read` that end the collecting, because the stream is gone."""
        self._read = read
        self._broken = broken
        self._data = b""
        self._pid: int | None = None
        self._announced = asyncio.Event()
        self._task = asyncio.create_task(self._collect())

    async def _collect(self) -> None:
        with contextlib.suppress(*self._broken):
            while data := await self._read(1 << 15):
                self._data += data
                if self._pid is None and (match := _ANNOUNCED.search(self._data)):
                    self._pid = int(match[1])
                    self._announced.set()
                    self._data = self._data[: match.start()] + self._data[match.end() :]
                self._data = self._data[-STDERR_TAIL:]

    async def pid(self, patience: float) -> int | None:
        """The process id that an `announcing` command tells, or None when it has not within `patience` seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._announced.wait(), patience)
        return self._pid

    async def text(self, patience: float) -> str:
        """What came, once the stream has ended, or after `patience` seconds (a child may keep it open)."""
        await asyncio.wait([self._task], timeout=patience)
        return self._data.decode("utf-8", "replace")

    async def close(self) -> None:
        """Stop collecting."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
