"""What a host can do. Everything above this room speaks to hosts through `Host` and catches `HostError`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from dflash_tui.hosts.address import SshAddress


class HostError(Exception):
    """A host could not do what was asked; the message is one sentence that names the host and the path or command."""


class HostUnreachable(HostError):
    """No connection, or it broke. Worth trying again."""


@dataclass(frozen=True)
class KeyOffer:
    """A key that a host showed and no known_hosts file holds: what a person is asked about.

    `name` is the host as the config calls it, `via` what is connected to on the way there where the key is a jump's
    ("" otherwise); `entry` as known_hosts spells it, `address` where it answered; `data` the key in base64. `file` is
    where the key would be appended, "" where nothing may be. `target` and `config` are what `ssh` is told of the host
    (`SshAddress`).
    """

    name: str
    entry: str
    address: str
    key_type: str
    data: str
    fingerprint: str
    file: str
    via: str = ""
    target: str = ""
    config: tuple[str, ...] | None = None

    @property
    def line(self) -> str:
        """The line for known_hosts."""
        return f"{self.entry} {self.key_type} {self.data}"

    @property
    def asked(self) -> str:
        """The machine whose key it is: a jump, else the host."""
        return self.via or self.name

    @property
    def shown(self) -> str:
        """The host in a sentence; a jump with the host that it is on the way to."""
        return f"{self.via}, on the way to {self.name}" if self.via else self.name


class HostKeyRefused(HostError):
    """The host can't be told to be the one that is meant. Never worth trying again without the user."""


class HostKeyUnknown(HostKeyRefused):
    """The host's key is not in known_hosts; `offer` may be accepted by a person who compared it."""

    def __init__(self, message: str, offer: KeyOffer) -> None:
        super().__init__(message)
        self.offer = offer


class HostKeyChanged(HostKeyRefused):
    """known_hosts holds another key for the host, or has revoked this one: a stop, never a question."""


class FileMissing(HostError):
    """The path does not exist on the host."""


class PermissionRefused(HostError):
    """The host refuses access to the path."""


class JumpOnly(PermissionRefused):
    """The host may be hopped through and nothing else: no command, no file, no agent. The sentence begins with the
    finding's code, JUMP_ONLY."""


class LoginRefused(PermissionRefused):
    """The host lets nobody in with the keys that we have. Never worth trying again without the user: hosts lock out
    who is refused too often."""


class CommandFailed(HostError):
    """A command ended with a status other than 0. `status` is its exit status, `stderr` its last lines."""

    def __init__(self, message: str, status: int, stderr: str) -> None:
        super().__init__(message)
        self.status = status
        self.stderr = stderr


class ReadShort(HostError):
    """Fewer bytes came than the range holds: the file shrank, or the stream was cut by the far side."""


@dataclass(frozen=True)
class Completed:
    """A finished command. `stdout` is bytes, `stderr` decoded (replacement characters for what is not UTF-8)."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """`stdout` decoded, with replacement characters for what is not UTF-8."""
        return self.stdout.decode("utf-8", "replace")


@dataclass(frozen=True)
class Stat:
    """`size` in bytes; `mtime` POSIX seconds (whole seconds where the host tells no more); `links` hard links."""

    kind: Literal["file", "folder", "link", "other"]
    size: int
    mtime: float
    inode: int
    links: int


@dataclass(frozen=True)
class Entry:
    """A name in a folder. `stat` is of the entry itself (a link is not followed); `target` is the link's text."""

    name: str
    stat: Stat
    target: str = ""


@dataclass(frozen=True)
class Space:
    """Free for this user at a path: bytes and inodes (None where the filesystem has no fixed number)."""

    bytes: int
    inodes: int | None


class Process(Protocol):
    """A running command with byte streams. Leaving its context kills it if it still runs and always reaps it."""

    async def read(self, limit: int = 1 << 20) -> bytes:
        """Up to `limit` bytes of stdout as soon as some are there; b"" at the end. Raises HostUnreachable."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to stdin and wait until the buffer has room. Raises HostUnreachable."""
        ...

    async def close_stdin(self) -> None:
        """End stdin: what was written before still arrives."""
        ...

    async def wait(self) -> Completed:
        """The exit status (128 + signal when killed) and stderr's tail; stdout is empty here. Raises
        HostUnreachable."""
        ...

    async def announced(self, mark: str, patience: float) -> int | None:
        """The process id that the command has told under `mark` (see `running.announcing`), at most after `patience`
        seconds; None when it has not."""
        ...


class Host(Protocol):
    """A machine, or a container on one. All paths are absolute, in the host's own view. Every method raises HostError
    and can be cancelled.

    `detaches`: a program can be left running there when its command and the connection have ended. `dear`: each command
    costs much (a launcher's start on the host, or in a cluster), so questions are asked seldom and together.
    """

    name: str
    detaches: bool
    dear: bool

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 60.0, check: bool = True
    ) -> Completed:
        """Run argv (no shell; sent with `shlex.join`). With `check`, a non-zero status raises CommandFailed."""
        ...

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        """Start argv with byte streams; see Process."""
        ...

    def system_command(
        self, argv: Sequence[str], *, stdin: bool = False, login: Sequence[str] | None = None
    ) -> list[str] | None:
        """The command line of this workstation's own programs (`ssh`, launchers behind it) that runs argv there, never
        with a terminal and never asking; argv itself on this workstation. None where it can't be said. `login`: words
        that log in (from another machine, it may be) instead of this workstation's."""
        ...

    def ssh_address(self) -> SshAddress | None:
        """Where one logs in to be there, or to start the launcher that leads there. None for this workstation."""
        ...

    async def read(self, path: str, offset: int, length: int) -> bytes:
        """Exactly the bytes offset … offset+length of a regular file. Raises FileMissing, ReadShort."""
        ...

    async def read_many(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, length) of one file: few round trips for many small ones. Raises as `read`."""
        ...

    async def stat(self, path: str, *, follow: bool = True) -> Stat:
        """Raises FileMissing."""
        ...

    async def stat_many(self, paths: Sequence[str], *, follow: bool = True) -> list[Stat | None]:
        """`stat` of each, in few round trips however many they are; None for one that is missing. Raises as `stat`
        does for the first that it is refused for."""
        ...

    async def list(self, path: str) -> list[Entry]:
        """A folder's entries, sorted by name. Raises FileMissing."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a small file atomically: temporary name in the same folder, then rename. The folder must exist."""
        ...

    async def make_folder(self, path: str, *, exclusive: bool = False) -> None:
        """Create a folder with its parents; with `exclusive`, the last one must not exist (HostError if it does)."""
        ...

    async def free_space(self, path: str) -> Space:
        """Free space at `path` or its nearest existing parent."""
        ...

    async def close(self) -> None:
        """Close what is held open. The next use may open it again."""
        ...
