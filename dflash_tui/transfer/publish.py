"""A verified part gets its final name, by a command of its own, and never in another file's place."""

from __future__ import annotations

from dflash_tui.hosts.base import FileMissing, Host, Stat
from dflash_tui.transfer.errors import DestinationTaken, TransferCut, TransferError

_SLOWEST = 10_000_000
"""Bytes a second below which a disk is given up."""

_CHANGED = 76
_NAME = f"""
part=$1 final=$2 size=$3 alone=$4
if [ -n "$alone" ]; then
  exec 9<"$part" || exit 4
  if [ -n "$(command -v flock)" ]; then flock -n 9 || exit {_CHANGED}; fi
fi
have=$(stat -c %s "$part" 2>&- || stat -f %z "$part")
[ "$have" = "$size" ] || exit {_CHANGED}
if [ -e "$final" ] || [ -L "$final" ]; then exit 5; fi
ln "$part" "$final" || exit 5
rm -f "$part"
"""


async def publish(host: Host, part: str, final: str, proven: Stat, *, alone: bool = True) -> None:
    """Name `part` (whole and verified when its stat was `proven`) `final`. Raises DestinationTaken when the name is in
    use, and leaves it alone; TransferCut when somebody wrote into the part after it was verified.

    A hard link refuses a taken name in one step, on every userland; `mv -n` is for filesystems without links. With
    `alone`, the name is given under the writers' lock: a writer that is let loose late, by a line that comes back,
    either finds the lock taken or makes a new part that nobody continues.
    """
    size = proven.size
    # Old userlands have a `sync` without operands only; what counts was read back for its hash.
    await host.run(["sync", part], timeout=600 + size / _SLOWEST, check=False)
    now = await host.stat(part, follow=False)
    if (now.kind, now.size, now.mtime, now.inode) != (proven.kind, size, proven.mtime, proven.inode):
        raise _written_to(host, part)
    argv = ["sh", "-c", _NAME, "dflash", part, final, str(size), "alone" if alone else ""]
    linked = await host.run(argv, timeout=60, check=False)
    if linked.status == _CHANGED:
        raise _written_to(host, part)
    if linked.status != 0:
        if await _present(host, final):
            raise DestinationTaken(f"{host.name}:{final} came into being meanwhile; it was left as it is")
        await host.run(["mv", "-n", part, final])
    try:
        stat = await host.stat(final, follow=False)
    except FileMissing:
        raise TransferError(f"{host.name}:{final} could not be named: {linked.stderr.strip()}") from None
    if stat.kind != "file" or stat.size != size or (linked.status != 0 and await _present(host, part)):
        raise DestinationTaken(f"{host.name}:{final} came into being meanwhile; it was left as it is")


def _written_to(host: Host, part: str) -> TransferCut:
    return TransferCut(f"{host.name}:{part} was written to after it had been verified; it is looked at again")


async def _present(host: Host, path: str) -> bool:
    try:
        await host.stat(path, follow=False)
    except FileMissing:
        return False
    return True
