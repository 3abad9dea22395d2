"""Two hosts for tests of what carries bytes: real sshds, and containers behind launchers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dflash_tui.checkpoints.segments import Output
from dflash_tui.hosts.base import Host
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.ssh import SshHost
from dflash_tui.transfer.engine import Leg
from tests.launchers.boxes import running_box
from tests.pct import Pct
from tests.sshd import Sshd, running_sshd

MIB = 1 << 20


@dataclass
class Place:
    """A host and one of its folders: `folder` in the host's view, `real` in this machine's."""

    host: Host
    folder: str
    real: Path
    sshd: Sshd | None = None


@asynccontextmanager
async def place(kind: str, folder: Path, name: str) -> AsyncIterator[Place]:
    """ "local", "ssh", "pct" (a busybox container behind an sshd) or "docker" (one behind an sshd, too)."""
    async with AsyncExitStack() as stack:
        folder.mkdir()
        real = folder / "data"
        real.mkdir()
        if kind == "local":
            yield Place(LocalHost(name), str(real), real)
            return
        (folder / "sshd").mkdir()
        server = stack.enter_context(running_sshd(folder / "sshd"))
        host = SshHost(name, server.address)
        stack.push_async_callback(host.close)
        if kind == "ssh":
            yield Place(host, str(real), real, server)
            return
        (folder / "box").mkdir()
        if kind == "pct":
            pct = Pct(folder / "box")
            for applet in ("fallocate", "head", "ls"):
                (pct.root / "bin" / applet).symlink_to("busybox")
            yield Place(ContainerHost(host, pct.prefix(), name), "/data", pct.root / "data", server)
        else:
            box = stack.enter_context(running_box(folder / "box", "docker"))
            yield Place(ContainerHost(host, box.prefix(), name), "/data", box.root / "data", server)


@dataclass
class Told:
    """What an engine has told of its legs."""

    read: int = 0
    written: int = 0
    chunks: dict[int, str] = field(default_factory=dict)
    paced: int = 0

    def count(self, read: int, written: int) -> None:
        self.read += read
        self.written += written

    async def pace(self, nbytes: int) -> None:
        self.paced += nbytes


def leg(
    source: Place,
    output: Output,
    destination: Place,
    told: Told,
    *,
    start: int = 0,
    stop: int | None = None,
    part: str = ".x.part",
) -> Leg:
    """A leg of an output between two places."""
    return Leg(
        source.host, source.folder, output, destination.host, f"{destination.folder}/{part}", start,
        output.size if stop is None else stop, output.size, told.count, told.chunks.__setitem__, told.pace,
    )  # fmt: skip


def fill(path: Path, size: int) -> bytes:
    """Bytes that no other place of the file has."""
    data = os.urandom(size)
    path.write_bytes(data)
    return data
