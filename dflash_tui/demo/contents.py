"""The commands of a demo host that read and write files' contents, with GNU's and busybox's options and words."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from dflash_tui.demo.commands import Call, Command, Misused, Reader, options

CHUNK = 1 << 18
_HASHED = 1 << 22

_UNITS = {"": 1, "c": 1, "b": 512, "k": 1 << 10, "K": 1 << 10, "kB": 10**3, "M": 1 << 20, "MB": 10**6, "G": 1 << 30}


def opened(call: Call, path: str) -> BinaryIO:
    """A file of the side, unbuffered, for reading; a named pipe does not block."""
    handle = os.open(_real(call, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(handle, "rb", buffering=0)


async def cat(call: Call) -> int:
    """`cat [FILE | -]...`"""
    _, paths = options(call.argv[1:], "u")
    status = 0
    for path in paths or ["-"]:
        try:
            async with _source(call, path) as source:
                while data := await source.read(CHUNK):
                    await call.stdout.write(data)
        except (BrokenPipeError, ConnectionError):
            raise
        except OSError as error:
            await call.complain(f"{path}: {error.strerror}")
            status = 1
    return status


async def head(call: Call) -> int:
    """`head -c N [FILE]`"""
    flags, paths = options(call.argv[1:], "c:", ["bytes="])
    count = flags.get("-c", flags.get("--bytes", ""))
    if not count.isdecimal() or len(paths) > 1:
        raise Misused("only `head -c N [FILE]` is known here")
    left = int(count)
    async with _source(call, paths[0] if paths else "-") as source:
        while left and (data := await source.read(min(left, CHUNK))):
            await call.stdout.write(data)
            left -= len(data)
    return 0


@dataclass(frozen=True)
class _Copying:
    """What a `dd` was told: positions and counts in bytes, `count` None without a limit."""

    source: str
    sink: str | None
    block: int
    skip: int
    seek: int
    count: int | None
    output_flags: frozenset[str]
    conversions: frozenset[str]
    quiet: bool


_OPERANDS = {"if", "of", "bs", "skip", "seek", "count", "iflag", "oflag", "conv", "status"}


def _copying(words: Mapping[str, str]) -> _Copying:
    unknown = words.keys() - _OPERANDS
    if unknown:
        raise Misused(f"unrecognized operand '{unknown.pop()}'")
    into, out, conversions = (frozenset(words.get(key, "").split(",")) for key in ("iflag", "oflag", "conv"))
    block = _number(words.get("bs", "512"))
    count = _number(words["count"]) if "count" in words else None
    return _Copying(
        source=words.get("if", "-"),
        sink=words.get("of"),
        block=block,
        skip=_number(words.get("skip", "0")) * (1 if "skip_bytes" in into else block),
        seek=_number(words.get("seek", "0")) * (1 if "seek_bytes" in out else block),
        count=count if count is None or "count_bytes" in into else count * block,
        output_flags=out,
        conversions=conversions,
        quiet=words.get("status") == "none",
    )


async def dd(call: Call) -> int:
    """`dd [if=] [of=] [bs=] [skip=] [seek=] [count=] [iflag=] [oflag=] [conv=] [status=]`; reads are whole blocks."""
    told = _copying(dict(word.partition("=")[::2] for word in call.argv[1:]))
    sink: int | None = None
    moved = 0
    try:
        if told.sink is not None:
            try:
                sink = _sink(call, told.sink, told)
            except OSError as error:
                await call.complain(f"failed to open '{told.sink}': {error.strerror}")
                return 1
        try:
            async with _source(call, told.source, told.skip) as source:
                while moved != told.count and (data := await source.read(_limit(told.count, moved))):
                    await (call.stdout.write(data) if sink is None else asyncio.to_thread(_write_all, sink, data))
                    moved += len(data)
        except (BrokenPipeError, ConnectionError):
            raise
        except OSError as error:
            await call.complain(f"failed to open '{told.source}': {error.strerror}")
            return 1
        if sink is not None and told.conversions & {"fsync", "fdatasync"}:
            await asyncio.to_thread(os.fsync, sink)
    finally:
        if sink is not None:
            os.close(sink)
    if not told.quiet:
        records = f"{moved // told.block}+{int(moved % told.block > 0)} records"
        await call.stderr.write(f"{records} in\n{records} out\n{moved} bytes copied\n".encode())
    return 0


def _sink(call: Call, path: str, told: _Copying) -> int:
    mode = os.O_WRONLY | os.O_CLOEXEC
    mode |= 0 if "nocreat" in told.conversions else os.O_CREAT
    mode |= os.O_EXCL if "excl" in told.conversions else 0
    mode |= os.O_APPEND if "append" in told.output_flags else 0
    handle = os.open(_real(call, path), mode, 0o666)
    if "notrunc" not in told.conversions:
        os.ftruncate(handle, told.seek)
    os.lseek(handle, told.seek, os.SEEK_SET)
    return handle


def _limit(count: int | None, moved: int) -> int:
    return CHUNK if count is None else min(CHUNK, count - moved)


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _number(text: str) -> int:
    digits = text.rstrip("cbkKBMG")
    unit = text[len(digits) :]
    if not digits.isdecimal() or unit not in _UNITS:
        raise Misused(f"invalid number: '{text}'")
    return int(digits) * _UNITS[unit]


async def sha256sum(call: Call) -> int:
    """`sha256sum [FILE | -]...`"""
    _, paths = options(call.argv[1:], "bt")
    status = 0
    for path in paths or ["-"]:
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
        raise Misused("only `openssl dgst -sha256 [-r] [FILE]...` is known here")
    status = 0
    for path in words or ["-"]:
        name = "stdin" if path == "-" else path
        try:
            digest = await _sha256(call, path)
        except OSError as error:
            await call.stderr.write(os.fsencode(f"Can't open '{path}' for reading: {error.strerror}\n"))
            status = 1
            continue
        line = f"{digest} *{name}" if "-r" in call.argv else f"SHA2-256({name})= {digest}"
        await call.stdout.write(os.fsencode(f"{line}\n"))
    return status


async def sync(call: Call) -> int:
    """`sync [-d] [-f] FILE...`; without a file, everything, as the real one."""
    _, paths = options(call.argv[1:], "df", ["data", "file-system"])
    for path in paths:
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
    async with _source(call, path) as source:
        while data := await source.read(_HASHED):
            await asyncio.to_thread(digest.update, data)
    return digest.hexdigest()


class _FileReader:
    """A file as a command's input; blocking reads happen in a thread."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    async def read(self, limit: int) -> bytes:
        return await asyncio.to_thread(self._file.read, limit)


@contextlib.asynccontextmanager
async def _source(call: Call, path: str, skip: int = 0) -> AsyncIterator[Reader]:
    """A file from its byte `skip` on, or standard input for "-"."""
    if path == "-":
        while skip and (data := await call.stdin.read(min(skip, CHUNK))):
            skip -= len(data)
        yield call.stdin
        return
    with opened(call, path) as file:
        file.seek(skip)
        yield _FileReader(file)


def _real(call: Call, path: str) -> str:
    return call.side.folder.resolve(path)


CONTENTS: dict[str, Command] = {
    "cat": cat,
    "dd": dd,
    "head": head,
    "openssl": openssl,
    "sha256sum": sha256sum,
    "sync": sync,
}
