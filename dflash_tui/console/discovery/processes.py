"""What the processes of a host work on: their working folders and open files, from /proc."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dflash_tui.console.discovery.searching import lines_of
from dflash_tui.hosts.base import Host

_SECONDS = 10.0
_MOST = 40_000  # lines
_FOLDERS = 8
_LINK = re.compile(r"^['\"]?/proc/(\d+)/(cwd|fd/\d+)['\"]? -> ['\"]?(/.*?)['\"]?$")
_ELSEWHERE = re.compile(r"^/(proc|sys|dev|usr|var|run|etc|snap|boot|lib|bin|sbin)(/|$)|^/$| \(deleted\)$")
_GPU = "/dev/nvidia"

_ARGV = [
    *("find", "/proc", "-maxdepth", "3", "("),
    *(word for name in ("task", "map_files", "net", "ns", "attr", "fdinfo") for word in ("-name", name, "-o")),
    *("-name", "self", "-o", "-name", "thread-self", ")", "-prune", "-o"),
    *("(", "-path", "/proc/[0-9]*/cwd", "-o", "-path", "/proc/[0-9]*/fd/[0-9]*", ")", "-type", "l"),
    *("-exec", "stat", "-c", "%N", "{}", "+"),
]


@dataclass(frozen=True)
class Work:
    """`folders` are worked in, those of processes that hold a GPU first; `outputs` are files that standard output or
    error goes to, `files` everything else that is open. What the system itself uses is left out."""

    folders: tuple[str, ...]
    outputs: frozenset[str]
    files: frozenset[str]


async def look_at_work(host: Host) -> Work:
    """What this user may see of it; nothing where there is no /proc. Raises HostError when the host can't be asked."""
    holders: set[str] = set()
    folders: list[tuple[str, str]] = []
    outputs: set[str] = set()
    files: set[str] = set()
    for line in await lines_of(host, _ARGV, seconds=_SECONDS, most=_MOST):
        if (match := _LINK.match(line)) is None:
            continue
        pid, what, target = match.groups()
        if target.startswith(_GPU):
            holders.add(pid)
        if _ELSEWHERE.search(target):
            continue
        if what == "cwd":
            folders.append((pid, target))
        else:
            (outputs if what in ("fd/1", "fd/2") else files).add(target)
    folders.sort(key=lambda item: item[0] not in holders)
    distinct = tuple(dict.fromkeys(folder for _, folder in folders))
    return Work(distinct[:_FOLDERS], frozenset(outputs), frozenset(files - outputs))
