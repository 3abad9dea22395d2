"""Room at the destination: what is free, what other transfers that run now will still take of it, what is missing."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dflash_tui.hosts.base import Host, HostError, HostUnreachable, Space
from dflash_tui.transfer.claim import CLAIM, LIVE_SECONDS, parse_claim
from dflash_tui.transfer.errors import NoSpace
from dflash_tui.transfer.portions import portions

_LOOK = f"""
folder=$1 top=$2 live=$3
shift 3
for part; do echo "part $(stat -c '%b %B' "$part" 2>&- || echo 0 512)"; done
[ -n "$top" ] || exit 0
near=$folder
while [ -n "$near" ] && [ ! -e "$near" ]; do near=${{near%/*}}; done
device=$(stat -L -c %d "${{near:-/}}") || exit 0
now=$(date +%s)
find "$top" -xdev -maxdepth 3 -type f -name {CLAIM} 2>&- | while read -r claim; do
  at=${{claim%/*}}
  [ "$at" != "$folder" ] || continue
  [ "$(stat -c %d "$claim")" = "$device" ] || continue
  [ $((now - $(stat -c %Y "$claim"))) -le "$live" ] || continue
  echo "claim $(dd if="$claim" bs=4096 count=1 2>&-)"
  find "$at" -xdev -maxdepth 2 -type f -name '.*.part' -exec stat -c 'held %b %B' {{}} +
done
exit 0
"""


@dataclass(frozen=True)
class Room:
    """`free` for this user; `reserved` bytes of it that other running transfers will take; `held` bytes that parts have
    on the disk by their path: room that was set aside counts."""

    free: Space
    reserved: int = 0
    held: Mapping[str, int] = field(default_factory=dict)


async def look_for_room(host: Host, folder: str, parts: Sequence[str]) -> Room:
    """Ask for the room below a folder, which may not exist yet. Other transfers are looked for in the folders beside
    it: the checkpoints of one evaluation host lie together. Where that can't be told, none are known."""
    folder = folder.rstrip("/") or "/"
    free = await host.free_space(folder)
    try:
        told = await _told(host, folder, _around(folder), [])
        held = await _held(host, folder, parts)
    except HostUnreachable:
        raise
    except HostError:
        return Room(free)
    return Room(free, _parse(told)[1], held)


async def _held(host: Host, folder: str, parts: Sequence[str]) -> dict[str, int]:
    """Bytes that parts have on the disk, by their path."""
    held: dict[str, int] = {}
    for some in portions(parts):
        taken, _ = _parse(await _told(host, folder, "", some))
        held |= zip(some, taken, strict=False)
    return held


async def _told(host: Host, folder: str, around: str, parts: Sequence[str]) -> str:
    argv = ["sh", "-c", _LOOK, "dflash", folder, around, str(int(LIVE_SECONDS)), *parts]
    return (await host.run(argv, timeout=60, check=False)).text


def _around(folder: str) -> str:
    """Where checkpoints beside this one lie: two folders up, but no folder so high that half a disk is below it."""
    around = posixpath.dirname(posixpath.dirname(folder))
    return around if around.count("/") > 1 else posixpath.dirname(folder) if folder.count("/") > 2 else ""


def _parse(told: str) -> tuple[list[int], int]:
    held: list[int] = []
    claims: list[list[int]] = []
    for line in told.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "claim":
            holder = parse_claim(rest)
            claims.append([holder.nbytes if holder is not None else 0])
            continue
        words = rest.split()
        taken = int(words[0]) * int(words[1]) if len(words) == 2 and all(word.isdecimal() for word in words) else 0
        if kind == "part":
            held.append(taken)
        elif kind == "held" and claims:
            claims[-1].append(taken)
    return held, sum(max(0, nbytes - sum(parts)) for nbytes, *parts in claims)


def check_space(where: str, files: Sequence[tuple[int, int]], room: Room, *, takes_bytes: bool = True) -> None:
    """Raise NoSpace when a place can't hold files that are each given as (size, bytes that its part holds already)."""
    needed = sum(max(0, size - held) for size, held in files)
    free = room.free.bytes - room.reserved
    if takes_bytes and needed > free:
        others = f", {room.reserved:,} of them for other transfers that run now" if room.reserved else ""
        raise NoSpace(
            f"{where} has {room.free.bytes:,} bytes free{others} and {needed:,} are needed, {needed - free:,} too few; "
            "remove old checkpoints there or name another folder"
        )
    # A part and its journal; a claim, the record and the name that it is written under, and the folder.
    count = 2 * len(files) + 4
    if files and room.free.inodes is not None and room.free.inodes < count:
        raise NoSpace(f"{where} has {room.free.inodes} inodes free and {count} are needed; remove files there")


async def missing_room(host: Host, folder: str, parts: Mapping[str, int]) -> int:
    """How many bytes too few are free for parts of these sizes by path, 0 when all of them fit. Other transfers set
    their own room aside, or look for themselves."""
    # What is free is asked first: bytes that arrive in between then count for us, never against.
    free = (await host.free_space(folder)).bytes
    held = await _held(host, folder, list(parts))
    needed = sum(max(0, size - held.get(part, size)) for part, size in parts.items())
    return max(0, needed - free)
