"""Where an SSH host is and with what we may log in to it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dflash_tui.hosts.base import HostError

_TARGET = re.compile(
    r"(?:(?P<user>[^@\s]+)@)?(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^@:\s\[\]]+))(?::(?P<port>\d+))?"
)


@dataclass(frozen=True)
class SshAddress:
    """An SSH host as `ssh` would be told of it.

    `port` and `username` None: what the configuration says, else 22 and the local user. `config`: () is the user's own
    `~/.ssh/config`, None is no configuration at all, otherwise those files. `client_keys` and `known_hosts` are
    asyncssh objects that replace the user's files (None: the user's files; checking is never turned off).
    `agent` False keeps the SSH agent out. `jump` is a host that the connection goes through as forwarded TCP, with a
    login and a host key of its own, maybe behind one itself; it stands instead of a ProxyJump of the configuration.
    """

    host: str
    port: int | None = None
    username: str | None = None
    config: tuple[str, ...] | None = ()
    client_keys: object = None
    known_hosts: object = None
    agent: bool = True
    jump: SshAddress | None = None


def parse_target(text: str) -> SshAddress:
    """Read `host`, `user@host`, `user@host:port` or `user@[v6]:port`. Raises HostError for anything else."""
    match = _TARGET.fullmatch(text)
    port = int(match["port"]) if match and match["port"] else None
    if match is None or (port is not None and not 0 < port < 65536) or text.startswith("-"):
        raise HostError(f"{text!r} is not an SSH target: expected host, user@host, user@host:port or user@[IPv6]:port")
    return SshAddress(host=match["six"] or match["host"], port=port, username=match["user"])
