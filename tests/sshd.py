"""A real OpenSSH server on loopback for tests: own keys, own configuration, nothing of the user's."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from dflash_tui.hosts.address import SshAddress

_SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
_START_SECONDS = 10.0


def need(found: bool, what: str) -> None:
    """Skip a test that lacks a part of the system, or fail it where all parts are required."""
    if not found:
        missing(f"{what} is not installed")


def missing(message: str) -> NoReturn:
    """Skip a test that can't be done here, or fail it where all parts are required."""
    if os.environ.get("DFLASH_REQUIRE_ALL") == "1":
        pytest.fail(message)
    pytest.skip(message)


class Sshd:
    """A running server. `kill_sessions` ends every session at once; `stop` and `start` are a reboot with the same keys.

    `entering` is put before the server's command, so that it runs elsewhere, where `address` is its own; `environment`
    is what its commands have beside a HOME of their own.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        extra: str = "",
        *,
        address: str = "127.0.0.1",
        entering: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.port = port
        self._listens = address
        self._entering = tuple(entering)
        self._child: subprocess.Popen[bytes] | None = None
        self._write_files(extra, {"HOME": str(folder), **(environment or {})})

    def _write_files(self, extra: str, environment: Mapping[str, str]) -> None:
        # One line: sshd heeds the first only.
        variables = " ".join(f"{name}={value}" for name, value in environment.items() if value)
        for key in ("host_key", "client_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", self.folder / key], check=True
            )
        shutil.copy(self.folder / "client_key.pub", self.folder / "authorized_keys")
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {self.host_key}\n")
        (self.folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress {self._listens}\nHostKey {self.folder}/host_key\n"
            f"AuthorizedKeysFile {self.folder}/authorized_keys\nPidFile none\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nPrintMotd no\n"
            # A shell that sshd starts reads ~/.bashrc: the user's must not take part.
            f"PermitTTY no\nLogLevel ERROR\nSetEnv {variables}\n{extra}\n"
        )

    @property
    def host_key(self) -> str:
        """The public host key as known_hosts has it: type and base64."""
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    @property
    def address(self) -> SshAddress:
        """How a test logs in."""
        return SshAddress(
            host="127.0.0.1",
            port=self.port,
            username=getpass.getuser(),
            config=None,
            client_keys=[str(self.folder / "client_key")],
            known_hosts=str(self.folder / "known_hosts"),
            agent=False,
        )

    def start(self) -> None:
        """Start the server and wait until it answers."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._child = subprocess.Popen(
            [*self._entering, _SSHD, "-D", "-e", "-f", self.folder / "sshd_config"],
            stdin=subprocess.DEVNULL,
            stderr=(self.folder / "sshd.log").open("ab"),
        )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            if self._child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"sshd did not start: {(self.folder / 'sshd.log').read_text()}")
            if self.answers():
                return
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        """The listener's process id, while it runs."""
        assert self._child is not None
        return self._child.pid

    def answers(self) -> bool:
        """Whether a connection is taken."""
        with suppress(OSError), socket.create_connection((self._listens, self.port), timeout=1):
            return True
        return False

    def kill_sessions(self) -> None:
        """Kill every session of this server at once; it goes on listening."""
        assert self._child is not None
        for pid in descendants(self._child.pid):
            if _command_name(pid).startswith("sshd"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Kill the server and everything below it."""
        if self._child is not None:
            for pid in [self._child.pid, *descendants(self._child.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._child.wait()
            self._child = None


def descendants(root: int) -> list[int]:
    """The processes below `root`, parents first."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                below.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        children = below.get(queue.pop(0), [])
        found += children
        queue += children
    return found


def processes_with(text: str) -> list[int]:
    """The processes whose command line holds `text`, this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if text.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def _command_name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@contextmanager
def running_sshd(
    folder: Path, extra: str = "Subsystem sftp internal-sftp", environment: Mapping[str, str] | None = None
) -> Iterator[Sshd]:
    """A server with its files in `folder`, which must exist, until the block ends."""
    need(Path(_SSHD).exists() and shutil.which("ssh-keygen") is not None, "openssh-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Sshd(folder, port, extra, environment=environment)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One server for one test."""
    with running_sshd(tmp_path_factory.mktemp("sshd")) as server:
        yield server
