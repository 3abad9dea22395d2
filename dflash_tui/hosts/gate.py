"""A host that is hopped through and nothing else: its owner lends the way, not the machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import Completed, Entry, JumpOnly, Process, Space, Stat
from dflash_tui.hosts.running import command_text


class GateHost:
    """A `Host` that refuses everything. Connections to other hosts go through it (`SshAddress.jump`) as forwarded TCP:
    no session, no file and no agent on it."""

    detaches = False
    dear = False

    def __init__(self, name: str) -> None:
        self.name = name

    def _refusal(self, what: str) -> JumpOnly:
        return JumpOnly(
            f"JUMP_ONLY: {self.name} is only hopped through (hosts.{self.name}.jump_only), so {what} is refused there; "
            "name another host for it"
        )

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 60.0, check: bool = True
    ) -> Completed:
        """Raises JumpOnly."""
        raise self._refusal(f"`{command_text(argv)}`")

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        """Raises JumpOnly."""
        raise self._refusal(f"`{command_text(argv)}`")

    def system_command(
        self, argv: Sequence[str], *, stdin: bool = False, login: Sequence[str] | None = None
    ) -> list[str] | None:
        """Raises JumpOnly."""
        raise self._refusal(f"`{command_text(argv)}`")

    def ssh_address(self) -> SshAddress | None:
        """None: nobody logs in there."""
        return None

    async def read(self, path: str, offset: int, length: int) -> bytes:
        """Raises JumpOnly."""
        raise self._refusal(f"reading {path}")

    async def read_many(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Raises JumpOnly."""
        raise self._refusal(f"reading {path}")

    async def stat(self, path: str, *, follow: bool = True) -> Stat:
        """Raises JumpOnly."""
        raise self._refusal(f"looking at {path}")

    async def stat_many(self, paths: Sequence[str], *, follow: bool = True) -> list[Stat | None]:
        """Raises JumpOnly."""
        raise self._refusal(f"looking at {paths[0] if paths else 'files'}")

    async def list(self, path: str) -> list[Entry]:
        """Raises JumpOnly."""
        raise self._refusal(f"listing {path}")

    async def write(self, path: str, data: bytes) -> None:
        """Raises JumpOnly."""
        raise self._refusal(f"writing {path}")

    async def make_folder(self, path: str, *, exclusive: bool = False) -> None:
        """Raises JumpOnly."""
        raise self._refusal(f"making {path}")

    async def free_space(self, path: str) -> Space:
        """Raises JumpOnly."""
        raise self._refusal(f"looking at {path}")

    async def close(self) -> None:
        """Nothing is ever held open."""
