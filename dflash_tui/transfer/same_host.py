"""A file that is on the right host already: linked, or copied where a link is not possible."""

from __future__ import annotations

from typing import Literal

from dflash_tui.hosts.base import Host
from dflash_tui.transfer.errors import NoSpace, TransferError

_SLOWEST = 10_000_000


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
    raise TransferError(f"{host.name}:{path} can't be copied to {folder}: {done.stderr.strip()}")
