"""Which keys a configuration offers to a host: its IdentityFile lines as `ssh` goes by them, not as asyncssh does.

asyncssh refuses to connect when one of the files is missing, is a public key, or holds no key; `ssh` goes on with the
others, and a public key alone stands for one that the agent holds.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import asyncssh


def identities(options: asyncssh.SSHClientConnectionOptions) -> dict[str, Any]:
    """The options of a connection that say so; none where the configuration names no key. Keys with a passphrase are
    the agent's matter."""
    import asyncssh

    found: dict[str, Any] = {}
    if certificates := _files(options, "CertificateFile"):
        found["client_certs"] = [file for file in certificates if os.access(file, os.R_OK)]
    files = _files(options, "IdentityFile")
    if not files:
        return found
    pairs: list[asyncssh.SSHKeyPair] = []
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            pairs += asyncssh.load_keypairs(file, skip_public=True)
    found["client_keys"] = pairs
    if options.config.get("IdentitiesOnly"):
        held = [key for file in files if (key := _public(file)) is not None]
        found |= {"agent_identities": held} if held else {"agent_path": None}
    return found


def _files(options: asyncssh.SSHClientConnectionOptions, key: str) -> list[str]:
    named = cast("Sequence[str]", options.config.get(key) or ())
    return [str(Path(name).expanduser()) for name in named]


def _public(file: str) -> asyncssh.SSHCertificate | asyncssh.SSHKey | None:
    """The public half of an identity, from its own file or from the one beside it."""
    import asyncssh

    for path in (file, f"{file}.pub"):
        for read in (asyncssh.read_certificate, asyncssh.read_public_key):
            with contextlib.suppress(OSError, ValueError):
                return read(path)
    return None
