"""The demo's whole world: a hypervisor whose container trains, and an evaluation host, in one temporary folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import TracebackType

from dflash_tui.config import BaselineConfig, Config, EvaluationConfig, HostConfig, TrainingConfig
from dflash_tui.demo import reaper
from dflash_tui.demo.changes import CHANGES
from dflash_tui.demo.commands import Side, short
from dflash_tui.demo.confine import Folder
from dflash_tui.demo.contents import CONTENTS
from dflash_tui.demo.corpus import DATA
from dflash_tui.demo.entries import ENTRIES
from dflash_tui.demo.errors import DemoError
from dflash_tui.demo.machine import MACHINE, environment, python
from dflash_tui.demo.proxmox import Container, pct
from dflash_tui.demo.servers import Server, fresh_key, listen
from dflash_tui.demo.shell import sh
from dflash_tui.demo.tail import tail
from dflash_tui.hosts.base import Host
from dflash_tui.hosts.container import ContainerHost
from dflash_tui.hosts.ssh import SshHost

TRAINING = "tiny-dflash"
PUBLISHED = "published"
"""The shipped baseline drafter, as the demo's config calls it."""
VMID = 200

_REAPER_SECONDS = reaper.LIMIT + 5


class DemoWorld:
    """The demo from its start to its end: `async with DemoWorld() as world`.

    It holds two SSH servers of this process, a trainer as a child process, and a reaper that ends everything and
    removes the folder when this process is done or dead. `hosts` are "pve", "ct200" and "lab",
    `config` what a user would have written for them, `baseline` the shipped drafter's folder on the lab.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        steps: int | None = None,
        block_size: int = 16,
        min_step: float = 0.25,
        train: bool = True,
        data: Path = DATA,
    ) -> None:
        """`steps` None: the trainer's own number; `min_step`: least seconds of a step; `data`: the shipped files."""
        self._data = data
        self._seed, self._steps, self._block_size, self._min_step = seed, steps, block_size, min_step
        self._train = train
        self._reaper: subprocess.Popen[bytes] | None = None
        self._trainer: subprocess.Popen[bytes] | None = None
        self._servers: list[Server] = []
        self.hosts: dict[str, Host] = {}
        self.root = Path()
        self.config: Config
        self.container: Container

    @property
    def baseline(self) -> str:
        """The shipped baseline drafter, a folder on the lab."""
        return str(self.root / "lab" / "baseline")

    @property
    def trainer_running(self) -> bool:
        """Whether the training process lives."""
        return self._trainer is not None and self._trainer.poll() is None

    @property
    def trainer_failure(self) -> str | None:
        """Why the trainer ended, one sentence; None while it runs or when it ended well."""
        if self._trainer is None or self._trainer.poll() in (None, 0):
            return None
        said = (self.root / "trainer.out").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = said[-1] if said else "it said nothing"
        return f"the demo's trainer ended with status {self._trainer.returncode}: {last}"

    async def __aenter__(self) -> DemoWorld:
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clean = await self._close()
        if not clean and kind is None:
            raise DemoError(f"{self.root}: something of the demo is left; end its processes and remove the folder")

    async def _start(self) -> None:
        self._reaper, self.root = await asyncio.to_thread(_start_reaper)
        await asyncio.to_thread(_lay_out, self.root, self._data)
        if self._train:
            self._trainer = self._start_trainer()
        plain = {name: short(answering) for name, answering in (ENTRIES | CHANGES | MACHINE).items()}
        common = CONTENTS | plain | {"tail": tail, "sh": sh(str(self.root))}
        sides = {name: Folder(str(self.root / name)) for name in ("pve", "ct200", "lab")}
        self.container = Container(VMID, Side("trainer", sides["ct200"], common))
        key = fresh_key()
        commands = {
            "pve": common | {"pct": pct("pve", [self.container])},
            "lab": common | {"python3": python(str(self.root))},
        }
        for name, own in commands.items():
            server = await listen(Side(name, sides[name], own), key)
            self._servers.append(server)
            self.hosts[name] = SshHost(name, server.address)
        self.hosts["ct200"] = ContainerHost(self.hosts["pve"], ("pct", "exec", str(VMID), "--"), "ct200")
        self.config = self._configured()

    def _configured(self) -> Config:
        training, lab = self.root / "ct200" / "workspace" / TRAINING, self.root / "lab"
        hosts = {
            name: HostConfig(name, ssh=f"{server.address.username}@{server.address.host}:{server.address.port}")
            for name, server in zip(("pve", "lab"), self._servers, strict=True)
        }
        hosts["ct200"] = HostConfig("ct200", via="pve", container=("pct", "exec", str(VMID), "--"))
        return Config(
            path=str(self.root / "config.toml"),
            training=TrainingConfig(
                name=TRAINING,
                host="ct200",
                log=str(training / "train.log"),
                checkpoints=str(training / "checkpoints"),
                arguments=str(training / "train_args.json"),
            ),
            evaluation=EvaluationConfig(
                host="lab",
                root=str(lab / "eval"),
                target=str(lab / "models" / "tiny-target"),
                prompts=str(lab / "prompts.jsonl"),
                hidden_states=(str(lab / "hidden_states"),),
                block_size=self._block_size,
                threads=1,
            ),
            hosts=hosts,
            baselines=(BaselineConfig(PUBLISHED, drafter=self.baseline),),
        )

    def _start_trainer(self) -> subprocess.Popen[bytes]:
        workspace = self.root / "ct200" / "workspace"
        argv = [sys.executable, "-m", "dflash_tui.demo.trainer", str(workspace / TRAINING / "checkpoints"), "--tether"]
        argv += ["--target", str(workspace / "tiny-target"), "--init", str(workspace / "baseline")]
        argv += ["--rows", str(workspace / "rows.jsonl"), "--seed", str(self._seed), "--min-step", str(self._min_step)]
        argv += [] if self._steps is None else ["--steps", str(self._steps)]
        env = environment(str(self.root), str(self.root / "ct200"))
        package = str(Path(__file__).parents[2])
        if package != sysconfig.get_path("purelib"):
            env["PYTHONPATH"] = package
        with (self.root / "trainer.out").open("wb") as said:
            return subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=said, stderr=said, cwd=workspace, env=env, start_new_session=True
            )

    async def _close(self) -> bool:
        """Close connections and servers, let the reaper do its work and wait for it; whether nothing is left."""
        try:
            for host in self.hosts.values():
                await host.close()
            for server in self._servers:
                await server.close()
        finally:
            clean = await asyncio.to_thread(self._reap)
        self._servers = []
        return clean

    def _reap(self) -> bool:
        if self._reaper is None:
            return True
        clean = False
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            clean = self._reaper.wait(_REAPER_SECONDS) == 0
        if not clean:
            # Someone ended the reaper itself.
            clean = reaper.reap(str(self.root))
        if self._trainer is not None:
            assert self._trainer.stdin is not None
            self._trainer.stdin.close()
            self._trainer.wait()
        self._reaper = None
        return clean


