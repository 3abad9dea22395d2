"""A file that is on the right host already: linked, copied where a link is not possible, or put together there."""

from __future__ import annotations

from typing import Literal

from dflash_tui.checkpoints.segments import clipped
from dflash_tui.hosts.base import Host, ReadShort
from dflash_tui.transfer.emission import emission
from dflash_tui.transfer.engine import Leg, Passed, Route
from dflash_tui.transfer.errors import NoSpace, TransferError
from dflash_tui.transfer.relaying import judge_destination
from dflash_tui.transfer.writing import writing

_SLOWEST = 10_000_000
_LEG = 1 << 30


async def place(host: Host, path: str, part: str, size: int) -> Literal["linked", "copied"]:
    """Make `part` a hard link to `path`, or a copy (sharing blocks where the filesystem can)."""
    if (await host.stat(path, follow=False)).kind == "file":
        linked = await host.run(["ln", path, part], check=False)
        if linked.status == 0:
            return "linked"
    folder = part.rsplit("/", 1)[0] or "/"
    free = (await host.free_space(folder)).bytes
    if free < size:
        raise NoSpace(f"{host.name}:{folder} has {free:,} bytes free and {size:,} are needed; remove files there")
    timeout = 60 + size / _SLOWEST
    # Busybox has no --reflink.
    for argv in (["cp", "--reflink=auto", path, part], ["cp", path, part]):
        done = await host.run(argv, timeout=timeout, check=False)
        if done.status == 0:
            return "copied"
        await host.run(["rm", "-f", part], check=False)
        if "No space left" in done.stderr or "quota" in done.stderr.lower():
            raise NoSpace(f"{host.name}:{folder}: the disk or quota is full; remove files there and try again")
    raise TransferError(f"{host.name}:{path} can't be copied to {folder}: {done.stderr.strip()}")


class PipeEngine:
    """Carries legs by one command of the host that is both ends: what reads and what writes are joined by its pipe."""

    route: Route = "same host"
    longest = _LEG

    async def carry(self, leg: Leg) -> Passed:
        """See `Engine.carry`."""
        host = leg.destination
        nbytes = leg.stop - leg.start
        program = emission(leg.folder, clipped(leg.output.segments, leg.start, leg.stop))
        argv = ["sh", "-c", 'sh | "$@"', "dflash", *writing(leg.part, leg.start, leg.size)]
        done = await host.run(argv, stdin=program.stdin, timeout=60 + nbytes / _SLOWEST, check=False)
        judge_destination(f"{host.name}:{leg.part}", done)
        # What reads stands at the pipe's other end: its status is seen by nobody.
        have = (await host.stat(leg.part)).size
        if have != leg.stop:
            raise ReadShort(f"{host.name}:{leg.folder} ended at {have:,} of {leg.stop:,} bytes: {done.stderr.strip()}")
        leg.count(nbytes, nbytes)
        return Passed()
