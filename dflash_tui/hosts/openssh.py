"""What this workstation's own `ssh` program is told, so that it reaches the machine that an `SshAddress` means.

Bulk bytes go faster through it than through this process. It must never ask, never add a key, and never mean another
machine: what can't be said to it in words is left to asyncssh.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import pwd
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.running import shell_line

CONNECT_SECONDS = 10

_QUIET = (
    # First: an `ssh` that is older than an option needs none of it. All, because a list would take the place of the
    # one that the user's configuration has.
    "IgnoreUnknown=*",
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
    "ConnectionAttempts=1",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=2",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "StdinNull=no",
    "ForkAfterAuthentication=no",
    # A master of the user's is neither used (it may have a slow cipher, and is shared) nor made.
    "ControlMaster=no",
    "ControlPath=none",
    "Compression=no",
    "LogLevel=ERROR",
)
_CIPHERS = "Ciphers=^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
_COMMAND = (
    "RemoteCommand=none",
    "RequestTTY=no",
    "EscapeChar=none",
    "SessionType=default",
)
_UNSPEAKABLE = frozenset('"%$\\\n')
"""What ssh takes for more than a character in the name of a file."""


def quiet_options(connect_seconds: int = CONNECT_SECONDS, *, ciphers: bool = True) -> list[str]:
    """Words for any `ssh` that runs a command: no question, no new key, no terminal, no forwarding; a dead peer is
    noticed within 15 s. `ciphers`: the fast ones first, which it must be of 2019 or younger to understand."""
    return _options(*_QUIET, *_COMMAND, f"ConnectTimeout={connect_seconds}", *((_CIPHERS,) if ciphers else ()))


def _options(*options: str) -> list[str]:
    return [word for option in options for word in ("-o", option)]


def ssh_login(address: SshAddress) -> list[str] | None:
    """The words that log in to an address: what follows them is the command's line. None where they can't be said: no
    `ssh` here, keys that are objects, several configurations, or a HOME that `ssh` (which goes by the password file)
    does not take for the user's."""
    program = shutil.which("ssh")
    place = _place(address)
    if program is None or place is None:
        return None
    return [program, *quiet_options(), *place, "--", address.host]


def command_line(argv: Sequence[str]) -> str:
    """A remote command as one word, read alike by every login shell."""
    return os.fsdecode(shell_line(argv))


def environment() -> dict[str, str]:
    """For an `ssh` of this workstation: nothing pops up to ask, and what a far side says of a full disk is English."""
    kept = {name: value for name, value in os.environ.items() if name not in ("SSH_ASKPASS", "LANGUAGE")}
    # SHELL runs the ProxyCommand that leads through a jump.
    return {**kept, "SSH_ASKPASS_REQUIRE": "never", "SHELL": "/bin/sh", "LC_ALL": "C"}


async def login_target(address: SshAddress) -> str:
    """`user@host:port` as the configuration resolves an address: how another machine may reach it."""
    # The import takes half a second: not on the loop, which may be drawing a screen.
    await asyncio.to_thread(importlib.import_module, "asyncssh")
    import asyncssh

    given: Mapping[str, object] = {"port": address.port, "username": address.username}
    config = list(address.config) if address.config else address.config
    # Without keys: none is used, and one that can't be read shall not be in the way.
    options = await asyncssh.SSHClientConnectionOptions.construct(
        host=address.host, config=config, client_keys=None, **{key: value for key, value in given.items() if value}
    )
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"{options.username}@{host}:{options.port}"


def _place(address: SshAddress) -> list[str] | None:
    """The options that say where and with what, the host left out."""
    if _by_the_home(address) and not _home_is_known():
        return None
    config, keys, known = _config(address), _keys(address), _known_hosts(address)
    if config is None or keys is None or known is None:
        return None
    words = [*config, *keys, *known]
    if address.port is not None:
        words += ["-p", str(address.port)]
    if address.username is not None:
        words += ["-l", address.username]
    if not address.agent:
        words += ["-o", "IdentityAgent=none"]
    if address.jump is not None:
        way = _place(address.jump)
        if way is None:
            return None
        # Not -J: what is said here would not hold for the jump then. ssh takes % for its own in every layer.
        options = _options(*_QUIET, _CIPHERS, f"ConnectTimeout={CONNECT_SECONDS}")
        hop, host = (
            shlex.join(word.replace("%", "%%") for word in part)
            for part in (["ssh", *options, *way], ["--", address.jump.host])
        )
        words += ["-o", f"ProxyCommand={hop} -W '[%h]:%p' {host}"]
    return words


def _config(address: SshAddress) -> list[str] | None:
    if address.config is None:
        return ["-F", "none"]
    if len(address.config) > 1:
        return None
    return ["-F", os.path.abspath(os.path.expanduser(address.config[0]))] if address.config else []


def _keys(address: SshAddress) -> list[str] | None:
    if address.client_keys is None:
        return []
    files = _files(address.client_keys)
    if files is None:
        return None
    return ["-o", "IdentitiesOnly=yes", *(word for file in files for word in ("-o", f'IdentityFile="{file}"'))]


def _known_hosts(address: SshAddress) -> list[str] | None:
    if address.known_hosts is None:
        return []
    known = address.known_hosts
    files = _files([known] if isinstance(known, (str, Path)) else known)
    if not files:
        return None
    shown = " ".join(f'"{file}"' for file in files)
    return ["-o", f"UserKnownHostsFile={shown}", "-o", f"GlobalKnownHostsFile={os.devnull}"]


def _files(given: object) -> list[str] | None:
    """Paths as ssh's options take them; None for anything that is no path."""
    if not isinstance(given, (list, tuple)) or not all(isinstance(item, (str, Path)) for item in given):
        return None
    paths = [os.path.abspath(os.path.expanduser(item)) for item in cast("Sequence[str | Path]", given)]
    return None if any(_UNSPEAKABLE.intersection(path) for path in paths) else paths


def _by_the_home(address: SshAddress) -> bool:
    """Whether anything is looked for in the user's own folder."""
    return address.config == () or address.client_keys is None or address.known_hosts is None


def _home_is_known() -> bool:
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return False
    return os.path.realpath(home) == os.path.realpath(os.path.expanduser("~"))
