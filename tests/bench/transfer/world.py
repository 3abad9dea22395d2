"""Where the bench takes place: two real OpenSSH servers on loopback, the source's and the destination's, and one
ssh_config that every program uses to reach them, the product too: same keys, same cipher."""

from __future__ import annotations

import getpass
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.sshd import Sshd, running_sshd

CIPHER = "aes128-gcm@openssh.com"
SOURCE, DESTINATION = "source", "destination"

_PIECE = 16 << 20


@dataclass(frozen=True)
class World:
    """The servers, by their folders `source/` (checkpoints lie in `data/`) and `destination/` (what arrives lies in
    `data/`), and `here/`, what a fetch to this machine writes into. `config` is the ssh_config."""

    folder: Path
    source: Sshd
    destination: Sshd
    config: Path

    @property
    def saved(self) -> Path:
        """The source's files."""
        return self.folder / SOURCE / "data"

    @property
    def arrived(self) -> Path:
        """The destination's files."""
        return self.folder / DESTINATION / "data"

    @property
    def here(self) -> Path:
        """This machine's files."""
        return self.folder / "here"

    def configured(self, name: str, ports: Mapping[str, int]) -> Path:
        """Another ssh_config, in which the servers answer at these ports (of lines in front of them)."""
        servers = {SOURCE: self.source, DESTINATION: self.destination}
        return _configure(
            self.folder / name, servers, {**{name: server.port for name, server in servers.items()}, **ports}
        )

    def clear(self) -> None:
        """Take away whatever arrived; what is not written back to the disk yet never will be."""
        for folder in (self.arrived, self.here):
            shutil.rmtree(folder)
            folder.mkdir()


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Two servers with their files in `folder` (which must exist) until the block ends."""
    for name in (SOURCE, DESTINATION):
        (folder / name / "data").mkdir(parents=True)
    (folder / "here").mkdir()
    with running_sshd(folder / SOURCE) as source, running_sshd(folder / DESTINATION) as destination:
        servers = {SOURCE: source, DESTINATION: destination}
        ports = {name: server.port for name, server in servers.items()}
        yield World(folder, source, destination, _configure(folder / "ssh_config", servers, ports))


def _configure(path: Path, servers: Mapping[str, Sshd], ports: Mapping[str, int]) -> Path:
    known = path.with_suffix(".known_hosts")
    known.write_text("".join(f"{name} {server.host_key}\n" for name, server in servers.items()))
    path.write_text(
        "".join(
            f"Host {name}\n  HostName 127.0.0.1\n  Port {ports[name]}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {server.folder}/client_key\n  IdentitiesOnly yes\n  HostKeyAlias {name}\n"
            f"  UserKnownHostsFile {known}\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
            f"  Ciphers {CIPHER}\n  Compression no\n  BatchMode yes\n"
            for name, server in servers.items()
        )
    )
    return path


def write_noise(path: Path, size: int) -> None:
    """A file that nothing can compress and whose every piece is another one: in the page cache, and on the disk."""
    with path.open("wb") as file:
        for start in range(0, size, _PIECE):
            file.write(os.urandom(min(_PIECE, size - start)))
        file.flush()
        os.fsync(file.fileno())


def warm(path: Path) -> None:
    """Have a file in the page cache."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(_PIECE)
        while file.readinto(buffer):
            pass


def alike(one: Path, other: Path) -> bool:
    """Whether two files have the same bytes."""
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        while data := first.read(_PIECE):
            if data != second.read(_PIECE):
                return False
    return True
