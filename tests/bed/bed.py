"""The whole bed: a workstation, a training behind a gate, an evaluation host with another user, all on real OpenSSH."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from dflash_tui.config import Config, load_config
from dflash_tui.console.session import Session
from dflash_tui.results.store import Store
from tests.bed.machine import Machine, User, python_for_others
from tests.bed.network import Network, Wire, network, remove_strays
from tests.harness.world import world
from tests.pct import Pct
from tests.workstation import RAW, Login, Workstation, until, write_ssh

HOSTS = ("gate", "pve1", "ct129")


@dataclass(frozen=True)
class Bed(Workstation):
    """`training_link` is the way to the gate, and so to the training; `evaluation_link` the one to the evaluation host.
    `marks` is where evaluations are held: see `hold`."""

    network: Network
    gate: Machine
    pve1: Machine
    ct129: Machine
    pct: Pct
    training_link: Wire
    evaluation_link: Wire
    marks: Path
    python_there: Path

    @property
    def entering(self) -> tuple[str, ...]:
        """The workstation's network."""
        return self.network.entering("workstation")

    @property
    def launcher(self) -> tuple[str, ...]:
        """As a Proxmox user types it: `pct` is found in root's PATH there."""
        return ("pct", "exec", "200", "--")

    @property
    def python(self) -> str:
        """One that the evaluation host's user may run."""
        return os.fspath(self.python_there)

    @property
    def log(self) -> Path:
        """The training's log, as this machine sees it."""
        return self.container / "data" / "slammed5" / "train.log"

    def unset(self) -> None:
        """Before anybody has written a config; the evaluation host has an environment with torch where people look."""
        self.config.unlink()
        python = self.lab.root / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec {self.python} "$@"\n')
        python.chmod(0o755)

    def loaded(self) -> Config:
        """The config as the app reads it."""
        return load_config(self.config)

    def session(self) -> Session:
        """What the app is connected to; to be used where this process has entered the workstation (`at_home`)."""
        return Session(self.loaded(), Store(self.state))

    @contextmanager
    def at_home(self) -> Iterator[None]:
        """This process is the workstation: its network and its user's HOME."""
        before = {name: os.environ.get(name) for name in ("HOME", "SSH_AUTH_SOCK")}
        os.environ["HOME"] = os.fspath(self.home)
        os.environ.pop("SSH_AUTH_SOCK", None)
        try:
            with self.network.entered("workstation"):
                yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value

    def save_large(self, step: int, megabytes: int) -> Path:
        """A checkpoint with an optimizer's state that takes a while to move, with the weights of the others."""
        content = torch.load(RAW, weights_only=False)
        generator = torch.Generator().manual_seed(step)
        state = torch.randint(0, 256, (megabytes << 20,), dtype=torch.uint8, generator=generator)
        content["optimizer_state_dict"]["state"]["exp_avg"] = state
        content["step"] = step
        folder = self.container / "data" / "slammed5" / "checkpoints" / f"step_{step}"
        folder.mkdir(parents=True)
        with (folder / "checkpoint.pt").open("wb") as file:
            torch.save(content, file)
        return folder / "checkpoint.pt"

    def grow_log(self, steps: int = 1) -> int:
        """The training goes on; its newest step."""
        last = int(self.log.read_text().rsplit("step=", 1)[1].split("/")[0])
        with self.log.open("a") as log:
            for step in range(last + 1, last + steps + 1):
                log.write(
                    f"[2026-05-21 09:36:41] step={step}/20000 loss=2.0060 lr=2.90e-04 block_size=32 tok/s=19.5K\n"
                )
        return last + steps

    def hold(self, where: str) -> None:
        """Let the next evaluation wait at its "launch" (before it detaches) or in its "evaluation" (the first prompt's
        blocks are there, the others' are not)."""
        (self.marks / f"at-{where}").unlink(missing_ok=True)
        (self.marks / f"hold-{where}").touch()

    def held(self, where: str) -> bool:
        """Whether an evaluation has come there."""
        return (self.marks / f"at-{where}").exists()

    def reached(self, where: str) -> None:
        """Wait until one has."""
        until(lambda: self.held(where), f"an evaluation at its {where}")

    def release(self, where: str) -> None:
        """Let it go on."""
        (self.marks / f"hold-{where}").unlink()

    def run_dir(self, run_id: str) -> Path:
        """A run directory on the evaluation host, as this machine sees it."""
        return self.evaluations / "runs" / run_id


@contextmanager
def bed() -> Iterator[Bed]:
    """Everything, until the block ends; neither a process nor a namespace is left."""
    remove_strays()
    with network() as net:
        root = Path(tempfile.mkdtemp(prefix=net.name, dir="/tmp"))
        root.chmod(0o755)  # others have to come through
        try:
            with _standing(root, net) as made:
                yield made
        finally:
            net.remove()
            shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _standing(root: Path, net: Network) -> Iterator[Bed]:
    for name in HOSTS:
        net.add(name)
        (root / name / "home").mkdir(parents=True)
    training_link = net.join("workstation", "gate", 1)
    evaluation_link = net.join("workstation", "ct129", 2)
    inner = net.join("gate", "pve1", 3)
    for name in ("lab", "home", "tmp", "marks"):
        (root / name).mkdir()
    pct = Pct(root / "pve1")
    python, binds = python_for_others(root / "ct129", root / "marks")
    uid = 100_000 + 2 * os.getpid()  # nobody else's, nor of another run
    jumper = User("jump", uid, root / "gate" / "home", "/usr/sbin/nologin")
    evaluator = User("eva", uid + 1, root / "ct129" / "home")
    gate = Machine(net, "gate", training_link.address, root / "gate", jumper, extra=("AllowTcpForwarding yes",))
    path = f"{root}/pve1:/usr/sbin:/usr/bin:/sbin:/bin"
    hypervisor = User("root", 0, root / "pve1" / "home")
    pve1 = Machine(net, "pve1", inner.address, root / "pve1", hypervisor, environment={"PATH": path})
    binds = {**binds, root / "lab": Path("/srv")}  # its files have names there that a person would give them
    ct129 = Machine(net, "ct129", evaluation_link.address, root / "ct129", evaluator, binds=binds)
    made = Bed(root, root / "home", pct.root, world(root / "lab"), net, gate, pve1, ct129, pct, training_link,
               evaluation_link, root / "marks", python)  # fmt: skip
    made.fill()
    made.write_config()
    write_ssh(made.home, [_login("gate", gate), _login("pve1", pve1, ProxyJump="gate"), _login("ct129", ct129)])
    for weights in made.lab.root.rglob("*.safetensors"):
        weights.chmod(0o644)  # its writer lets nobody else read
    for folder in (made.evaluations, made.lab.hidden_states, made.marks, evaluator.home):
        _give(folder, evaluator)
    servers = (gate, pve1, ct129)
    try:
        for server in servers:
            server.start()
        yield made
    finally:
        for server in servers:
            server.stop()


def _login(alias: str, machine: Machine, **options: str) -> Login:
    return Login(
        alias,
        {"HostName": machine.listens, "User": machine.user.name, **options},
        machine.folder / "client_key",
        machine.known,
    )


def _give(folder: Path, user: User) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user.uid, user.uid, follow_symlinks=False)
