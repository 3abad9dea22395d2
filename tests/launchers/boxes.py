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
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.sshd import need, processes_with

TOOLS = ("docker", "podman", "nerdctl", "kubectl", "incus", "lxc", "srun")
NAME = "train"
JOB = "7"
_STANDIN = Path(__file__).with_name("standin.py")
_INIT = "sleep 2147483647"
_SECONDS = 20.0


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
        self.init, self._seen = 0, ""  # its first process, as this machine and as the stand-in numbers it
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
        deadline = time.monotonic() + _SECONDS
        while not self._found(self._process.pid, 2 if within is None else 3):
            assert time.monotonic() < deadline, f"{self.path} does not start"
            time.sleep(0.001)
        (self.state / self.name / "init").write_text(self._seen)

    def _found(self, pid: int, namespaces: int) -> bool:
        """Whether the first process inside is there: in a namespace of its own, and with its root."""
        while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(children[0])
        status = Path(f"/proc/{pid}/status").read_text()
        numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[1:]
        if len(numbers) != namespaces or not Path(f"/proc/{pid}/root").samefile(self.root):
            return False
        # Its number where the stand-in runs: the namespace around its own.
        self.init, self._seen = pid, numbers[-2]
        return True

    def stop(self) -> None:
        """Stop it: everything in it is killed."""
        if self._process is not None:
            os.kill(self.init, signal.SIGKILL)
            # The namespace ends when all of it is reaped, which is its entrants' affair; one may have been stopped.
            for pid in processes_with(f"nsenter\0-t\0{self._seen}\0"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait(_SECONDS)
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
