"""A training host that is watched: a real sshd, a real growing log, checkpoints, a stand-in for `nvidia-smi`, and a
wire that counts. What the watching costs it is everything below that sshd."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from dflash_tui.config import Config, TrainingConfig
from dflash_tui.console.console import Console
from dflash_tui.hosts.base import Host, Process
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.ssh import SshHost
from dflash_tui.results.store import Store
from tests.cases import known
from tests.pct import Pct
from tests.sshd import Sshd, descendants, running_sshd

GPUS = "#!/bin/sh\n" + "echo '97, 71680, 81559'\n" * 8
LINE = "[2026-05-21 09:36:{:02d}] step={}/20000 loss=2.0073 lr=2.90e-04 block_size=32 tok/s=19.5K\n"
LINES_A_SECOND = 1.0
CHECKPOINTS = 6
MEMORY = "MemTotal:       527986632 kB\nMemAvailable:   401234567 kB\n"


@dataclass
class Wire:
    """A counting relay in front of a server."""

    port: int = 0
    out: int = 0
    back: int = 0

    @property
    def bytes(self) -> int:
        """Both ways."""
        return self.out + self.back

    @asynccontextmanager
    async def to(self, port: int) -> AsyncIterator[None]:
        """Relay to `port` until the block ends."""

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            with suppress(OSError, asyncio.CancelledError):  # it ends with the bench
                await asyncio.gather(self._pump(reader, far_writer, "out"), self._pump(far_reader, writer, "back"))

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str) -> None:
        while data := await reader.read(1 << 16):
            setattr(self, way, getattr(self, way) + len(data))
            writer.write(data)
            await writer.drain()
        writer.close()


class CountingHost(SshHost):
    """Counts the commands that it starts."""

    commands = 0

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        """See `Host.stream`."""
        self.commands += 1
        return super().stream(argv, stdin=stdin)


@dataclass
class Watched:
    """One training host and the console that watches it."""

    name: str
    sshd: Sshd
    wire: Wire
    host: CountingHost
    console: Console
    log: Path
    step: int = 5329
    seen: list[str] = field(default_factory=list)

    def grow(self) -> None:
        """The trainer writes a line."""
        self.step += 1
        with self.log.open("a") as stream:
            stream.write(LINE.format(self.step % 60, self.step))

    def cpu(self) -> float:
        """CPU seconds of everything below the server, ended processes included."""
        return cpu_below(self.sshd.pid)


def cpu_below(root: int) -> float:
    """CPU seconds of a process and all below it; of ended ones what their parents were told."""
    ticks = 0
    for pid in (root, *descendants(root)):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def training(folder: Path, *, container: bool) -> Iterator[tuple[Sshd, Path, Path, tuple[str, ...]]]:
    """A server, the training's folder as this machine sees it, its path there, and the launcher before commands."""
    folder.mkdir()
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    environment = {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    with running_sshd(folder, environment=environment) as sshd:
        prefix: tuple[str, ...] = ()
        root, inside = folder / "data", folder / "data"
        if container:
            pct = Pct(folder)
            prefix, root, inside, bin_folder = pct.prefix(), pct.root / "data", Path("/data"), pct.root / "bin"
            (pct.root / "proc" / "meminfo").write_text(MEMORY)
            (pct.root / "proc" / "loadavg").write_text("94.20 94.10 93.90 12/2345 4711\n")
        (bin_folder / "nvidia-smi").write_text(GPUS)
        (bin_folder / "nvidia-smi").chmod(0o755)
        (root / "checkpoints").mkdir(parents=True)
        for step in range(CHECKPOINTS):
            save(root, 500 * (step + 1))
        shutil.copy(known("cases/story") / "train.log", root / "train.log")
        yield sshd, root, inside, prefix


def save(root: Path, step: int) -> None:
    """The trainer saves a checkpoint."""
    source = known("cases/checkpoints/raw-step/step_4000/checkpoint.pt")
    folder = root / "checkpoints" / f"step_{step}"
    folder.mkdir()
    shutil.copy(source, folder / "checkpoint.pt")
    os.utime(folder / "checkpoint.pt", (time.time() - 3600,) * 2)  # an old one is not looked at twice


@asynccontextmanager
async def watched(name: str, folder: Path, *, container: bool) -> AsyncIterator[Watched]:
    """A training host that the product's console watches, until the block ends."""
    with training(folder, container=container) as (sshd, root, inside, prefix):
        wire = Wire()
        async with wire.to(sshd.port):
            known_hosts = folder / "known_hosts_of_the_wire"
            known_hosts.write_text(f"[127.0.0.1]:{wire.port} {sshd.host_key}\n")
            host = CountingHost("train", replace(sshd.address, port=wire.port, known_hosts=str(known_hosts)))
            seen: Host = ContainerHost(host, prefix, "ct200") if prefix else host
            config = Config(
                path=str(folder / "config.toml"),
                training=TrainingConfig("slammed5", "train", str(inside / "train.log"), str(inside / "checkpoints")),
                evaluation=None,
                hosts={},
            )
            console = Console(config, Store(folder / "state"), {"train": seen})
            await console.start()
            try:
                yield Watched(name, sshd, wire, host, console, root / "train.log")
            finally:
                await console.close()
                await host.close()


async def let_grow(hosts: Sequence[Watched], seconds: float) -> None:
    """Time passes, and the trainings go on."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for each in hosts:
            each.grow()
        await asyncio.sleep(1 / LINES_A_SECOND)
