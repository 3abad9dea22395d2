"""`tail` of a demo host: the end of a file, and what is appended to it for as long as someone listens."""

from __future__ import annotations

import asyncio
import os
from typing import BinaryIO

from dflash_tui.demo.commands import Call, Misused, options
from dflash_tui.demo.contents import CHUNK, opened

POLL_SECONDS = 0.15
"""How often a followed file is looked at."""


async def tail(call: Call) -> int:
    """`tail [-c [+]N | -n [+]N] [-f | -F] FILE`. `-F` waits for a file that is not there and follows a new one."""
    flags, paths = options(call.argv[1:], "c:n:fFqs:", ["bytes=", "lines=", "follow=", "retry", "quiet", "silent"])
    follow = "-f" in flags or "--follow" in flags or "-F" in flags
    by_name = "-F" in flags or flags.get("--follow") == "name"
    count = flags.get("-c", flags.get("--bytes"))
    lines = flags.get("-n", flags.get("--lines", "10"))
    if len(paths) != 1 or not (count or lines).lstrip("+-").isdecimal():
        raise Misused("expected one file and a number, as in `tail -c +1 -f FILE`")
    file = await _tail_open(call, paths[0], by_name)
    if file is None:
        return 1
    try:
        file.seek(_from_bytes(file, count) if count else await asyncio.to_thread(_from_lines, file, lines))
        while True:
            while data := await asyncio.to_thread(file.read, CHUNK):
                await call.stdout.write(data)
            if not follow:
                return 0
            await asyncio.sleep(POLL_SECONDS)
            file = await _followed(call, file, paths[0], by_name)
    finally:
        file.close()


async def _tail_open(call: Call, path: str, wait: bool) -> BinaryIO | None:
    complained = False
    while True:
        try:
            return opened(call, path)
        except OSError as error:
            if not complained:
                await call.complain(f"cannot open '{path}' for reading: {error.strerror}")
            complained = True
            if not (wait and isinstance(error, FileNotFoundError)):
                return None
        await asyncio.sleep(POLL_SECONDS)


async def _followed(call: Call, file: BinaryIO, path: str, by_name: bool) -> BinaryIO:
    """The file to go on with: the same, from its start when it was cut, or (by name) the one that took its place."""
    mine = os.fstat(file.fileno())
    if mine.st_size < file.tell():
        await call.complain(f"{path}: file truncated")
        file.seek(0)
    if by_name:
        try:
            other = opened(call, path)
        except OSError:
            return file
        theirs = os.fstat(other.fileno())
        if (theirs.st_dev, theirs.st_ino) == (mine.st_dev, mine.st_ino):
            other.close()
        else:
            # What was written to the old file just before it was replaced must not be lost.
            while data := file.read(CHUNK):
                await call.stdout.write(data)
            await call.complain(f"'{path}' has been replaced;  following new file")
            file.close()
            return other
    return file


def _from_bytes(file: BinaryIO, count: str) -> int:
    size = os.fstat(file.fileno()).st_size
    return max(0, int(count) - 1) if count.startswith("+") else max(0, size - abs(int(count)))


def _from_lines(file: BinaryIO, count: str) -> int:
    data = file.read()
    lines = data.splitlines(keepends=True)
    skipped = int(count) - 1 if count.startswith("+") else len(lines) - abs(int(count))
    return sum(map(len, lines[: max(0, skipped)]))
