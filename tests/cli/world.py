"""A user's workstation and two hosts behind real sshds: a hypervisor with the training's container, and a machine that
evaluates. Commands run as processes with a HOME of their own."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import dflash_tui
from tests.harness.world import world
from tests.pct import Pct
from tests.sshd import Sshd, processes_with, running_sshd
from tests.workstation import RAW, STORY, Login, Workstation, tree, write_ssh

DEMO = Path(dflash_tui.__file__).parent / "demo" / "data"


@dataclass(frozen=True)
class Desk(Workstation):
    """`before` holds both sides' files as they were."""

    pve: Sshd
    ct129: Sshd
    before: dict[Path, dict[str, tuple[int, int, bytes]]]


@contextmanager
def desk(root: Path) -> Iterator[Desk]:
    """Everything, until the block ends; no process is left."""
    for name in ("pve", "ct129", "lab", "home", "tmp", "spoilt"):
        (root / name).mkdir()
    path = {"PATH": f"{root}/pve:/usr/local/bin:/usr/bin:/bin"}  # `pct` is found there, as on a Proxmox host
    with running_sshd(root / "pve", environment=path) as pve, running_sshd(root / "ct129") as ct129:
        made = Desk(root, root / "home", Pct(root / "pve").root, world(root / "lab"), pve, ct129, {})
        made.fill()
        _others(made)
        write_ssh(made.home, [_login("pve1", pve), _login("ct129", ct129)])
        made.before.update({folder: tree(folder) for folder in (made.container, made.lab.root)})
        made.write_config()
        try:
            yield made
        finally:
            for pid in processes_with(os.fspath(root)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _others(made: Desk) -> None:
    """A result file at a fixed path, and a run directory that a console of another workstation has made."""
    old = made.evaluations / "runs" / "slammed5-step3000-quick-b16-20260520T101500Z"
    (old / "checkpoint").mkdir(parents=True)
    for name in ("manifest.json", "results.json", "exit.json"):
        (old / name).write_text('{"of": "another workstation"}\n')
    shutil.copyfile(RAW, old / "checkpoint" / "checkpoint.pt")
    shutil.copyfile(STORY / "eval_results.json", made.lab.root / "eval_results.json")


def _login(alias: str, server: Sshd) -> Login:
    options: dict[str, str | int] = {"HostName": "127.0.0.1", "Port": server.port, "User": getpass.getuser()}
    return Login(alias, options, server.folder / "client_key", f"[127.0.0.1]:{server.port} {server.host_key}")
