"""Why an SSH connection was not made, as a sentence with what to check."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import (
    HostError,
    HostKeyChanged,
    HostKeyRefused,
    HostKeyUnknown,
    HostUnreachable,
    KeyOffer,
    LoginRefused,
)
from dflash_tui.hosts.known_hosts import HeldKey, entry_name, held_keys

if TYPE_CHECKING:
    import asyncssh

CONNECT_SECONDS = 10
_OWN_KNOWN_HOSTS = "~/.ssh/known_hosts"


@dataclass
class OfferedKey:
    """The key that a host showed and that was not accepted. `jump`: `address` is on the way to the host `name`. `files`
    are those that were looked into, `file` the one that a new key goes to, `alias` the HostKeyAlias."""

    name: str
    address: SshAddress
    jump: bool = False
    files: tuple[str, ...] = ()
    file: str = ""
    alias: str = ""
    offer: KeyOffer | None = None
    held: list[HeldKey] = field(default_factory=list)

    def take(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Note the key, and what known_hosts has instead of it. True when known_hosts holds that very key by now."""
        entry = self.alias.lower() or entry_name(host, port)
        key_type, data = key.export_public_key().decode("ascii").split()[:2]
        self.offer = KeyOffer(
            name=self.name,
            entry=entry,
            address=f"{addr or host}:{port}",
            key_type=key_type,
            data=data,
            fingerprint=key.get_fingerprint(),
            file=self.file,
            via=self.address.host if self.jump else "",
            target=self.address.host,
            config=self.address.config,
        )
        # A certificate authority's key is no key of the host.
        found = [held for file in self.files for held in held_keys(file, entry) if held.marker != "@cert-authority"]
        self.held = [held for held in found if held.fingerprint]
        same = {held.marker for held in self.held if (held.key_type, held.data) == (key_type, data)}
        return same == {""}

    def refusal(self, where: str, reason: str) -> HostKeyRefused:
        """The error that says so."""
        if self.offer is None or any(held.marker and held.fingerprint == self.offer.fingerprint for held in self.held):
            return HostKeyChanged(f"{where}: {_unacceptable(reason)}")
        if any(not held.marker for held in self.held):
            return HostKeyChanged(f"{where}: {_changed(self.address, self.offer, self.held)}")
        return HostKeyUnknown(f"{where}: {_unknown(self.offer)}", self.offer)


@contextlib.contextmanager
def refusals(offered: OfferedKey) -> Iterator[None]:
    """Turn what goes wrong while connecting into the family of `base.py`."""
    import asyncssh

    name, address = offered.name, offered.address
    port = f":{address.port}" if address.port else ""
    where = f"{name} ({address.host}{port})"
    try:
        yield
    except asyncssh.HostKeyNotVerifiable as error:
        raise offered.refusal(where, str(error.reason)) from error
    except asyncssh.PermissionDenied as error:
        raise LoginRefused(
            f"{where}: the login was refused ({error.reason}); expected a key that the host accepts, in the SSH agent "
            "or named by IdentityFile"
        ) from error
    except asyncssh.ChannelOpenError as error:
        raise HostUnreachable(
            f"{where}: the jump host can't reach it: {error.reason}; check that `{ssh_command(address)}` is the target"
        ) from error
    except asyncssh.Error as error:
        raise HostUnreachable(f"{where}: no SSH connection: {error.reason or type(error).__name__}") from error
    except TimeoutError as error:
        raise HostUnreachable(f"{where}: no answer within {CONNECT_SECONDS} s") from error
    except OSError as error:
        raise HostUnreachable(f"{where}: no connection: {_system_sentence(address, error)}") from error
    except UnicodeDecodeError as error:
        raise HostError(
            f"{where}: ~/.ssh/config, or a file that it includes, is not UTF-8 ({error.reason} at byte {error.start}); "
            "write its comments in UTF-8"
        ) from error
    except ValueError as error:
        # asyncssh's errors in configuration and key files.
        raise HostError(f"{where}: the SSH configuration or a key can't be used: {error}") from error


def ssh_command(address: SshAddress) -> str:
    """What a person types to reach the same target: `ssh -p 2222 root@lab`."""
    options = ["-F", address.config[0]] if address.config else []
    options += ["-p", str(address.port)] if address.port is not None else []
    user = f"{address.username}@" if address.username is not None else ""
    return shlex.join(["ssh", *options, f"{user}{address.host}"])


def _unknown(offer: KeyOffer) -> str:
    trust = shlex.join(["dflash-tui", "trust", offer.name, "--fingerprint", offer.fingerprint])
    whose = f"the key of {offer.via}, which is on the way," if offer.via else "the host's key"
    shown = f"{whose} is not in known_hosts; it offered {offer.key_type} {offer.fingerprint}"
    if not offer.file:
        return f"{shown}. Compare it with that machine's own, then name a UserKnownHostsFile that holds: {offer.line}"
    where = offer.via or "the host"
    return f"{shown}: run `{trust}` once `{own_fingerprint(offer.key_type)}` on {where} has printed the same"


def own_fingerprint(key_type: str) -> str:
    """The command that prints the fingerprint on the host itself."""
    kind = "rsa" if "rsa" in key_type else "ecdsa" if "ecdsa" in key_type else "ed25519"
    return f"ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub"


def _changed(address: SshAddress, offer: KeyOffer, held: list[HeldKey]) -> str:
    files = dict.fromkeys(key.file for key in held if not key.marker)
    own = str(Path(_OWN_KNOWN_HOSTS).expanduser())
    forget = " and ".join(
        f"`{shlex.join(['ssh-keygen', *([] if file == own else ['-f', file]), '-R', offer.entry])}`" for file in files
    )
    holds = ", ".join(f"{key.key_type} {key.fingerprint} (line {key.line})" for key in held if not key.marker)
    return (
        f"the host's key has CHANGED: known_hosts holds {holds}, it offered {offer.key_type} {offer.fingerprint}. The "
        "host was set up anew, or another one answers in its place: ask its owner first. Only when the owner confirms "
        f"the new key, run {forget} and then `{ssh_command(address)}` once"
    )


def _unacceptable(reason: str) -> str:
    if "revoked" in reason.lower():
        return f"known_hosts says @revoked of the key that it offered ({reason}); it must not be used: ask its owner"
    return f"the host's key can't be accepted: {reason}; ask its owner"


def _system_sentence(address: SshAddress, error: OSError) -> str:
    # asyncio words a refused connection for programmers; the number says it plainly.
    number = error.errno or 0
    said = os.strerror(number) if number > 0 else error.strerror or str(error)
    command = ssh_command(address)
    if isinstance(error, socket.gaierror):
        return (
            f"{said}; check the name {address.host} in the target (`{command}`), or give it a HostName in ~/.ssh/config"
        )
    if number == errno.ECONNREFUSED or f"[Errno {errno.ECONNREFUSED}]" in str(error):
        refused = os.strerror(errno.ECONNREFUSED)
        return f"{refused}; check host and port of the target (`{command}`), and that sshd runs there"
    # A file is named by a ProxyCommand that is not there.
    return f"{os.fsdecode(error.filename)}: {said}" if isinstance(error.filename, str | bytes) else said
