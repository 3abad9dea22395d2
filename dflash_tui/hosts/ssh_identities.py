"""Which keys a configuration offers to a host: its IdentityFile lines as `ssh` goes by them, not as asyncssh does.

asyncssh refuses to connect when one of the files is missing, is a public key, or holds no key; `ssh` goes on with the
others, and a public key alone stands for one that the agent holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import asyncssh


def identities(options: asyncssh.SSHClientConnectionOptions) -> dict[str, Any]:
    """The options of a connection that say so; none where the configuration names no key. Keys with a passphrase are
    the agent's matter."""
    import asyncssh

    named = cast("Sequence[str]", options.config.get("IdentityFile") or ())
    files = [str(Path(name).expanduser()) for name in named]
    if not files:
        return {}
    pairs: list[asyncssh.SSHKeyPair] = []
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            pairs += asyncssh.load_keypairs(file, skip_public=True)
    found: dict[str, Any] = {"client_keys": pairs}
    if options.config.get("IdentitiesOnly"):
        held = [key for file in files if (key := _public(file)) is not None]
        found |= {"agent_identities": held} if held else {"agent_path": None}
    return found


def _public(file: str) -> asyncssh.SSHCertificate | asyncssh.SSHKey | None:
    """The public half of an identity, from its own file or from the one beside it."""
    import asyncssh

    for path in (file, f"{file}.pub"):
        for read in (asyncssh.read_certificate, asyncssh.read_public_key):
            with contextlib.suppress(OSError, ValueError):
                return read(path)
    return None
