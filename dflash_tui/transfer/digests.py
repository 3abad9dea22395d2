"""SHA-256 and CRC-32 of files and pieces of files, computed by the host that has them.

`openssl` comes first: with the processor's own instructions it needs 1 CPU second a GiB, Python's hashlib 1.5, Debian's
`sha256sum` 6. What is read on the way is asked of the kernel, so that a long hash can be seen to advance.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import re
from collections.abc import Callable, Sequence

from dflash_tui.checkpoints.segments import Output, Range, clipped
from dflash_tui.hosts.base import (
    CommandFailed,
    Completed,
    FileMissing,
    Host,
    HostUnreachable,
    Process,
    ReadShort,
)
from dflash_tui.hosts.running import command_failed, together
from dflash_tui.transfer.emission import BLOCK, emission
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.portions import portions

Tell = Callable[[int], None]
"""Called with the bytes that were hashed since the last call, of one file: their sum is its size at the end."""

_SLOWEST = 10_000_000
"""Bytes a second below which a CRC-32 is given up."""
_START_SECONDS = 60.0
_STALL_SECONDS = 120.0
"""How long what tells how far it is may stand still: no limit else, for there are disks of any speed."""
_SLOWEST_UNSEEN = 1_000_000
"""Bytes a second below which a hash is given up that does not tell how far it is."""
_FED = 256 << 10

_DIGEST = re.compile(r"\\?([0-9a-f]{64})\b")
_AT = re.compile(r"at (\d+)")

_PROGRAM = "import hashlib,sys;d=hashlib.sha256();[d.update(b) for b in iter(lambda:sys.stdin.buffer.read(1<<20),b'')]"
_PICK = f"""
sha256() {{
  case $by in
    openssl) exec openssl dgst -sha256 -r ;;
    python3) exec python3 -c "{_PROGRAM};print(d.hexdigest())" ;;
    *) exec sha256sum ;;
  esac
}}
for by in openssl python3 sha256sum none; do
  case $(printf '' | sha256 2>&1) in *e3b0c44298fc1c149afbf4c8996fb924*) break ;; esac
done
[ $by != none ] || {{ echo 'neither openssl nor python3 nor sha256sum works' >&2; exit 127; }}
"""
"""Makes `sha256` the first program that hashes its input; it takes the place of the shell that runs it."""

# The program shares its place in the file with this shell, whose kernel tells it. A `sleep` that is left behind holds
# no stream open. Without /dev (a bare chroot) a shell can't start anything beside itself.
_DIGEST_FILE = (
    _PICK
    + """
path=$1
[ -e "$path" ] || exit 44
[ -e /dev/null ] || { sha256 <"$path"; exit; }
sha256 <"$path" & pid=$!
(
  while sleep 1 </dev/null >/dev/null 2>&1; do
    while read -r key position; do [ "$key" != pos: ] || echo "at $position"; done </proc/$pid/fdinfo/0
  done
) 2>&1 & watch=$!
wait $pid; status=$?
kill $watch
exit $status
"""
)

_DIGEST_FILES = (
    _PICK
    + """
for path; do
  [ -e "$path" ] || exit 44
  ( sha256 <"$path" ) || exit
done
"""
)

# A pipe has no place: what the program has read of anything is told by its kernel, which is a little more. 4 is where
# the script's own word goes: a `sleep` that is left behind would hold it open for a second.
_WATCHED = (
    _PICK
    + """
watched() {
  [ -e /dev/null ] || { sha256; exit; }
  exec 5<&0
  sha256 <&5 5<&- 4>&- & pid=$!
  exec 5<&-
  (
    while sleep 1 </dev/null >/dev/null 2>&1 4>&-; do
      while read -r key count; do [ "$key" != rchar: ] || echo "at $count"; done </proc/$pid/io
    done
  ) 2>&1 & watch=$!
  wait $pid; status=$?
  kill $watch
  exit $status
}
"""
)

_CHUNKS = f"""
import hashlib, sys
with open(sys.argv[1], "rb", buffering=0) as file:
    left = int(sys.argv[2])
    while left > 0:
        digest, room = hashlib.sha256(), min({CHUNK}, left)
        left -= room
        while room:
            data = file.read(min(1 << 20, room))
            if not data:
                sys.exit(45)
            digest.update(data)
            room -= len(data)
        print(digest.hexdigest(), flush=True)
"""

_DIGEST_CHUNKS = (
    _PICK
    + f"""
