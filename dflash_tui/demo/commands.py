"""How a command line reaches one of a side's commands: there is no shell, and what would need one is refused."""

from __future__ import annotations

import asyncio
import getopt
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dflash_tui.demo.confine import Folder

REFUSED, NOT_FOUND = 126, 127

_SHELL_SYNTAX = frozenset("|&;<>()$`*?[]{}~!#\n")


class Reader(Protocol):
    """A command's standard input."""

    async def read(self, limit: int) -> bytes:
        """Up to `limit` bytes, b"" at the end."""
        ...


class Writer(Protocol):
    """A command's standard output or error."""

    async def write(self, data: bytes) -> None:
        """Write and wait until there is room again; raises BrokenPipeError when nobody reads any more."""
        ...


@dataclass(frozen=True)
class Call:
    """A command as it was called: its side, its words (the command's name first) and its three streams."""

    side: Side
    argv: tuple[str, ...]
    stdin: Reader
    stdout: Writer
    stderr: Writer

    async def complain(self, sentence: str) -> None:
        """A line on standard error, led by the command's name as the real ones do."""
        await self.stderr.write(os.fsencode(f"{self.argv[0]}: {sentence}\n"))


Command = Callable[[Call], Awaitable[int]]
"""Carries a call out and returns its exit status. An OSError becomes the usual sentence and status 1."""


@dataclass(frozen=True)
class Side:
    """A machine of the demo as its users see it: its name, its folder, and all the commands it has."""

    name: str
    folder: Folder
    commands: Mapping[str, Command]


class Misused(Exception):
    """A command was called in a way that it does not know here; the sentence says what it knows."""


@dataclass
class Answer:
    """What a short command says, at once at its end: text for standard output, lines of complaint, exit status."""

    out: str = ""
    complaints: list[str] = field(default_factory=list)
    status: int = 0

    def fail(self, sentence: str, error: OSError | None = None) -> None:
        """Add a complaint, with the system's words for an error; the status becomes 1."""
        self.complaints.append(f"{sentence}: {error.strerror}" if error else sentence)
        self.status = 1


Short = Callable[[Folder, Sequence[str]], Answer]
"""A command that needs no streams: from its folder and its arguments (its name not among them) to its answer. It may
block, and raise OSError and Misused."""


def short(answering: Short) -> Command:
    """The command that answers so, in a thread."""

    async def command(call: Call) -> int:
        answer = await asyncio.to_thread(answering, call.side.folder, call.argv[1:])
        for sentence in answer.complaints:
            await call.complain(sentence)
        await call.stdout.write(os.fsencode(answer.out))
        return answer.status

    return command


def options(words: Sequence[str], flags: str, names: Sequence[str] = ()) -> tuple[dict[str, str], list[str]]:
    """The options (later ones win) and operands among a command's arguments, in any order as GNU's getopt takes them.

    `flags` and `names` as for `getopt`. Raises Misused.
    """
    try:
        found, operands = getopt.gnu_getopt(list(words), flags, list(names))
    except getopt.GetoptError as error:
        raise Misused(f"{error.msg}; only the commonest options are known here") from error
    return dict(found), operands


async def run_line(side: Side, line: str, stdin: Reader, stdout: Writer, stderr: Writer) -> int:
    """Run a command line as a login shell would if it knew nothing but words and quotes; the exit status."""
    syntax = shell_syntax(line)
    if syntax:
        await stderr.write(
            f"{side.name}: {syntax!r} is shell syntax, and the demo's hosts have no shell: send a command and its "
            "arguments, quoted\n".encode()
        )
        return REFUSED
    try:
        argv = tuple(shlex.split(line))
    except ValueError as error:
        await stderr.write(f"{side.name}: the command line can't be read ({error})\n".encode())
        return REFUSED
    if not argv:
        return 0
    if argv[0] not in side.commands:
        known = ", ".join(sorted(side.commands))
        await stderr.write(f"{side.name}: {argv[0]}: command not found (the demo's host has {known})\n".encode())
        return NOT_FOUND
    return await run(Call(side, argv, stdin, stdout, stderr))


async def run(call: Call) -> int:
    """Carry out a call of a command that the side has."""
    try:
        return await call.side.commands[call.argv[0]](call)
    except (BrokenPipeError, ConnectionError):
        return 128 + 13  # SIGPIPE, as a real command would end whose reader is gone
    except Misused as error:
        await call.complain(str(error))
        return 1
    except OSError as error:
        await call.complain(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error))
        return 1


def shell_syntax(line: str) -> str:
    """The first character that only a shell could give a meaning to; "" when the line is words and quotes."""
    quote = ""
    escaped = False
    for character in line:
        if escaped:
            escaped = False
        elif quote == "'":
            quote = "" if character == "'" else quote
        elif character == "\\":
            escaped = True
        elif quote == '"':
            if character in "$`":
                return character
            quote = "" if character == '"' else quote
        elif character in "'\"":
            quote = character
        elif character in _SHELL_SYNTAX:
            return character
    return ""
