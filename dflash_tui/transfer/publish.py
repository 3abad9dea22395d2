"""A verified part gets its final name, by a command of its own, and never in another file's place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dflash_tui.hosts.base import Completed, Host, Stat
from dflash_tui.hosts.several import stats_of
from dflash_tui.transfer.errors import DestinationTaken, TransferCut, TransferError
from dflash_tui.transfer.journal import aside_name
from dflash_tui.transfer.locks import END_OTHERS, LOCK
from dflash_tui.transfer.portions import portions

_SLOWEST = 10_000_000
"""Bytes a second below which a disk is given up."""

_TAKEN, _CHANGED = 5, 76
# Who waits for the lock, or looks for the part by its name, never gets at what has the name in the end: it is moved
# away first, and only then linked. Where nothing locks, whoever opened it before that is ended.
_NAME = (
    LOCK
    + END_OTHERS
    + f"""
part=$1 final=$2 aside=$3 size=$4 mtime=$5 inode=$6
back() {{ [ "$aside" = "$part" ] || mv -f "$aside" "$part"; exit "$1"; }}
if [ "$aside" != "$part" ]; then
  [ -f "$part" ] && [ ! -L "$part" ] || exit {_CHANGED}
  exec 9<>"$part"
  lock -n || exit {_CHANGED}
  still_named "$part" || exit {_CHANGED}
  mv "$part" "$aside" || exit 4
  [ -n "$locks" ] || end_others "$aside"
fi
have=$(stat -c '%s %Y %i' "$aside" 2>&- || stat -f '%z %m %i' "$aside")
[ "$inode" != 0 ] || have="${{have% *}} 0"
[ "$have" = "$size $mtime $inode" ] || back {_CHANGED}
if [ -e "$final" ] || [ -L "$final" ]; then back {_TAKEN}; fi
if ln "$aside" "$final"; then
  rm -f "$aside"
else
  mv -n "$aside" "$final"
  if [ -e "$aside" ]; then back {_TAKEN}; fi
fi
exit 0
"""
)


@dataclass(frozen=True)
class Proven:
    """A whole and verified `part`, whose stat was `stat` then, and the name that it gets. `alone`: see `publish`."""

    part: str
    final: str
    stat: Stat
    alone: bool = True


async def publish(host: Host, some: Sequence[Proven]) -> list[DestinationTaken | None]:
    """Give parts their names, each by a command of its own: for each of them what is wrong where its name is in use;
    that file is left alone. Raises TransferCut when somebody wrote into one after it was verified.

    A hard link refuses a taken name in one step, on every userland; `mv -n` is for filesystems without links. Where it
    is `alone`, the name is given under the writers' lock, and to a file that no writer can find any more: one that is
    let loose late, by a line that comes back, makes a new part that nobody continues.
    """
    for paths in portions([each.part for each in some]):
        # Old userlands have a `sync` without operands only; what counts was read back for its hash.
        timeout = 600 + sum(each.stat.size for each in some) / _SLOWEST
        await host.run(["sync", *paths], timeout=timeout, check=False)
    for each, now in zip(some, await stats_of(host, [each.part for each in some], follow=False), strict=True):
        proven = each.stat
        if (now.kind, now.size, now.mtime, now.inode) != (proven.kind, proven.size, proven.mtime, proven.inode):
            raise _written_to(host, each.part)
    named = [await _name(host, each) for each in some]
    taken: list[DestinationTaken | None] = []
    stats = await host.stat_many([each.final for each in some], follow=False)
    for each, done, stat in zip(some, named, stats, strict=True):
        if stat is None:
            raise TransferError(f"{host.name}:{each.final} could not be named: {done.stderr.strip()}")
        right = done.status == 0 and stat.kind == "file" and stat.size == each.stat.size
        other = DestinationTaken(f"{host.name}:{each.final} came into being meanwhile; it was left as it is")
        taken.append(None if right else other)
    return taken


async def _name(host: Host, each: Proven) -> Completed:
    """Name one: with status 0, or _TAKEN."""
    aside = aside_name(each.part) if each.alone else each.part
    known = [str(each.stat.size), str(math.floor(each.stat.mtime)), str(each.stat.inode)]
    argv = ["sh", "-c", _NAME, "dflash", each.part, each.final, aside, *known]
    named = await host.run(argv, timeout=60, check=False)
    if named.status == _CHANGED:
        raise _written_to(host, each.part)
    if not 0 <= named.status <= 128:
        raise TransferCut(f"{host.name}:{each.final} was being named when signal {abs(named.status) % 128} ended that")
    if named.status not in (0, _TAKEN):
        raise TransferError(f"{host.name}:{each.final} could not be named: {named.stderr.strip()}")
    return named


def _written_to(host: Host, part: str) -> TransferCut:
    return TransferCut(f"{host.name}:{part} was written to after it had been verified; it is looked at again")
