"""The user's known_hosts file: which keys it holds for a host, and a new one added the way `ssh` would add it.

Format: sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT".
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import fnmatch
import hashlib
import hmac
import os
import pwd
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dflash_tui.hosts.base import HostError, HostKeyChanged, KeyOffer

_MARKERS = ("@revoked", "@cert-authority")
_ASK_SECONDS = 5.0


@dataclass(frozen=True)
class HeldKey:
    """A key that a file holds for a host: where, and its marker ("" for a plain key)."""

    file: str
    line: int
    key_type: str
    data: str
    marker: str = ""

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it; "" where the line's key is damaged."""
        try:
            raw = base64.b64decode(self.data, validate=True)
        except ValueError:
            return ""
        return "SHA256:" + base64.b64encode(hashlib.sha256(raw).digest()).decode("ascii").rstrip("=")


def entry_name(host: str, port: int) -> str:
    """A host's name as known_hosts spells it."""
    return host.lower() if port == 22 else f"[{host.lower()}]:{port}"


def held_keys(file: str, entry: str) -> list[HeldKey]:
    """The keys that `file` holds for exactly this entry; none where it can't be read."""
    try:
        text = Path(file).read_bytes().decode("utf-8", "replace")
    except OSError:
        return []
    return [key for key, names in _lines(file, text) if _matches(names, entry)]


def known_lines(files: Iterable[str]) -> bytes:
    """The lines of known_hosts files that can be used, for asyncssh, which refuses a file for one line that is damaged
    or not UTF-8. Files that can't be read hold none, as for `ssh`; never empty."""
    found = ["#"]  # no bytes at all would mean the user's own file to asyncssh
    for file in files:
        try:
            text = Path(file).read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        for key, names in _lines(file, text):
            if not names.startswith("|") or _hash_of(names) is not None:
                found.append(f"{key.marker} {names} {key.key_type} {key.data}".strip())
    return "\n".join(found).encode()


def _lines(file: str, text: str) -> Iterator[tuple[HeldKey, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        marker = words.pop(0) if words and words[0] in _MARKERS else ""
        if len(words) >= 3 and not words[0].startswith(("#", "@")):
            yield HeldKey(file, number, words[1], words[2], marker), words[0]


def _matches(names: str, entry: str) -> bool:
    if names.startswith("|"):
        known = _hash_of(names)
        return known is not None and hmac.compare_digest(known[1], _digest(known[0], entry))
    matched = False
    for name in names.lower().split(","):
        # fnmatch knows [...] too, which these patterns don't: brackets enclose a host beside its port.
        pattern = name.removeprefix("!").replace("[", "[[]")
        if fnmatch.fnmatchcase(entry, pattern):
            if name.startswith("!"):
                return False
            matched = True
    return matched


def _hash_of(names: str) -> tuple[bytes, bytes] | None:
    """The salt and the digest of a hashed name; None for a damaged one."""
    parts = names.split("|")
    if len(parts) != 4 or parts[1] != "1":
        return None
    try:
        return base64.b64decode(parts[2]), base64.b64decode(parts[3])
    except ValueError:
        return None


def _digest(salt: bytes, entry: str) -> bytes:
    return hmac.new(salt, entry.encode(), hashlib.sha1).digest()


def hashed(entry: str, salt: bytes | None = None) -> str:
    """The entry as HashKnownHosts writes it; `salt` is 20 random bytes unless given."""
    salt = secrets.token_bytes(20) if salt is None else salt
    return f"|1|{base64.b64encode(salt).decode('ascii')}|{base64.b64encode(_digest(salt, entry)).decode('ascii')}"


async def add(offer: KeyOffer) -> None:
    """Append the offered key to its file, which is made where it is missing; what is there stays byte for byte.

    Names are hashed where the host's ssh configuration or the file does so. Several programs may add at once. Raises
    HostKeyChanged when the file meanwhile holds another key for the host, HostError when it can't be written.
    """
    if not offer.file:
        raise HostError(
            f"{offer.name}: no known_hosts file is written here (UserKnownHostsFile none); name one in ~/.ssh/config"
        )
    await asyncio.to_thread(_add, offer, await _hashes_names(offer))


def _add(offer: KeyOffer, hash_names: bool) -> None:
    path = Path(offer.file)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(OSError):  # a filesystem without locks: one append is whole all the same
                fcntl.flock(handle, fcntl.LOCK_EX)
            _append(handle, offer, hash_names)
        finally:
            os.close(handle)
    except OSError as error:
        raise HostError(
            f"{offer.name}: {path} can't be written ({error.strerror}); add the line yourself: {offer.line}"
        ) from error


def _append(handle: int, offer: KeyOffer, hash_names: bool) -> None:
    content = b""
    while data := os.pread(handle, 1 << 20, len(content)):
        content += data
    lines = list(_lines(offer.file, content.decode("utf-8", "replace")))
    held = [key for key, names in lines if _matches(names, offer.entry)]
    plain = [key for key in held if not key.marker]
    if any(key.data == offer.data and key.marker == "@revoked" for key in held):
        raise HostKeyChanged(f"{offer.name}: {offer.file} has revoked {offer.fingerprint} by now; nothing was added")
    if any((key.key_type, key.data) == (offer.key_type, offer.data) for key in plain):
        return
    if plain:
        raise HostKeyChanged(
            f"{offer.name}: {offer.file} holds {plain[0].fingerprint} for {offer.entry} by now (line {plain[0].line}), "
            f"not the {offer.fingerprint} that was shown; nothing was added"
        )
    # A file whose names are all hashed keeps its secret.
    secret = hash_names or (bool(lines) and all(names.startswith("|") for _, names in lines))
    name = hashed(offer.entry) if secret else offer.entry
    broken = b"\n" if content and not content.endswith(b"\n") else b""
    line = broken + f"{name} {offer.key_type} {offer.data}\n".encode()
    written = os.write(handle, line)
    if written != len(line):
        os.ftruncate(handle, len(content))
        raise OSError(28, "No space left on device", offer.file)
    os.fsync(handle)


async def _hashes_names(offer: KeyOffer) -> bool:
    """HashKnownHosts as `ssh` itself would read it (system-wide files included); False where no `ssh` is installed."""
    if not offer.target:
        return False
    try:
        child = await asyncio.create_subprocess_exec(
            "ssh", "-G", *_configuration(offer.config), "--", offer.target,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:
        return False
    try:
        said, _ = await asyncio.wait_for(child.communicate(), _ASK_SECONDS)
    except TimeoutError:
        return False
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return b"hashknownhosts yes" in said.lower().splitlines()


def _configuration(config: tuple[str, ...] | None) -> list[str]:
    if config is None:
        return ["-F", "none"]
    if config:
        return ["-F", config[0]]
    own = Path("~/.ssh/config").expanduser()
    # `ssh` goes by the password file's home, the rest of this program by HOME.
    if own == Path(pwd.getpwuid(os.getuid()).pw_dir, ".ssh", "config"):
        return []
    return ["-F", os.fspath(own) if own.exists() else "none"]