path=$1 size=$2 program=$3
[ -e "$path" ] || exit 44
have=$(stat -L -c %s "$path") && [ "$have" -lt "$size" ] && exit 45
case $(python3 -c 'import hashlib; print("here")' 2>&1) in here) exec python3 -c "$program" "$path" "$size" ;; esac
at=0
while [ $at -lt "$size" ]; do
  dd if="$path" bs={BLOCK} skip=$((at / {BLOCK})) count={CHUNK // BLOCK} | sha256 || exit 1
  at=$((at + {CHUNK}))
done
"""
)

_CRCS = """
import sys, zlib
for line in sys.stdin.buffer.read().split(b"\\0")[:-1]:
    offset, left, path = line.split(b" ", 2)
    left, crc = int(left), 0
    with open(path, "rb", buffering=0) as file:
        file.seek(int(offset))
        while left:
            data = file.read(min(1 << 20, left))
            if not data:
                sys.exit(45)
            crc, left = zlib.crc32(data, crc), left - len(data)
    print("%08x" % crc)
"""

_MISSING, _SHORT = 44, 45
"""Statuses of the programs above: no such file, a file that ends early."""


async def digest(host: Host, path: str, size: int, tell: Tell | None = None) -> str:
    """The lowercase hex SHA-256 of a file of about `size` bytes. Raises FileMissing and other HostErrors, and
    TransferError where the host has nothing that hashes."""
    (found,) = await _hashed(host, ["sh", "-c", _DIGEST_FILE, "dflash", path], b"", path, [size], tell)
    return found


async def digest_many(host: Host, paths: Sequence[str], sizes: Sequence[int], tell: Tell | None = None) -> list[str]:
    """`digest` of many small files by few commands. Raises as it does."""
    found: list[str] = []
    for some in portions(paths):
        argv = ["sh", "-c", _DIGEST_FILES, "dflash", *some]
        what = some[0] if len(some) == 1 else f"one of {len(some)} files from {some[0]} on"
        found += await _hashed(host, argv, b"", what, sizes[len(found) : len(found) + len(some)], tell)
    return found


async def chunk_digests(host: Host, path: str, size: int, tell: Tell | None = None) -> tuple[str, ...]:
    """The SHA-256 of each chunk (`engine.CHUNK` bytes, the last one shorter) of a file of `size` bytes. Raises as
    `digest` does."""
    sizes = [min(CHUNK, size - at) for at in range(0, size, CHUNK)]
    argv = ["sh", "-c", _DIGEST_CHUNKS, "dflash", path, str(size), _CHUNKS]
    return await _hashed(host, argv, b"", path, sizes, tell)


async def source_digest(host: Host, folder: str, output: Output, tell: Tell | None = None) -> str:
    """The SHA-256 of an output as its source would emit it, made there. Raises as `digest` does, ReadShort where a file
    is shorter than what is read of it, and ValueError for an output whose end is not known yet (`settled`)."""
    ends: dict[str, int] = {}
    for segment in output.segments:
        if isinstance(segment, Range):
            ends[segment.file] = max(ends.get(segment.file, 0), segment.offset + segment.nbytes)
    for name, end in ends.items():
        path = posixpath.join(folder, name)
        size = (await host.stat(path)).size
        if size < end:
            raise ReadShort(f"{host.name}: {path} has {size:,} bytes, {end:,} are read of it")
        if output.whole and size == output.size:
            return await digest(host, path, size, tell)
    program = emission(folder, clipped(output.segments, 0, output.size))
    # Nothing that ends early counts: the word comes only when every piece was read.
    script = b"exec 4>&1\n{\n%s\necho whole >&4\n} | watched\n" % program.stdin
    argv, what = ["sh"], posixpath.join(folder, output.name)
    (found,) = await _hashed(host, argv, _WATCHED.encode() + script, what, [output.size], tell, whole=True)
    return found


async def range_digest(host: Host, folder: str, piece: Range) -> str:
    """The SHA-256 of a piece of a file, made by its host. Raises as `source_digest` does."""
    return await source_digest(host, folder, Output(piece.file, (piece,)))


async def range_crc(host: Host, folder: str, piece: Range) -> int | None:
    """The CRC-32 of a piece of a file, made by its host; None where it has no python3. Raises FileMissing and other
    HostErrors, ReadShort where the file is shorter."""
    (found,) = await range_crcs(host, folder, [piece])
    return found


async def range_crcs(host: Host, folder: str, pieces: Sequence[Range]) -> list[int | None]:
    """`range_crc` of many pieces by one command; all None where the host has no python3."""
    lines = [f"{piece.offset} {piece.nbytes} {posixpath.join(folder, piece.file)}\0" for piece in pieces]
    total = sum(piece.nbytes for piece in pieces)
    argv = ["python3", "-c", _CRCS]
    stdin = "".join(lines).encode("utf-8", "surrogateescape")
    try:
        done = await host.run(argv, stdin=stdin, timeout=_seconds(total), check=False)
    except CommandFailed as error:
        done = Completed(error.status, b"", error.stderr)
    if done.status in (126, 127):
        return [None] * len(pieces)
    where = f"{host.name}: {folder}"
    if done.status == _SHORT:
        raise ReadShort(f"{where}: a file ends before the piece that was asked for")
    if "FileNotFoundError" in done.stderr:
        raise FileMissing(f"{where}: {done.stderr.strip().splitlines()[-1]}")
    if done.status != 0:
        raise command_failed(host.name, argv[:1], done)
    found = [int(line, 16) for line in done.text.split()]
    if len(found) != len(pieces):
        raise TransferError(f"{where}: {len(found)} CRC-32s came of {len(pieces)}")
    return list(found)


class NoHash(TransferError):
    """The host has no program that hashes."""


def _seconds(nbytes: int) -> float:
    return _START_SECONDS + nbytes / _SLOWEST


async def _hashed(
    host: Host,
    argv: Sequence[str],
    stdin: bytes,
    what: str,
    sizes: Sequence[int],
    tell: Tell | None,
    *,
    whole: bool = False,
) -> tuple[str, ...]:
    """What a hashing program prints: a digest for each of `sizes`, and how far it is in the first meanwhile; with
    `whole`, a word that all of it was there."""
    found: list[str] = []
    words: set[str] = set()
    told, reached, moved = 0, -1, False
    watch = asyncio.timeout(_START_SECONDS + sum(sizes) / _SLOWEST_UNSEEN)

    def advance(position: int) -> None:
        nonlocal told, reached, moved
        if position > reached:
            reached, moved = position, True
            if not watch.expired():
                watch.reschedule(asyncio.get_running_loop().time() + _STALL_SECONDS)
        if tell is not None and position > told:
            tell(position - told)
            told = position

    def heed(line: str) -> None:
        if (match := _DIGEST.match(line)) is not None:
            found.append(match[1])
            advance(sum(sizes[: len(found)]))
        elif (match := _AT.fullmatch(line)) is not None:
            advance(min(int(match[1]), sum(sizes)))
        else:
            words.add(line)

    try:
        async with watch, host.stream(argv, stdin=bool(stdin)) as process:
            await together(_feed(process, stdin), _listen(process, heed))
            done = await process.wait()
        _judge(host, what, done)
        if len(found) != len(sizes) or (whole and "whole" not in words):
            said = done.stderr.strip().splitlines() or ["nothing on stderr"]
            # Some launchers lose the end of what a command prints: worth another try.
            raise ReadShort(f"{host.name}: {len(found)} of {len(sizes)} SHA-256 came of {what}; it said: {said[-1]}")
    except BaseException as error:
        if tell is not None and told:
            tell(-told)
        if isinstance(error, TimeoutError):
            where = f"stood still for {_STALL_SECONDS:.0f} s" if moved else "came to no end"
            raise HostUnreachable(
                f"{host.name}: hashing {what} {where} (byte {max(reached, 0):,}); the host or its disk may hang"
            ) from None
        raise
    return tuple(found)


async def _feed(process: Process, stdin: bytes) -> None:
    if stdin:
        # A shell that ended early says why by its status.
        with contextlib.suppress(CommandFailed):
            for at in range(0, len(stdin), _FED):
                await process.write(stdin[at : at + _FED])
            await process.close_stdin()


async def _listen(process: Process, heed: Callable[[str], None]) -> None:
    rest = b""
    while data := await process.read():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            heed(line.decode("utf-8", "replace"))


def _judge(host: Host, what: str, done: Completed) -> None:
    if done.status == 0:
        return
    if done.status == _MISSING:
        raise FileMissing(f"{host.name}: {what} does not exist")
    if done.status == _SHORT:
        raise ReadShort(f"{host.name}: {what} ends early")
    if done.status > 128:
        raise HostUnreachable(f"{host.name}: hashing {what} was ended by signal {done.status - 128}")
    said = [line for line in done.stderr.splitlines() if line.strip() and " records " not in line]
    family = NoHash if done.status == 127 else TransferError
    raise family(f"{host.name}: no SHA-256 of {what}: {said[0] if said else f'status {done.status}'}")
