"""Files by commands alone, for hosts where nothing else reaches them: GNU and busybox userlands alike.

Every command that is sent, `PATH` and `FOLDER` being absolute:

| purpose | argv | stdin | stdout |
|---|---|---|---|
| stat | `stat -c '%f %s %Y %i %h' PATH` (`stat -L -c …` follows links) | - | hex mode, size, mtime, inode, links |
| several stats | `stat -c '%f %s %Y %i %h %n' PATH…` (`stat -L -c …`) | - | one record a path that is there |
| list | `find FOLDER/ -mindepth 1 -maxdepth 1 -exec stat -c '%f %s %Y %i %h %n' {} +` | - | one record an entry |
| list several | `find FOLDER/ FOLDER/ … -mindepth 1 -maxdepth 1 -exec stat …` as above | - | the same |
| link's text | `readlink PATH` | - | text and a newline |
| several links' | `sh -c 'for link; do readlink "$link"; printf "\\000"; done' dflash PATH…` | - | each and a NUL |
| read | `dd if=PATH bs=B skip=N count=M` (B 4096 or 65536) | - | the blocks N … N+M-1 of B bytes |
| several reads | `sh -c … dflash PATH B N M B N M …` | - | the size, a newline, the blocks of each |
| reads of several files | `sh -c … dflash MARK PATH B N M PATH B N M …` | - | the blocks of each and the mark |
| write | `dd of=TEMPORARY bs=65536`, `stat -c …`, `mv -f TEMPORARY PATH` | the data of `dd` | - |
| after a failed write | `rm -f TEMPORARY` | - | - |
| make folder | `mkdir -p FOLDER`; exclusive: `mkdir -p PARENT`, `mkdir FOLDER` | - | - |
| free bytes | `df -P -k PATH` | - | POSIX table |
| free inodes | `df -P -i PATH` | - | POSIX-like table; a refusal means unknown |
| why did it fail | `test -e PATH` | - | status 0 or 1 |
| why did several | `sh -c 'for path; do …' dflash PATH…` | - | 1 or 0 each |

A range is read as whole blocks and cut here: skipping by bytes is a GNU extension of `dd`. A write and its rename are
separate commands: a shell that goes on after a cut stream would publish half a file.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
from collections.abc import Sequence

from dflash_tui.hosts.base import (
    CommandFailed,
    Entry,
    FileMissing,
    Host,
    HostError,
    HostUnreachable,
    PermissionRefused,
    ReadShort,
    Space,
    Stat,
)
from dflash_tui.hosts.local import kind_of, temporary_name

_FORMAT = "%f %s %Y %i %h"
_LIST_TRIES = 3
_NOT_STARTED = (126, 127)
"""A shell's statuses for a program that is not there or may not be run: they say nothing about the path."""

_READ_MANY = """
path=$1; shift
[ -f "$path" ] || exit 44
size=$(stat -L -c %s "$path") || exit
echo "$size"
if [ -e /dev/null ]; then exec 2>/dev/null; fi
while [ $# -gt 0 ]; do
  [ $(($1 * $2)) -ge "$size" ] || dd if="$path" bs="$1" skip="$2" count="$3" || exit
  shift 3
done
"""
_READ_FILES = """
mark=$1; shift
if [ -e /dev/null ]; then exec 2>/dev/null; fi
while [ $# -gt 0 ]; do
  if [ -f "$1" ]; then dd if="$1" bs="$2" skip="$3" count="$4"; fi
  printf %s "$mark"
  shift 4
done
"""
_NO_FILE = 44
_THERE = 'for path; do if [ -e "$path" ] || [ -L "$path" ]; then printf 1; else printf 0; fi; done'
_READ_LINKS = 'for link; do readlink "$link"; printf "\\000"; done'
_ARGUMENTS = 60_000  # bytes of one command: a login shell takes it as one argument of at most 128 KiB
_COMPLAINT = 80  # bytes that a program says of a path beside its name: of stderr 64 KiB are kept
_LONGEST_NAME = 255 + 3
_RANGE_ARGUMENTS = 40
_FEW = 4
_SMALL_READ = 1 << 20
_BYTES_A_SECOND = 1 << 20
"""The slowest link on which a read is not given up, beyond half a minute for starting it."""