def _start_reaper() -> tuple[subprocess.Popen[bytes], Path]:
    """The reaper and the folder that it has made."""
    base = os.path.realpath(tempfile.gettempdir())
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", reaper.__file__, base],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout as stream:
        root = stream.readline().decode().strip()
    if not root:
        process.wait()
        raise DemoError(f"{base}: no folder can be made there for the demo; set TMPDIR to one that can be written")
    return process, Path(root)


def _lay_out(root: Path, data: Path) -> None:
    """Every file that is there before anyone works, on the side where a user would have it."""
    if not (data / "target").is_dir():
        raise DemoError(f"{data / 'target'}: the demo's target is not there; install dflash-tui again")
    workspace, lab = root / "ct200" / "workspace", root / "lab"
    for folder in (root / "pve", root / "ct200" / "tmp", workspace, lab / "tmp", lab / "eval"):
        folder.mkdir(parents=True)
    for target in (workspace / "tiny-target", lab / "models" / "tiny-target"):
        shutil.copytree(data / "target", target, copy_function=shutil.copyfile)
    for baseline in (workspace / "baseline", lab / "baseline"):
        shutil.copytree(data / "baseline", baseline, copy_function=shutil.copyfile)
    shutil.copyfile(data / "rows.jsonl", workspace / "rows.jsonl")
    shutil.copyfile(data / "prompts.jsonl", lab / "prompts.jsonl")
    # Last, so that by their times they are not older than the target that they were made from.
    shutil.copytree(data / "hidden_states", lab / "hidden_states", copy_function=shutil.copyfile)
