"""The commands of a demo host that read and write what is in files, with the options and words of GNU's and busybox's."""

from __future__ import annotations

import asyncio
import getopt
import hashlib
import os
from collections.abc import AsyncIterator
from typing import BinaryIO

from dflash_tui.demo.commands import Call, Command

CHUNK = 1 << 18
POLL_SECONDS = 0.15
"""How often `tail -f` looks for more."""

_UNITS = {"": 1, "c": 1, "b": 512, "k": 1 << 10, "K": 1 << 10, "kB": 10**3, "M": 1 << 20, "MB": 10**6, "G": 1 << 30}


async def options(call: Call, short: str, long: list[str] | None = None) -> tuple[list[tuple[str, str]], list[str]] | None:
    """The options and operands of a call, in any order as GNU's getopt takes them; None once it has complained."""
    try:
        return getopt.gnu_getopt(list(call.argv[1:]), short, long or [])
    except getopt.GetoptError as error:
        await call.complain(f"{error.msg}; the demo's {call.argv[0]} knows only the commonest options")
        return None


def opened(call: Call, path: str) -> BinaryIO:
    """A file of the side, unbuffered, for reading; a named pipe does not block. Errors name the path as it was given."""
    handle = os.open(_real(call, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(handle, "rb", buffering=0)


async def cat(call: Call) -> int:
    """`cat [FILE | -]...`"""
    found = await options(call, "u")
    if found is None:
        return 1
    status = 0
    for path in found[1] or ["-"]:
        try:
            async for data in _chunks(call, path):
                await call.stdout.write(data)
        except (BrokenPipeError, ConnectionError):
            raise
        except OSError as error:
            await call.complain(f"{path}: {error.strerror}")
            status = 1
    return status


async def head(call: Call) -> int:
    """`head -c N [FILE]`"""
    found = await options(call, "c:", ["bytes="])
    if found is None or not found[0] or not found[0][-1][1].isdecimal():
        await call.complain("only `head -c N [FILE]` is known here")
        return 1
    left = int(found[0][-1][1])
    async for data in _chunks(call, found[1][0] if found[1] else "-"):
        await call.stdout.write(data[:left])
        left -= min(left, len(data))
        if not left:
            break
    return 0


async def tail(call: Call) -> int:
    """`tail [-c [+]N | -n [+]N] [-f | -F] FILE`. `-F` waits for a file that is not there and follows a new one."""
    found = await options(call, "c:n:fFqs:", ["bytes=", "lines=", "follow=", "retry", "quiet", "silent"])
    if found is None:
        return 1
    flags, paths = dict(found[0]), found[1]
    follow = "-f" in flags or "--follow" in flags or "-F" in flags
    by_name = "-F" in flags or flags.get("--follow") == "name"
    count = flags.get("-c", flags.get("--bytes"))
    lines = flags.get("-n", flags.get("--lines", "10"))
    if len(paths) != 1 or not (count or lines).lstrip("+-").isdecimal():
        await call.complain("expected one file and a number, as in `tail -c +1 -f FILE`")
        return 1
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
    """The file to go on with: the same one, from its start when it was cut, or (by name) the one that took its place."""
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
    skipped = lines[: max(0, int(count) - 1)] if count.startswith("+") else lines[: max(0, len(lines) - abs(int(count)))]
    return sum(map(len, skipped))


async def dd(call: Call) -> int:
    """`dd [if=] [of=] [bs=] [skip=] [seek=] [count=] [iflag=] [oflag=] [conv=] [status=]`; reads are whole blocks."""
    words = dict(word.partition("=")[::2] for word in call.argv[1:])
    unknown = words.keys() - {"if", "of", "bs", "ibs", "obs", "skip", "seek", "count", "iflag", "oflag", "conv", "status"}
    if unknown:
        await call.complain(f"unrecognized operand '{unknown.pop()}'")
        return 1
    try:
        block, skip, seek = _number(words.get("bs", "512")), _number(words.get("skip", "0")), _number(words.get("seek", "0"))
        count = _number(words["count"]) if "count" in words else None
    except ValueError as error:
        await call.complain(f"invalid number: '{error}'")
        return 1
    flags_in, flags_out, conv = (set(words.get(key, "").split(",")) for key in ("iflag", "oflag", "conv"))
    skip *= 1 if "skip_bytes" in flags_in else block
    seek *= 1 if "seek_bytes" in flags_out else block
    if count is not None and "count_bytes" not in flags_in:
        count *= block
    sink: int | None = None
    moved = 0
    try:
        if "of" in words:
            try:
                sink = _sink(call, words["of"], seek, conv, flags_out)
            except OSError as error:
                await call.complain(f"failed to open '{words['of']}': {error.strerror}")
                return 1
        try:
            async for data in _range(call, words.get("if", "-"), skip, count):
                await (call.stdout.write(data) if sink is None else asyncio.to_thread(_write_all, sink, data))
                moved += len(data)
        except (BrokenPipeError, ConnectionError):
            raise
        except OSError as error:
            await call.complain(f"failed to open '{words.get('if', '-')}': {error.strerror}")
            return 1
        if sink is not None and conv & {"fsync", "fdatasync"}:
            await asyncio.to_thread(os.fsync, sink)
    finally:
        if sink is not None:
            os.close(sink)
    if words.get("status") != "none":
        records = f"{moved // block}+{int(moved % block > 0)} records"
        await call.stderr.write(f"{records} in\n{records} out\n{moved} bytes copied\n".encode())
    return 0


def _sink(call: Call, path: str, seek: int, conv: set[str], flags: set[str]) -> int:
    mode = os.O_WRONLY | os.O_CLOEXEC | (0 if "nocreat" in conv else os.O_CREAT) | (os.O_EXCL if "excl" in conv else 0)
    handle = os.open(_real(call, path), mode | (os.O_APPEND if "append" in flags else 0), 0o666)
    if "notrunc" not in conv:
        os.ftruncate(handle, seek)
    os.lseek(handle, seek, os.SEEK_SET)
    return handle


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _number(text: str) -> int:
    digits = text.rstrip("cbkKBMG")
    unit = text[len(digits) :]
    if not digits.isdecimal() or unit not in _UNITS:
        raise ValueError(text)
    return int(digits) * _UNITS[unit]


async def sha256sum(call: Call) -> int:
    """`sha256sum [FILE | -]...`"""
    found = await options(call, "bt")
    if found is None:
        return 1
    status = 0
    for path in found[1] or ["-"]:
        try:
            digest = await _sha256(call, path)
        except OSError as error:
            await call.complain(f"{path}: {error.strerror}")
            status = 1
            continue
        shown = path.replace("\\", "\\\\").replace("\n", "\\n")
        await call.stdout.write(os.fsencode(f"{'' if shown == path else chr(92)}{digest}  {shown}\n"))
    return status


async def openssl(call: Call) -> int:
    """`openssl dgst -sha256 [-r] [FILE]...`, as OpenSSL 3 prints it."""
    words = [word for word in call.argv[2:] if word not in ("-sha256", "-r", "-hex")]
    if call.argv[1:2] != ("dgst",) or "-sha256" not in call.argv or any(word.startswith("-") for word in words):
        await call.complain("only `openssl dgst -sha256 [-r] [FILE]...` is known here")
        return 1
    status = 0
    for path in words or ["-"]:
        name = "stdin" if path == "-" else path
        try:
            digest = await _sha256(call, path)
        except OSError as error:
            await call.stderr.write(os.fsencode(f"Can't open '{path}' for reading: {error.strerror}\n"))
            status = 1
            continue
        await call.stdout.write(os.fsencode(f"{digest} *{name}\n" if "-r" in call.argv else f"SHA2-256({name})= {digest}\n"))
    return status


async def sync(call: Call) -> int:
    """`sync [-d] [-f] FILE...`; without a file, everything, as the real one."""
    found = await options(call, "df", ["data", "file-system"])
    if found is None:
        return 1
    for path in found[1]:
        try:
            handle = os.open(_real(call, path), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            await call.complain(f"error opening '{path}': {error.strerror}")
            return 1
        try:
            await asyncio.to_thread(os.fsync, handle)
        finally:
            os.close(handle)
    return 0


async def _sha256(call: Call, path: str) -> str:
    digest = hashlib.sha256()
    async for data in _chunks(call, path, 1 << 22):
        await asyncio.to_thread(digest.update, data)
    return digest.hexdigest()


async def _range(call: Call, path: str, skip: int, count: int | None) -> AsyncIterator[bytes]:
    left = count
    async for data in _chunks(call, path, skip=skip):
        if left is not None:
            data = data[:left]
            left -= len(data)
        if data:
            yield data
        if left == 0:
            return


async def _chunks(call: Call, path: str, size: int = CHUNK, skip: int = 0) -> AsyncIterator[bytes]:
    """A file's bytes from `skip` on, or standard input's for "-"; blocking reads happen in a thread."""
    if path == "-":
        while data := await call.stdin.read(size):
            if skip < len(data):
                yield data[skip:]
            skip -= min(skip, len(data))
        return
    with opened(call, path) as file:
        if skip:
            file.seek(skip)
        while data := await asyncio.to_thread(file.read, size):
            yield data


def _real(call: Call, path: str) -> str:
    return call.side.folder.resolve(path)


CONTENTS: dict[str, Command] = {
    "cat": cat,
    "dd": dd,
    "head": head,
    "openssl": openssl,
    "sha256sum": sha256sum,
    "sync": sync,
    "tail": tail,
}
