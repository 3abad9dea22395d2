"""A verified piece gets its final name, by a command of its own, and never in another file's place."""

from __future__ import annotations

from dflash_tui.hosts.base import FileMissing, Host
from dflash_tui.transfer.errors import DestinationTaken, TransferError

_SLOWEST = 10_000_000
"""Bytes a second below which a disk is given up."""


async def publish(host: Host, part: str, final: str, size: int) -> None:
    """Name `part` (whole and verified) `final`. Raises DestinationTaken when the name is in use, and leaves it alone.

    A hard link refuses a taken name in one step, on every userland; `mv -n` is for filesystems without links.
    """
    # Old userlands have a `sync` without operands only; what counts was read back for its hash.
    await host.run(["sync", part], timeout=600 + size / _SLOWEST, check=False)
    linked = await host.run(["ln", part, final], check=False)
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
    await host.run(["rm", "-f", part])


async def _present(host: Host, path: str) -> bool:
    try:
        await host.stat(path, follow=False)
    except FileMissing:
        return False
    return True
