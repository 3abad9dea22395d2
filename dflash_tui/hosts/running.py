"""Running a command to its end over any host's byte streams: feed, collect, judge the status."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shlex
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from dflash_tui.hosts.base import CommandFailed, Completed, HostError, Process

STDERR_TAIL = 64 << 10
"""Bytes of stderr that are kept: the end, where the reason is."""

_SHOWN = 160
_DISPUTED = frozenset("\n!\\")
_ANNOUNCED = re.compile(rb"^dflash-pid:([0-9a-f]+):(\d+)\n", re.MULTILINE)


def command_text(argv: Sequence[str]) -> str:
    """argv as it would be typed, cut to a length that fits in a sentence. A shell's program of several lines says
    nothing there: its words do."""
    words = [*argv[:2], "…", *argv[3:]] if list(argv[:2]) == ["sh", "-c"] and "\n" in argv[2] else argv
    text = shlex.join(words).replace("'…'", "…")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def shell_line(argv: Sequence[str]) -> bytes:
    """argv as one line that any login shell reads alike. sh, csh and fish agree on a quoted text only as long as it has
    no newline, `!` or backslash: those are sent as octal escapes, which a shell of POSIX undoes on the other side.
    Bytes, because a name on a host need not be UTF-8."""
    line = shlex.join(argv)
    if not _DISPUTED.intersection(line):
        return line.encode("utf-8", "surrogateescape")
    plain = "".join(f"\\0{ord(char):03o}" if char in _DISPUTED or char == "'" else char for char in line)
    return f"""sh -c 'eval "exec $(printf %b "$1")"' sh '{plain}'""".encode("utf-8", "surrogateescape")


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
    """Await all; when one fails the others are cancelled and awaited, and the first error is raised. Where this one is
    cancelled that is what is raised, whatever a part makes of it."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    own = asyncio.current_task()
    asked = own.cancelling() if own is not None else 0
    try:
        await asyncio.gather(*tasks)
    except Exception as error:
        if own is not None and own.cancelling() > asked:
            raise asyncio.CancelledError from error
        raise
    finally:
        # Where this one is cancelled, `gather` has cancelled them already: once more would meet them clearing away.
        if own is None or own.cancelling() == asked:
            for task in tasks:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def goes_on() -> bool:
    """Whether the current task was not told to end. One that goes on after the errors of a host asks it: a line that
    breaks because it is let go of hides that it was cancelled."""
    own = asyncio.current_task()
    return own is not None and not own.cancelling()


def new_mark() -> str:
    """A word that no other command carries, by which an announcement is known."""
    return secrets.token_hex(6)


def announcing(argv: Sequence[str], mark: str) -> list[str]:
    """argv as a command that first tells its process id on stderr under `mark`, which `Tail` takes out again, leads a
    process group of its own, and carries the mark in its environment. There is no other way to end what sshd runs for
    root (it refuses signals) or what outlives its launcher in a container: closing a channel ends nothing silent."""
    script = (
        'echo "dflash-pid:$1:$$" >&2; DFLASH_MARK=$1; export DFLASH_MARK; shift; '
        # The fifth word of its stat is its group. Where it leads one already, setsid would fork and not wait.
        'read -r pid name state parent group rest 2>/dev/null </proc/$$/stat; case $group in ""|$$) exec "$@" ;; esac; '
        'command -v setsid >/dev/null && exec setsid "$@"; exec "$@"'
    )
    return ["sh", "-c", script, "dflash", mark, *argv]


def ending(pid: int) -> list[str]:
    """The command that kills an announced one with its process group, or with its children where it leads none."""
    script = (
        'below() { for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do below "$child"; done; '
        'kill -9 "$1"; }; kill -9 "-$1" 2>/dev/null || below "$1"'
    )
    return ["sh", "-c", script, "dflash", str(pid)]


def ending_later(pid: int, mark: str) -> list[str]:
    """`ending` for a command that was lost from sight: only if the process still carries its mark."""
    _, _, script, *words = ending(pid)
    seen = 'case "$(cat "/proc/$1/environ" 2>/dev/null)" in *"DFLASH_MARK=$2"*) ;; *) exit 0 ;; esac; '
    return ["sh", "-c", seen + script, *words, mark]


class Tail:
    """The last `STDERR_TAIL` bytes of a stream, collected by a task that lives as long as the process."""

    def __init__(self, read: Callable[[int], Awaitable[bytes]], broken: tuple[type[Exception], ...]) -> None:
        """`broken`: the errors of `read` that end the collecting, because the stream is gone."""
        self._read = read
        self._broken = broken
        self._data = b""
        self._pids: dict[str, int] = {}
        self._announced = asyncio.Event()
        self._task = asyncio.create_task(self._collect())

    async def _collect(self) -> None:
        with contextlib.suppress(*self._broken):
            while data := await self._read(1 << 15):
                self._data += data
                # Each layer of a chain (sshd, a launcher, a launcher in it) announces the command that it runs.
                while match := _ANNOUNCED.search(self._data):
                    self._pids[match[1].decode()] = int(match[2])
                    self._announced.set()
                    self._data = self._data[: match.start()] + self._data[match.end() :]
                self._data = self._data[-STDERR_TAIL:]

    async def pid(self, mark: str, patience: float) -> int | None:
        """The process id that an `announcing` command tells, or None when the stream ends or `patience` seconds pass
        without it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while mark not in self._pids and not self._task.done():
                    self._announced.clear()
                    waiting = asyncio.ensure_future(self._announced.wait())
                    await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
                    waiting.cancel()
        return self._pids.get(mark)

    async def text(self, patience: float) -> str:
        """What came, once the stream has ended, or after `patience` seconds (a child may keep it open)."""
        await asyncio.wait([self._task], timeout=patience)
        return self._data.decode("utf-8", "replace")

    async def close(self) -> None:
        """Stop collecting."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