_RECORD = re.compile(r"[0-9a-f]+ \d+ -?\d+ \d+ \d+ ", re.ASCII)
_SPACE = re.compile(r"\s(\d+|-)\s+(\d+|-)\s+(-?\d+|-)\s+(?:\d+%|-)\s+/", re.ASCII)


async def stat(host: Host, path: str, *, follow: bool) -> Stat:
    """`Host.stat` by `stat`."""
    argv = ["stat", *(["-L"] if follow else []), "-c", _FORMAT, absolute(host, path)]
    done = await host.run(argv, timeout=30, check=False)
    if done.status != 0:
        raise await _reason(host, path, done.status, done.stderr, argv)
    fields = done.text.split()
    if len(fields) != 5:
        raise HostError(
            f"{host.name}: `stat` of {path} printed {done.text[:80]!r}; expected mode, size, mtime, inode, links"
        )
    return _stat(fields)


async def stat_many(host: Host, paths: Sequence[str], *, follow: bool) -> list[Stat | None]:
    """`Host.stat_many` by one `stat` for some hundred paths."""
    found: list[Stat | None] = []
    for some in _by_length([(absolute(host, path),) for path in paths], beside=_COMPLAINT):
        found += await _stat_some(host, [path for (path,) in some], follow)
    return found


async def _stat_some(host: Host, paths: Sequence[str], follow: bool) -> list[Stat | None]:
    argv = ["stat", *(["-L"] if follow else []), "-c", _FORMAT + " %n", *paths]
    done = await host.run(argv, timeout=60, check=False)
    text, at = done.stdout.decode("utf-8", "surrogateescape"), 0
    found: dict[str, Stat] = {}
    for path in paths:
        # A name may hold newlines, even ones that imitate a record: the names that were asked for tell records apart.
        record = _RECORD.match(text, at)
        if record is not None and text.startswith(f"{path}\n", record.end()):
            found[path] = _stat(record[0].split())
            at = record.end() + len(path) + 1
    if at != len(text):
        found = {}
    silent = list(dict.fromkeys(path for path in paths if path not in found))
    # Where no more than that is said none need be asked for: the words are the C locale's.
    said = _own_words("stat", done.stderr)
    if not (0 < said.count("No such file") == len(silent) == said.count("\n") + 1):
        for path in silent if done.status in _NOT_STARTED else await _doubtful(host, silent, said):
            with contextlib.suppress(FileMissing):
                found[path] = await stat(host, path, follow=follow)
    return [found.get(path) for path in paths]


async def _doubtful(host: Host, paths: Sequence[str], said: str) -> Sequence[str]:
    """Those that are not simply missing: each is asked for alone, and the answer says what is wrong with it."""
    if "Permission denied" in said or "Operation not permitted" in said or len(paths) < _FEW:
        return paths
    done = await host.run(["sh", "-c", _THERE, "dflash", *paths], timeout=60, check=False)
    if len(done.text) != len(paths):
        return paths
    return [path for path, there in zip(paths, done.text, strict=True) if there == "1"]


async def list_folder(host: Host, path: str) -> list[Entry]:
    """`Host.list` by `find` and `stat`; entries that vanish meanwhile are left out."""
    folder = absolute(host, path).rstrip("/") + "/"
    argv = ["find", folder, "-mindepth", "1", "-maxdepth", "1", "-exec", "stat", "-c", _FORMAT + " %n", "{}", "+"]
    for _ in range(_LIST_TRIES):
        done = await host.run(argv, timeout=60, check=False)
        if done.status == 0:
            break
    if done.status != 0 and not done.stdout:
        # `find FILE/` of a file says "not a directory"; GNU ends with 1 and prints nothing then.
        raise await _reason(host, path, done.status, done.stderr, argv)
    text = done.stdout.decode("utf-8", "surrogateescape")
    # A name may hold newlines, even ones that imitate a record, but no slash: the folder's path tells records apart.
    record = re.compile(r"(?:^|\n)([0-9a-f]+) (\d+) (-?\d+) (\d+) (\d+) " + re.escape(folder.rstrip("/")) + "/+")
    parts = record.split(text.removesuffix("\n"))[1:]
    seen = {parts[at + 5]: _stat(parts[at : at + 5]) for at in range(0, len(parts), 6)}
    targets = await _link_texts(host, folder, [name for name, found in seen.items() if found.kind == "link"])
    return [Entry(name, found, targets.get(name, "")) for name, found in sorted(seen.items())]


