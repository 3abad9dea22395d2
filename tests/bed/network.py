"""Namespaces joined by veth pairs: a network that exists for one test run, with cables that can be pulled."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from dflash_tui.harness.process import start_ticks
from tests.sshd import missing, need

_NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_OWNER = re.compile(r"dflash-(\d+)-(\d+)-")
_serial = count()


@dataclass(frozen=True)
class Wire:
    """A cable between two namespaces; `address` is that of its far end, where it is pulled."""

    far: str
    device: str
    address: str

    def cut(self) -> None:
        """Pull the cable: packets vanish, and nobody is told."""
        _ip("-n", self.far, "link", "set", self.device, "down")

    def mend(self) -> None:
        """Plug it in again; the address and its route are back with it."""
        _ip("-n", self.far, "link", "set", self.device, "up")


@dataclass(frozen=True)
class Network:
    """`name` begins the names of everything that the network has on this machine, its owner's process in it."""

    name: str

    def namespace(self, machine: str) -> str:
        """The namespace of a machine."""
        return f"{self.name}{machine}"

    def add(self, machine: str) -> None:
        """A machine without any cable; it forwards nothing."""
        there = self.namespace(machine)
        _ip("netns", "add", there)
        _ip("-n", there, "link", "set", "lo", "up")
        self.inside(machine, "sysctl", "-qw", "net.ipv4.ip_forward=0")

    def join(self, near: str, far: str, subnet: int) -> Wire:
        """A cable: 10.99.`subnet`.1 at the near end, .2 at the far one."""
        here, there = self.namespace(near), self.namespace(far)
        ours, theirs = f"to-{far}", f"to-{near}"
        _ip("link", "add", ours, "netns", here, "type", "veth", "peer", "name", theirs, "netns", there)
        for namespace, device, last in ((here, ours, 1), (there, theirs, 2)):
            _ip("-n", namespace, "address", "add", f"10.99.{subnet}.{last}/30", "dev", device)
            _ip("-n", namespace, "link", "set", device, "up")
        return Wire(there, theirs, f"10.99.{subnet}.2")

    def entering(self, machine: str) -> tuple[str, ...]:
        """What is put before a command, so that it has that machine's network and no other."""
        return ("nsenter", f"--net={_NAMESPACES / self.namespace(machine)}")

    def inside(self, machine: str, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in a machine's network."""
        return subprocess.run([*self.entering(machine), *argv], capture_output=True, text=True, check=check, timeout=60)

    @contextmanager
    def entered(self, machine: str) -> Iterator[None]:
        """This thread, and those that it starts meanwhile, have that machine's network."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(_NAMESPACES / self.namespace(machine), os.O_RDONLY)
        try:
            _setns(there)
            yield
        finally:
            _setns(before)
            os.close(before)
            os.close(there)

    def reaches(self, machine: str, address: str, port: int = 22) -> bool:
        """Whether a connection from a machine to an address is answered."""
        code = f"import socket; socket.create_connection(({address!r}, {port}), 1).close()"
        return self.inside(machine, shutil.which("python3") or "python3", "-c", code, check=False).returncode == 0

    def remove(self) -> None:
        """Every process that is left on the network, then the network."""
        for path in sorted(_NAMESPACES.glob(f"{self.name}*")):
            _remove(path.name)


def _setns(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextmanager
def network() -> Iterator[Network]:
    """A network with the workstation on it, until the block ends."""
    for program in ("ip", "nsenter", "unshare", "sysctl"):
        need(shutil.which(program) is not None, program)
    if os.geteuid() != 0:
        missing("network namespaces need root")
    made = Network(f"dflash-{os.getpid()}-{start_ticks(os.getpid())}-{next(_serial)}-")
    try:
        made.add("workstation")
    except subprocess.CalledProcessError as error:
        missing(f"no network namespace can be made here: {error.stderr.strip()}")
    try:
        yield made
    finally:
        made.remove()


def remove_strays() -> None:
    """Networks and folders of test runs that were killed."""
    for path in (*_NAMESPACES.glob("dflash-*"), *Path("/tmp").glob("dflash-*")):
        owner = _OWNER.match(path.name)
        if owner is not None and start_ticks(int(owner[1])) != int(owner[2]):
            if path.parent == _NAMESPACES:
                _remove(path.name)
            else:
                shutil.rmtree(path, ignore_errors=True)


def _remove(namespace: str) -> None:
    pids = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    for pid in map(int, pids.stdout.split()):
        if pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    # Gone already where another run found the same stray.
    subprocess.run(["ip", "netns", "delete", namespace], capture_output=True, check=False)


def _ip(*words: str) -> None:
    try:
        subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=60)
    except subprocess.CalledProcessError as error:
        if words[0] != "netns":
            pytest.fail(f"ip {' '.join(words)}: {error.stderr}")
        raise
