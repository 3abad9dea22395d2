"""How an SSH connection is made: configuration, jumps, verified host keys; and what failures on it mean."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_tui.hosts.address import SshAddress, parse_target
from dflash_tui.hosts.base import FileMissing, HostError, HostUnreachable, PermissionRefused
from dflash_tui.hosts.ssh_refusal import CONNECT_SECONDS, OfferedKey, refusals

if TYPE_CHECKING:
    import asyncssh

# AES-GCM first: asyncssh's own default, ChaCha20, costs half as much CPU again.
CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes128-ctr",
    "aes192-ctr",
    "aes256-ctr",
)
LOGIN_SECONDS = 20
_GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"


async def connect(name: str, address: SshAddress) -> list[asyncssh.SSHClientConnection]:
    """Connections to every jump and at last to the address itself, which is the last of the list. A dead peer is
    noticed within 15 s: three keepalives of 5 s. Raises HostError."""
    # The import takes half a second: not on the loop, which may be drawing a screen.
    await asyncio.to_thread(importlib.import_module, "asyncssh")
    made: list[asyncssh.SSHClientConnection] = []
    try:
        await _connect(name, address, made)
    except BaseException:
        await disconnect(made)
        raise
    return made


async def disconnect(connections: list[asyncssh.SSHClientConnection]) -> None:
    """Close connections, the last one first."""
    for connection in reversed(connections):
        connection.close()
        with contextlib.suppress(TimeoutError, OSError):
            await asyncio.wait_for(connection.wait_closed(), 5)


async def _connect(
    name: str, address: SshAddress, made: list[asyncssh.SSHClientConnection], on_the_way: tuple[str, ...] = ()
) -> None:
    import asyncssh

    if address.host in on_the_way:
        raise HostError(
            f"{name}: the ProxyJump of {on_the_way[-1]} leads round to {address.host} again; mend ssh_config"
        )

    offered = OfferedKey()

    with refusals(name, address, offered):
        options = await asyncssh.SSHClientConnectionOptions.construct(**_options(address))
        if options.tunnel and not isinstance(options.tunnel, str):
            raise HostError(f"{name}: the ProxyJump of {address.host} is not understood: {options.tunnel!r}")
    if not made:
        # The first jump of a list may be behind jumps of its own; the others are reached through the one before.
        for jump in map(parse_target, options.tunnel.split(",") if options.tunnel else ()):
            # `Host *` with a ProxyJump means every host but the jump itself.
            if jump.host != address.host:
                await _connect(name, replace(jump, config=address.config), made, (*on_the_way, address.host))
    known_hosts = address.known_hosts or _known_hosts(options.known_hosts)

    class Client(asyncssh.SSHClient):
        def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
            """Asked for a key that known_hosts does not hold: remember it for the sentence, and refuse it."""
            offered.take(known_hosts, host, addr, port, key)
            return False

    with refusals(name, address, offered):
        made.append(
            await asyncssh.connect(
                **_options(address)
                | {
                    "known_hosts": known_hosts,
                    "client_factory": Client,
                    "tunnel": made[-1] if made else None,
                }
            )
        )


def _options(address: SshAddress) -> dict[str, Any]:
    options: dict[str, Any] = {
        "host": address.host,
        # () is the user's own file only where it is said: options that are constructed read none by default.
        "config": list(address.config) if address.config else address.config,
        "encryption_algs": CIPHERS,
        "connect_timeout": CONNECT_SECONDS,
        "login_timeout": LOGIN_SECONDS,
        "keepalive_interval": 5,
        "keepalive_count_max": 2,
    }
    if address.port is not None:
        options["port"] = address.port
    if address.username is not None:
        options["username"] = address.username
    if address.client_keys is not None:
        options["client_keys"] = address.client_keys
    if not address.agent:
        options["agent_path"] = None
    return options


def _known_hosts(configured: object) -> list[str] | bytes:
    """The files that exist of those that the configuration names, or of ssh's defaults. `UserKnownHostsFile none` would
    turn checking off in asyncssh: here it means that no key is known."""
    if configured is None:
        return b""
    files = configured if isinstance(configured, list) and configured else ["~/.ssh/known_hosts", _GLOBAL_KNOWN_HOSTS]
    found = [path for path in (str(Path(file).expanduser()) for file in files) if os.access(path, os.R_OK)]
    return found or b""


@contextlib.asynccontextmanager
async def translated(name: str, what: str) -> AsyncIterator[None]:
    """Turn asyncssh's errors on an open connection into the family of `base.py`. `what` is the path or the command."""
    import asyncssh

    try:
        yield
    except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath) as error:
        raise FileMissing(f"{name}: {what} does not exist") from error
    except asyncssh.SFTPPermissionDenied as error:
        raise PermissionRefused(f"{name}: {what} may not be used by this user") from error
    except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection) as error:
        raise HostUnreachable(f"{name}: the connection broke at {what}") from error
    except asyncssh.SFTPError as error:
        raise HostError(f"{name}: {what}: {error.reason}") from error
    except asyncssh.ChannelOpenError as error:
        raise HostUnreachable(f"{name}: no session for {what}: {error.reason}") from error
    except TimeoutError as error:
        raise HostUnreachable(f"{name}: no answer in time for {what}") from error
    except (OSError, asyncssh.Error) as error:
        # A cut shows itself as BrokenPipeError from a read just as often as ConnectionLost.
        raise HostUnreachable(f"{name}: the connection broke at {what}: {error}") from error