async def list_folders(host: Host, paths: Sequence[str]) -> dict[str, list[Entry]]:
    """`list_folder` of many by few commands. One that there is no answer about (it can't be listed, or is gone) is not
    in it."""
    found: dict[str, list[Entry]] = {}
    for some in _by_length([(path,) for path in paths]):
        found |= await _list_some(host, [path for (path,) in some])
    return found


async def _list_some(host: Host, paths: Sequence[str]) -> dict[str, list[Entry]]:
    folders = {absolute(host, path).rstrip("/"): path for path in paths}
    starts = [f"{folder}/" for folder in folders]
    argv = ["find", *starts, "-mindepth", "1", "-maxdepth", "1", "-exec", "stat", "-c", _FORMAT + " %n", "{}", "+"]
    for _ in range(_LIST_TRIES):
        done = await host.run(argv, timeout=60 + len(paths) / 10, check=False)
        if done.status == 0:
            break
    above = os.path.commonpath(list(folders)).rstrip("/")
    record = re.compile(r"(?:^|\n)([0-9a-f]+) (\d+) (-?\d+) (\d+) (\d+) " + re.escape(above) + "/+")
    parts = record.split(done.stdout.decode("utf-8", "surrogateescape").removesuffix("\n"))[1:]
    stats = {parts[at + 5]: _stat(parts[at : at + 5]) for at in range(0, len(parts), 6)}
    links = [name for name, its in stats.items() if its.kind == "link"]
    targets = await _link_texts(host, f"{above}/", links)
    found: dict[str, list[Entry]] = {path: [] for path in paths} if done.status == 0 else {}
    for name, its in sorted(stats.items()):
        inside, _, own = name.rpartition("/")
        folder = f"{above}/{inside}".rstrip("/")
        if folder in folders:
            found.setdefault(folders[folder], []).append(Entry(own, its, targets.get(name, "")))
    return found


def _by_length(words: Sequence[tuple[str, ...]], beside: int = 0) -> list[list[tuple[str, ...]]]:
    """In portions that one command takes; `beside` more bytes are counted for each."""
    portions: list[list[tuple[str, ...]]] = []
    room = 0
    for some in words:
        length = sum(len(os.fsencode(shlex.quote(word))) + 2 for word in some) + beside
        if length > room or not portions:
            portions.append([])
            room = _ARGUMENTS
        portions[-1].append(some)
        room -= length
    return portions


