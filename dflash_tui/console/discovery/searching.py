"""A bounded search for files of certain names on a host."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from dflash_tui.hosts.base import CommandFailed, Host, HostError, HostKeyRefused, HostUnreachable, LoginRefused

SEARCH_SECONDS = 20.0
MOST_FILES = 4000
DEPTH = 6  # folders below a place that is searched
USUAL = ("/workspace", "/data", "/root", "/mnt", "/scratch", "/models", "/opt", "/srv", "/runs", "/storage", "/tank")
_CACHES = ("/.cache/huggingface/hub",)  # below HOME; too deep to be met from there
_SKIPPED = (".git", "node_modules", "__pycache__", "site-packages", ".dflash")
_KERNEL = ("/proc", "/sys", "/dev")
_ARGUMENTS = 60_000  # bytes of one command: a login shell takes it as one argument of at most 128 KiB
_MOST_BYTES = 8 << 20
_STAT = re.compile(r"^([0-9a-f]+) (\d+) (-?\d+) (/.*)$")
_REGULAR = 0o100000


@dataclass(frozen=True)
class Seen:
    """A file (links followed): bytes, and POSIX seconds of its host's clock. `named`: it lies in a folder that a person
    has named to look in, so it comes first."""

    path: str
    size: int
    mtime: float
    named: bool = False

    @property
    def folder(self) -> str:
        """The folder that it lies in."""
        return posixpath.dirname(self.path)

    @property
    def name(self) -> str:
        """Its name there."""
        return posixpath.basename(self.path)


async def home_of(host: Host) -> str:
    """The user's HOME; "" where the host tells none."""
    done = await host.run(["env"], timeout=20, check=False)
    return next((line[5:].rstrip("/") for line in done.text.splitlines() if line.startswith("HOME=/")), "")


def usual_places(home: str) -> tuple[str, ...]:
    """Where people keep trainings and models: HOME, caches in it, and folders that many machines have."""
    return (home, *(home + cache for cache in _CACHES), *USUAL) if home else USUAL


async def search(
    host: Host, places: Iterable[str], names: Sequence[str], *, named: Iterable[str] = (), depth: int = DEPTH
) -> tuple[tuple[Seen, ...], bool]:
    """The regular files at most `depth` folders below `named` and `places` whose name has one of these shell patterns,
    newest first; False beside them when a limit ended the search. Raises HostError when the host can't be asked."""
    first = [f"{place.rstrip('/')}/" for place in named]
    roots = [f"{place.rstrip('/')}/" for place in places if place.strip("/")]
    argv = ["find", *dict.fromkeys((*first, *roots)), "-maxdepth", str(depth)]
    argv += ["(", *_either(_SKIPPED), "-o", *_either(_KERNEL, "-path"), ")", "-prune", "-o"]
    argv += ["(", "-type", "f", "-o", "-type", "l", ")", "(", *_either(names), ")", "-print"]
    paths = await lines_of(host, argv, seconds=SEARCH_SECONDS, most=MOST_FILES + 1)
    distinct = {re.sub("/+", "/", path): None for path in paths if path.startswith("/")}
    found = await look_at(host, list(distinct)[:MOST_FILES])
    marked = [replace(item, named=item.path.startswith(tuple(first))) for item in found] if first else found
    return tuple(sorted(marked, key=lambda item: not item.named)), len(paths) <= MOST_FILES


async def look_at(host: Host, paths: Sequence[str]) -> tuple[Seen, ...]:
    """Those of the paths that are regular files, newest first."""
    found: list[Seen] = []
    for some in _batches(paths):
        done = await host.run(["stat", "-L", "-c", "%f %s %Y %n", *some], timeout=30, check=False)
        for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
            match = _STAT.match(line)
            if match and int(match[1], 16) & 0o170000 == _REGULAR and _sayable(match[4]):
                found.append(Seen(match[4], int(match[2]), float(match[3])))
    return tuple(sorted(found, key=lambda seen: (-seen.mtime, seen.path)))


async def missing(host: Host, paths: Sequence[str]) -> tuple[str, ...]:
    """Those of the paths that do not exist, as far as this user may see."""
    found = [path for path in paths if (await host.run(["test", "-e", path], timeout=20, check=False)).status != 0]
    return tuple(found)


async def lines_of(host: Host, argv: Sequence[str], *, seconds: float, most: int) -> list[str]:
    """The lines that a command prints until it ends, `seconds` are over or `most` are there; then it is ended. Its
    status does not count: much of a host may not be readable."""
    data = bytearray()
    try:
        async with asyncio.timeout(seconds), host.stream(argv) as process:
            while (piece := await process.read()) and len(data) < _MOST_BYTES and data.count(b"\n") < most:
                data += piece
    except (TimeoutError, CommandFailed):
        pass
    whole = bytes(data).rpartition(b"\n")[0]
    return whole.decode("utf-8", "surrogateescape").split("\n") if whole else []


async def head(host: Host, seen: Seen, length: int) -> bytes:
    """The first bytes of a file; b"" where it can't be read."""
    return await _part(host, seen, 0, min(length, seen.size))


async def tail(host: Host, seen: Seen, length: int) -> tuple[bytes, int]:
    """The last bytes of a file, and where they begin."""
    begin = max(0, seen.size - length)
    return await _part(host, seen, begin, seen.size - begin), begin


async def _part(host: Host, seen: Seen, offset: int, length: int) -> bytes:
    try:
        return await host.read(seen.path, offset, length) if length else b""
    except (HostUnreachable, HostKeyRefused, LoginRefused):
        raise
    except HostError:
        return b""


def _either(patterns: Sequence[str], test: str = "-name") -> list[str]:
    return [word for pattern in patterns for word in ("-o", test, pattern)][1:]


def _batches(paths: Sequence[str]) -> Iterable[list[str]]:
    some: list[str] = []
    size = 0
    for path in paths:
        if some and size + len(path) > _ARGUMENTS:
            yield some
            some, size = [], 0
        some.append(path)
        size += len(path) + 3
    if some:
        yield some


def _sayable(path: str) -> bool:
    """Whether a path can stand in a config: it is UTF-8 and moves no cursor."""
    return path.isprintable() and not any("\udc80" <= char <= "\udcff" for char in path)
