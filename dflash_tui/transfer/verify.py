"""SHA-256 of a file, computed by the host that has it."""

from __future__ import annotations

import re

from dflash_tui.hosts.base import CommandFailed, FileMissing, Host
from dflash_tui.transfer.errors import TransferError

# Debian's sha256sum needs 6 CPU seconds a GiB, openssl 1, hashlib 1.5: hence the order.
_PROGRAM = """
import hashlib, sys
left = int(sys.argv[2]) if len(sys.argv) > 2 else None
digest = hashlib.sha256()
with open(sys.argv[1], "rb") as file:
    while left is None or left > 0:
        data = file.read(1 << 20 if left is None else min(1 << 20, left))
        if not data:
            break
        digest.update(data)
        left = left if left is None else left - len(data)
print(digest.hexdigest() if not left else "short")
"""

_SLOWEST = 10_000_000
"""Bytes a second below which a hash is given up."""

_DIGEST = re.compile(r"\\?([0-9a-f]{64})\b")


async def sha256(host: Host, path: str, size: int) -> str:
    """The lowercase hex SHA-256 of a file of about `size` bytes, by openssl, python3 or sha256sum, the first that the
    host has. Raises HostError, and TransferError when it has none of them."""
    complaints: list[str] = []
    for argv in (
        ["openssl", "dgst", "-sha256", "-r", path],
        ["python3", "-c", _PROGRAM, path],
        ["sha256sum", path],
    ):
        found = await _ask(host, argv, size, complaints)
        if found is not None:
            return found
    if (await host.run(["test", "-e", path], check=False)).status != 0:
        raise FileMissing(f"{host.name}: {path} does not exist")
    raise TransferError(
        f"{host.name}: no SHA-256 of {path}: openssl, python3 and sha256sum all failed; "
        f"the last said: {complaints[-1] if complaints else 'nothing'}"
    )


async def prefix_sha256(host: Host, path: str, length: int) -> str | None:
    """The SHA-256 of a file's first `length` bytes, or None where it is shorter or the host has no python3."""
    return await _ask(host, ["python3", "-c", _PROGRAM, path, str(length)], length, [])


async def _ask(host: Host, argv: list[str], size: int, complaints: list[str]) -> str | None:
    try:
        done = await host.run(argv, timeout=60 + size / _SLOWEST, check=True)
    except CommandFailed as error:
        complaints.append(str(error))
        return None
    match = _DIGEST.match(done.text)
    if match is None:
        complaints.append(f"{host.name}: `{argv[0]}` printed {done.text[:80]!r}")
        return None
    return match[1]
