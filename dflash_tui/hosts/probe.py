"""What a connection is like, found out by making one: where it leads, how long it takes, what the server offers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass

from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import HostError
from dflash_tui.hosts.ssh_link import connect, disconnect

SFTP_SECONDS = 15.0


@dataclass(frozen=True)
class Probe:
    """A connection that was made. `seconds` for all of it, jumps included, whose addresses are `jumps` in order;
    `server` names the software, `key` is the type and fingerprint that was verified."""

    user: str
    address: str
    seconds: float
    jumps: tuple[str, ...]
    server: str
    key: str
    sftp: bool


async def probe(name: str, address: SshAddress, *, jump_only: bool = False) -> Probe:
    """Connect, look, and close again. No command is run; on a `jump_only` host no session is asked for, not even SFTP.
    Raises HostError."""
    began = time.monotonic()
    connections = await connect(name, address)
    try:
        seconds = time.monotonic() - began
        last = connections[-1]
        key = last.get_server_host_key()
        return Probe(
            user=str(last.get_extra_info("username")),
            address=_place(last) or address.host,
            seconds=seconds,
            jumps=tuple(_place(jump) for jump in connections[:-1]),
            server=str(last.get_extra_info("server_version", "")).removeprefix("SSH-2.0-"),
            key=f"{key.get_algorithm()} {key.get_fingerprint()}" if key is not None else "",
            sftp=not jump_only and await _offers_sftp(last),
        )
    finally:
        await disconnect(connections)


async def agent_keys(path: str) -> int:
    """How many keys the SSH agent behind the socket `path` holds. Raises HostError when it does not answer."""
    import asyncssh

    try:
        async with asyncio.timeout(5), await asyncssh.connect_agent(path) as agent:
            count = len(await agent.get_keys())
    except (TimeoutError, OSError, ValueError, asyncssh.Error) as error:
        raise HostError(f"the SSH agent at {path} does not answer: {error or 'no answer in 5 s'}") from error
    return count


def _place(connection: object) -> str:
    import asyncssh

    assert isinstance(connection, asyncssh.SSHClientConnection)
    place = connection.get_extra_info("peername")
    return f"{place[0]}:{place[1]}" if place and place[0] else ""  # behind a jump only the jump knows it


async def _offers_sftp(connection: object) -> bool:
    import asyncssh

    assert isinstance(connection, asyncssh.SSHClientConnection)
    offered = False
    with contextlib.suppress(OSError, TimeoutError, asyncssh.Error):
        async with asyncio.timeout(SFTP_SECONDS), connection.start_sftp_client():
            offered = True
    return offered
