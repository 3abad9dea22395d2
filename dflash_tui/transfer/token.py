"""A file that proves that two ways lead to the same folder: written on one, read on the other, and removed."""

from __future__ import annotations

import contextlib
import posixpath
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

from dflash_tui.hosts.base import Host, HostError


@dataclass(frozen=True)
class Token:
    """`reading` is the command that prints it where it lies; `text` what is printed then."""

    path: str
    text: str

    @property
    def reading(self) -> list[str]:
        """Printed with a line's end: launchers pass on whole lines."""
        return ["cat", self.path]


@contextlib.asynccontextmanager
async def token(host: Host, folder: str) -> AsyncIterator[Token]:
    """A token in `folder`, which must exist, for as long as the block lasts. Raises HostError."""
    text = f"{secrets.token_hex(24)}\n"
    made = Token(posixpath.join(folder, f".dflash-{secrets.token_hex(8)}.token"), text)
    await host.write(made.path, text.encode())
    try:
        yield made
    finally:
        with contextlib.suppress(HostError):
            await host.run(["rm", "-f", made.path], check=False, timeout=10)