async def _link_texts(host: Host, folder: str, names: Sequence[str]) -> dict[str, str]:
    """What links say, by as few commands as can be; one at a time where there is no shell for that."""
    texts: dict[str, str] = {}
    some = max(1, _ARGUMENTS // (len(folder) + _LONGEST_NAME))
    for at in range(0, len(names), some):
        asked = names[at : at + some]
        found: list[bytes] = []
        if len(asked) > 1:
            argv = ["sh", "-c", _READ_LINKS, "dflash", *(folder + name for name in asked)]
            found = (await host.run(argv, timeout=60, check=False)).stdout.split(b"\0")
        if len(found) == len(asked) + 1:
            decoded = [text.decode("utf-8", "surrogateescape").removesuffix("\n") for text in found]
            texts |= zip(asked, decoded, strict=False)
        else:
            texts |= {name: await _link_text(host, folder + name) for name in asked}
    return texts


async def _link_text(host: Host, path: str) -> str:
    done = await host.run(["readlink", path], timeout=30, check=False)
    return done.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")


async def read(host: Host, path: str, offset: int, length: int) -> bytes:
    """`Host.read` by `dd`: at most two blocks more than the range cross the wire."""
    if length == 0:
        await stat(host, path, follow=True)
        return b""
    block = 4096 if length <= _SMALL_READ else 65536
    first, last = offset // block, (offset + length - 1) // block
    source = f"if={absolute(host, path)}"
    argv = ["dd", source, f"bs={block}", f"skip={first}", f"count={last - first + 1}"]
    done = await host.run(argv, timeout=30 + length / _BYTES_A_SECOND, check=False)
    if done.status != 0:
        raise await _reason(host, path, done.status, done.stderr, argv)
    data = done.stdout[offset - first * block :][:length]
    if len(data) != length:
        raise ReadShort(f"{host.name}: {path} gave {len(data)} of the {length} bytes at offset {offset}")
    return data


async def read_many(host: Host, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    """`Host.read_many` by one command for some thousand ranges, each in blocks as small as it is itself."""
    found: list[bytes] = []
    some = max(1, (_ARGUMENTS - len(path)) // _RANGE_ARGUMENTS)
    for at in range(0, len(ranges), some):
        found += await _read_some(host, absolute(host, path), ranges[at : at + some])
    return found


async def _read_some(host: Host, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    words: list[str] = []
    spans: list[tuple[int, int]] = []
    for offset, length in ranges:
        block = 512 if length <= 8192 else 4096 if length <= _SMALL_READ else 65536
        first, stop = offset // block, -(-(offset + length) // block)
        words += (str(block), str(first), str(stop - first))
        spans.append((first * block, stop * block))
    argv = ["sh", "-c", _READ_MANY, "dflash", path, *words]
    total = sum(stop - start for start, stop in spans)
    done = await host.run(argv, timeout=30 + total / _BYTES_A_SECOND, check=False)
    if done.status == _NO_FILE and await _exists(host, path):
        raise HostError(f"{host.name}: {path} is not a regular file")
    if done.status != 0:
        raise await _reason(host, path, done.status, done.stderr, ["dd"])
    head, _, data = done.stdout.partition(b"\n")
    size, at = int(head), 0
    found: list[bytes] = []
    for (offset, length), (start, stop) in zip(ranges, spans, strict=True):
        came = max(0, min(stop, size) - start)
        piece = data[at : at + came][offset - start :][:length]
        if len(piece) != length:
            raise ReadShort(f"{host.name}: {path} gave {len(piece)} of the {length} bytes at offset {offset}")
        found.append(piece)
        at += came
    if at != len(data):
        raise ReadShort(f"{host.name}: {path} changed while it was read")
    return found


async def read_files(host: Host, ranges: Sequence[tuple[str, int, int]]) -> list[bytes | None]:
    """The bytes of each (path, offset, length), by few commands; None where they can't be had."""
    words, total = [], 0
    for path, offset, length in ranges:
        block = 512 if length <= 8192 else 4096
        first, stop = offset // block, -(-(offset + length) // block)
        words.append((absolute(host, path), str(block), str(first), str(stop - first)))
        total += (stop - first) * block
    answers: list[bytes] = []
    for some in _by_length(words):
        mark = secrets.token_hex(16)
        argv = ["sh", "-c", _READ_FILES, "dflash", mark, *(word for each in some for word in each)]
        done = await host.run(argv, timeout=30 + total / _BYTES_A_SECOND, check=False)
        pieces = done.stdout.split(mark.encode())
        answers += pieces[:-1] if len(pieces) == len(some) + 1 else [b""] * len(some)
    found: list[bytes | None] = []
    for (_, offset, length), (_, block_size, first_block, _), answer in zip(ranges, words, answers, strict=True):
        data = answer[offset - int(block_size) * int(first_block) :][:length]
        found.append(data if len(data) == length else None)
    return found


async def write(host: Host, path: str, data: bytes) -> None:
    """`Host.write` by `dd` to a temporary name, its size checked, then `mv`."""
    temporary = temporary_name(absolute(host, path))
    argv = ["dd", f"of={temporary}", "bs=65536"]
    try:
        done = await host.run(argv, stdin=data, timeout=30 + len(data) / _BYTES_A_SECOND, check=False)
        if done.status != 0:
            raise await _reason(host, os.path.dirname(path), done.status, done.stderr, argv)
        size = (await stat(host, temporary, follow=False)).size
        if size != len(data):
            raise HostError(f"{host.name}: only {size} of {len(data)} bytes arrived for {path}; nothing was replaced")
        argv = ["mv", "-f", temporary, path]
        done = await host.run(argv, timeout=30, check=False)
        if done.status != 0:
            raise await _reason(host, path, done.status, done.stderr, argv)
    except HostUnreachable:
        raise
    except HostError:
        await host.run(["rm", "-f", temporary], timeout=30, check=False)
        raise


async def make_folder(host: Host, path: str, *, exclusive: bool) -> None:
    """`Host.make_folder` by `mkdir`."""
    path = absolute(host, path).rstrip("/") or "/"
    steps = [["mkdir", "-p", os.path.dirname(path)], ["mkdir", path]] if exclusive else [["mkdir", "-p", path]]
    for argv in steps:
        done = await host.run(argv, timeout=30, check=False)
        if done.status != 0:
            if argv[1] == path and await _exists(host, path):
                raise HostError(f"{host.name}: {path} already exists")
            raise await _reason(host, path, done.status, done.stderr, argv, exists=True)


async def free_space(host: Host, path: str) -> Space:
    """`Host.free_space` by `df`, in whole KiB."""
    path = absolute(host, path)
    while not await _exists(host, path) and path != "/":
        path = os.path.dirname(path.rstrip("/")) or "/"
    done = await host.run(["df", "-P", "-k", path], timeout=30)
    match = _SPACE.search(done.text)
    if match is None or match[3] == "-":
        raise HostError(f"{host.name}: `df -P -k {shlex.quote(path)}` printed no free space: {done.text[-120:]!r}")
    inodes = _SPACE.search((await host.run(["df", "-P", "-i", path], timeout=30, check=False)).text)
    # Filesystems without an inode table (btrfs) print 0 or "-" for all three.
    fixed = inodes is not None and inodes[1] not in ("0", "-") and inodes[3] != "-"
    return Space(max(0, int(match[3])) * 1024, int(inodes[3]) if inodes is not None and fixed else None)


def absolute(host: Host, path: str) -> str:
    """The path, if it is absolute: a relative one means another place on every host, and may look like an option."""
    if not path.startswith("/") or "\0" in path:
        raise HostError(f"{host.name}: {path!r} is not an absolute path")
    return path


async def _exists(host: Host, path: str) -> bool:
    return (await host.run(["test", "-e", path], timeout=30, check=False)).status == 0


async def _reason(
    host: Host, path: str, status: int, stderr: str, argv: list[str], *, exists: bool = False
) -> HostError:
    """Why a command on a path failed. The words are the C locale's; where they are translated, `test -e` decides."""
    said = _own_words(argv[0], stderr)
    if status not in _NOT_STARTED:
        if "Permission denied" in said or "Operation not permitted" in said:
            return PermissionRefused(f"{host.name}: {path} may not be used by this user")
        if "No such file" in said or not (exists or await _exists(host, path)):
            return FileMissing(f"{host.name}: {path} does not exist")
        if "Not a directory" in said:
            return HostError(f"{host.name}: {path} is not a folder")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else f"status {status}"
    return CommandFailed(f"{host.name}: `{argv[0]}` failed on {path}: {last}", status, stderr)


def _own_words(program: str, stderr: str) -> str:
    """What a program itself complained of. A login shell may complain before it, of files of its own."""
    own = [line for line in stderr.splitlines() if line.startswith(f"{program}: ")]
    return "\n".join(own) or stderr


def _stat(fields: list[str]) -> Stat:
    return Stat(kind_of(int(fields[0], 16)), int(fields[1]), float(fields[2]), int(fields[3]), int(fields[4]))
