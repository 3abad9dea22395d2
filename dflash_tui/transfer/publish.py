"""A verified part gets its final name, by a command of its own, and never in another file's place."""

from __future__ import annotations

import math

from dflash_tui.hosts.base import FileMissing, Host, Stat
from dflash_tui.transfer.errors import DestinationTaken, TransferCut, TransferError
from dflash_tui.transfer.journal import aside_name
from dflash_tui.transfer.locks import END_OTHERS, LOCK

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


async def publish(host: Host, part: str, final: str, proven: Stat, *, alone: bool = True) -> None:
    """Name `part` (whole and verified when its stat was `proven`) `final`. Raises DestinationTaken when the name is in
    use, and leaves it alone; TransferCut when somebody wrote into the part after it was verified.

    A hard link refuses a taken name in one step, on every userland; `mv -n` is for filesystems without links. With
    `alone`, the name is given under the writers' lock, and to a file that no writer can find any more: one that is let
    loose late, by a line that comes back, makes a new part that nobody continues.
    """
    size = proven.size
    # Old userlands have a `sync` without operands only; what counts was read back for its hash.
    await host.run(["sync", part], timeout=600 + size / _SLOWEST, check=False)
    now = await host.stat(part, follow=False)
    if (now.kind, now.size, now.mtime, now.inode) != (proven.kind, size, proven.mtime, proven.inode):
        raise _written_to(host, part)
    aside = aside_name(part) if alone else part
    known = [str(size), str(math.floor(proven.mtime)), str(proven.inode)]
    named = await host.run(["sh", "-c", _NAME, "dflash", part, final, aside, *known], timeout=60, check=False)
    if named.status == _CHANGED:
        raise _written_to(host, part)
    if not 0 <= named.status <= 128:
        raise TransferCut(f"{host.name}:{final} was being named when signal {abs(named.status) % 128} ended that")
    if named.status not in (0, _TAKEN):
        raise TransferError(f"{host.name}:{final} could not be named: {named.stderr.strip()}")
    try:
        stat = await host.stat(final, follow=False)
    except FileMissing:
        raise TransferError(f"{host.name}:{final} could not be named: {named.stderr.strip()}") from None
    if named.status != 0 or stat.kind != "file" or stat.size != size:
        raise DestinationTaken(f"{host.name}:{final} came into being meanwhile; it was left as it is")


def _written_to(host: Host, part: str) -> TransferCut:
    return TransferCut(f"{host.name}:{part} was written to after it had been verified; it is looked at again")
