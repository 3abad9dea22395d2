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
from typing import TYPE_CHECKING, Any

from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import HostError, HostKeyUnknown, HostUnreachable, LoginRefused

if TYPE_CHECKING:
    import asyncssh

CONNECT_SECONDS = 10
_OWN_KNOWN_HOSTS = "~/.ssh/known_hosts"


@dataclass
class OfferedKey:
    """A host key that known_hosts does not hold. `known` are fingerprints of keys of its kind that are held for that
    host, `entry` the name under which, `file` the file that holds them ("" where that is not known)."""

    shown: str = ""
    entry: str = ""
    known: list[str] = field(default_factory=list)
    file: str = ""

    def take(self, known_hosts: Any, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> None:
        """Note the key, and what known_hosts has instead of it."""
        import asyncssh

        kind = key.get_algorithm()
        self.shown = f"{kind} {key.get_fingerprint()}"
        self.entry = host if port == 22 else f"[{host}]:{port}"
        files = known_hosts if isinstance(known_hosts, list) else [known_hosts]
        for held in files:
            with contextlib.suppress(ValueError, OSError):
                found = asyncssh.match_known_hosts(held, host, addr, port)[0]
                fingerprints = [other.get_fingerprint() for other in found if other.get_algorithm() == kind]
                if fingerprints:
                    self.known, self.file = fingerprints, held if isinstance(held, str) else ""
                    return


@contextlib.contextmanager
def refusals(name: str, address: SshAddress, offered: OfferedKey) -> Iterator[None]:
    """Turn what goes wrong while connecting into the family of `base.py`."""
    import asyncssh

    port = f":{address.port}" if address.port else ""
    where = f"{name} ({address.host}{port})"
    try:
        yield
    except asyncssh.HostKeyNotVerifiable as error:
        raise HostKeyUnknown(f"{where}: {_key_sentence(address, offered, str(error.reason))}") from error
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
    except ValueError as error:
        # asyncssh's errors in configuration and key files.
        raise HostError(f"{where}: the SSH configuration or a key can't be used: {error}") from error


def ssh_command(address: SshAddress) -> str:
    """What a person types to reach the same target: `ssh -p 2222 root@lab`."""
    options = ["-F", address.config[0]] if address.config else []
    options += ["-p", str(address.port)] if address.port is not None else []
    user = f"{address.username}@" if address.username is not None else ""
    return shlex.join(["ssh", *options, f"{user}{address.host}"])


def _key_sentence(address: SshAddress, offered: OfferedKey, reason: str) -> str:
    command = ssh_command(address)
    if not offered.known:
        return (
            f"the host's key is not in known_hosts; it offered {offered.shown or reason}. Compare it with the host's "
            f"own, then run `{command}` once, or add the line to known_hosts"
        )
    own = offered.file in ("", str(Path(_OWN_KNOWN_HOSTS).expanduser()))
    forget = shlex.join(["ssh-keygen", *([] if own else ["-f", offered.file]), "-R", offered.entry])
    return (
        f"the host's key has CHANGED: known_hosts holds {', '.join(offered.known)}, it offered {offered.shown}. The "
        "host was set up anew, or another one answers in its place: ask its owner first. Only when the owner confirms "
        f"the new key, run `{forget}` and then `{command}` once"
    )


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
    return said
