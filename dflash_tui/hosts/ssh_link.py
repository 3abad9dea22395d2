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
from dflash_tui.hosts.known_hosts import known_lines
from dflash_tui.hosts.ssh_identities import identities
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
OWN_KNOWN_HOSTS = "~/.ssh/known_hosts"
_GLOBAL_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"
PLAIN_KEYS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)


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

    with refusals(OfferedKey(name, address)):
        # Without keys: which of the configured ones can be used is found out below.
        bare = {"client_keys": None} if address.client_keys is None else {}
        options = await asyncssh.SSHClientConnectionOptions.construct(**_options(address) | bare)
        own = identities(options) if address.client_keys is None else {}
        if options.tunnel and not isinstance(options.tunnel, str):
            raise HostError(f"{name}: the ProxyJump of {address.host} is not understood: {options.tunnel!r}")
    if address.jump is not None:
        await _connect(name, address.jump, made, (*on_the_way, ""))
    elif not made:
        # The first jump of a list may be behind jumps of its own; the others are reached through the one before.
        for jump in map(_jump, options.tunnel.split(",") if options.tunnel else ()):
            # `Host *` with a ProxyJump means every host but the jump itself.
            if jump.host != address.host:
                await _connect(name, replace(jump, config=address.config), made, (*on_the_way, address.host))
    files = _files(address.known_hosts) if address.known_hosts else _known_hosts(options)
    known_hosts = address.known_hosts or known_lines(files)
    known_as = (options.host_key_alias or options.host).lower()  # asyncssh would look for the name as it was typed
    offered = OfferedKey(
        name,
        address,
        jump=bool(on_the_way),
        files=files,
        file=_own_file(address, options),
        alias=options.host_key_alias or "",
    )
    with refusals(offered):
        try:
            made.append(await _open(address, known_hosts, offered, made, host_key_alias=known_as, **own))
        except (
            asyncssh.KeyExchangeFailed,
            asyncssh.HostKeyNotVerifiable,
            asyncssh.ConnectionLost,
            ConnectionResetError,
        ):
            if offered.offer is not None:
                raise
            # It has no key of the kinds that known_hosts holds for it (sshd hangs up then), or a certificate that
            # nobody vouches for: as ssh does, look at its plain key.
            made.append(
                await _open(
                    address, known_hosts, offered, made, host_key_alias=known_as, server_host_key_algs=PLAIN_KEYS, **own
                )
            )


async def _open(
    address: SshAddress,
    known_hosts: object,
    offered: OfferedKey,
    made: list[asyncssh.SSHClientConnection],
    **more: Any,
) -> asyncssh.SSHClientConnection:
    import asyncssh

    class Client(asyncssh.SSHClient):
        def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
            """Asked for a key that known_hosts did not hold when the connection began."""
            return offered.take(host, addr, port, key)

    special = {"known_hosts": known_hosts, "client_factory": Client, "tunnel": made[-1] if made else None, **more}
    return await asyncssh.connect(**_options(address) | special)


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


def _jump(text: str) -> SshAddress:
    """One jump of a ProxyJump, which may be written as a URI."""
    return parse_target(text.removeprefix("ssh://").rstrip("/"))


def _known_hosts(options: asyncssh.SSHClientConnectionOptions) -> tuple[str, ...]:
    """The user's and the machine's files. `UserKnownHostsFile none` would turn checking off in asyncssh: here it means
    that no key of the user's is known."""
    machine = _configured(options, "GlobalKnownHostsFile", _GLOBAL_KNOWN_HOSTS)
    return (*_configured(options, "UserKnownHostsFile", OWN_KNOWN_HOSTS), *machine)


def _configured(options: asyncssh.SSHClientConnectionOptions, key: str, default: str) -> tuple[str, ...]:
    files = options.config.get(key)
    return tuple(str(Path(str(file)).expanduser()) for file in (files if isinstance(files, list) else [default]))


def _files(known_hosts: object) -> tuple[str, ...]:
    """The files among what known keys are read from."""
    files = [known_hosts] if isinstance(known_hosts, str) else known_hosts
    return tuple(files) if isinstance(files, list) else ()


def _own_file(address: SshAddress, options: asyncssh.SSHClientConnectionOptions) -> str:
    """Where `ssh` would add a new key: the first file of the user's that keeps anything; "" where there is none."""
    given = address.known_hosts
    own = _files(given) if given else _configured(options, "UserKnownHostsFile", OWN_KNOWN_HOSTS)
    return next((file for file in own if file != os.devnull), "")


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
        few = error.reason == "open failed"  # how OpenSSH says that there are too many already
        why = "; does its sshd allow fewer than two at a time (MaxSessions)?" if few else ""
        raise HostUnreachable(f"{name}: no session for {what}: {error.reason}{why}") from error
    except TimeoutError as error:
        raise HostUnreachable(f"{name}: no answer in time for {what}") from error
    except (OSError, asyncssh.Error) as error:
        # A cut shows itself as BrokenPipeError from a read just as often as ConnectionLost.
        raise HostUnreachable(f"{name}: the connection broke at {what}: {error}") from error
