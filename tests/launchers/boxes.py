"""Containers for tests: pid namespaces that run, stop and are entered by the stand-ins' command lines."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.sshd import need

TOOLS = ("docker", "podman", "nerdctl", "kubectl", "incus", "lxc", "srun")
NAME = "train"
JOB = "7"
_STANDIN = Path(__file__).with_name("standin.py")
_INIT = "sleep 2147483647"


class Box:
    """A container called `train` (job 7 of Slurm), entered through `tool`.

    With `root` None it has a busybox tree of its own, else it sees that tree: "/" is this machine's, with its Python.
    """

    def __init__(self, folder: Path, tool: str, root: Path | None = None) -> None:
        need(os.geteuid() == 0 and shutil.which("nsenter") is not None, "a pid namespace, which needs root,")
        self.tool, self.folder = tool, folder
        self.root = folder / "rootfs" if root is None else root
        self.name = JOB if tool == "srun" else NAME
        self.state = folder / "state"
        (self.state / self.name).mkdir(parents=True)
        (self.state / "calls").touch()
        (folder / "bin").mkdir()
        self.path = folder / "bin" / tool
        words = [sys.executable, "-I", "-S", str(_STANDIN), tool, str(self.state)]
        self.path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        self.path.chmod(0o755)
        if root is None:
            _busybox_tree(self.root)
        self._own = root is None
        self.init = 0  # its first process, as this machine numbers it
        self._process: subprocess.Popen[bytes] | None = None

    def prefix(self, name: str = "") -> tuple[str, ...]:
        """What goes before a command, as a user would write it."""
        name = name or self.name
        words = {
            "kubectl": ("exec", "-n", "lab", name, "-c", "train", "--"),
            "incus": ("exec", name, "--"),
            "lxc": ("exec", name, "--"),
            "srun": (f"--jobid={name}", "--overlap"),
        }.get(self.tool, ("exec", name))
        return (str(self.path), *words)

    @property
    def calls(self) -> list[str]:
        """The command lines so far."""
        return (self.state / "calls").read_text("utf-8", "replace").splitlines()

    def start(self, within: Box | None = None) -> None:
        """Start it (in another one: `within`), and wait until it can be entered."""
        root = shlex.quote(str(self.root))
        # busybox df finds only what is a mount point.
        mounts = f"mount --bind {root} {root} && mount -t proc proc {root}/proc"
        inside = f"{mounts} && echo up && exec chroot {root} /bin/{_INIT}"
        command = ["unshare", "--pid", "--fork", "--kill-child", "--mount" if self._own else "--mount-proc"]
        command += ["sh", "-c", inside if self._own else f"echo up; exec {_INIT}"]
        if within is not None:
            command = ["nsenter", "-t", str(within.init), "-m", "-p", "-r", "--", *command]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"up\n"
        self.init = self._process.pid
        while children := Path(f"/proc/{self.init}/task/{self.init}/children").read_text().split():
            self.init = int(children[0])
        while not Path(f"/proc/{self.init}/root").samefile(self.root):
            time.sleep(0.001)
        # Its number where the stand-in runs: the namespace around its own.
        status = Path(f"/proc/{self.init}/status").read_text()
        seen = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-2]
        (self.state / self.name / "init").write_text(seen)

    def stop(self) -> None:
        """Stop it: everything in it is killed."""
        if self._process is not None:
            os.kill(self.init, signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
            (self.state / self.name / "init").unlink()


def _busybox_tree(root: Path) -> None:
    busybox = shutil.which("busybox")
    need(busybox is not None, "busybox-static")
    assert busybox is not None
    for name in ("bin", "data", "proc", "root", "tmp", "dev"):
        (root / name).mkdir(parents=True)
    shutil.copy(busybox, root / "bin" / "busybox")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in applets:
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")


@contextmanager
def running_box(folder: Path, tool: str, root: Path | None = None, within: Box | None = None) -> Iterator[Box]:
    """A running container with its files in `folder`, which must exist, until the block ends."""
    box = Box(folder, tool, root)
    try:
        box.start(within)
        yield box
    finally:
        box.stop()
