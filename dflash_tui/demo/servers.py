"""The demo's SSH servers: on loopback, in this process, for one key, with one side's files and commands only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import asyncssh

from dflash_tui.demo.commands import NOT_FOUND, Side, run_line
from dflash_tui.demo.files import Files
from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.ssh_link import CIPHERS

_KEY = "ssh-ed25519"
_USER = "demo"
_PIECE = 1 << 16
_SIGNAL_SECONDS = 0.1


@dataclass(frozen=True)
class Server:
    """A listening server: how it is reached (keys included, all in memory), and what to close in the end."""

    address: SshAddress
    acceptor: asyncssh.SSHAcceptor
    connections: set[asyncssh.SSHServerConnection] = field(default_factory=set)

    async def close(self) -> None:
        """Stop listening and cut every connection, which ends the commands that still run."""
        self.acceptor.close()
        connections = tuple(self.connections)
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.wait_closed()
        await self.acceptor.wait_closed()


def fresh_key() -> asyncssh.SSHKey:
    """A new key pair that exists in memory only."""
    return asyncssh.generate_private_key(_KEY)


async def listen(side: Side, client_key: asyncssh.SSHKey) -> Server:
    """Serve a side on a free port of 127.0.0.1, with a host key of its own, to whoever holds `client_key`."""
    host_key = fresh_key()
    connections: set[asyncssh.SSHServerConnection] = set()
    acceptor = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: _Door(connections),
        server_host_keys=[host_key],
        authorized_client_keys=asyncssh.import_authorized_keys(client_key.export_public_key().decode()),
        process_factory=_serving(side),
        sftp_factory=lambda channel: Files(channel, side.folder),
        encryption_algs=CIPHERS,
        encoding=None,
        allow_pty=False,
        allow_scp=False,
        line_editor=False,
        agent_forwarding=False,
        x11_forwarding=False,
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_host=None,
    )
    address = SshAddress(
        host="127.0.0.1",
        port=acceptor.get_port(),
        username=_USER,
        config=None,
        client_keys=[client_key],
        known_hosts=([host_key.convert_to_public()], [], []),
        agent=False,
    )
    return Server(address, acceptor, connections)


class _Door(asyncssh.SSHServer):
    """Keeps the book of connections. All else is asyncssh's default, which refuses every kind of forwarding."""

    def __init__(self, connections: set[asyncssh.SSHServerConnection]) -> None:
        self._connections = connections
        self._mine: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._mine = conn
        self._connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._mine is not None:
            self._connections.discard(self._mine)


def _serving(side: Side) -> Callable[[asyncssh.SSHServerProcess[bytes]], object]:
    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run the channel's command until it ends, is told to stop by a signal, or the channel closes."""
        if process.command is None:
            process.stderr.write(f"{side.name}: the demo's hosts have no shell, only commands and SFTP\n".encode())
            process.exit(NOT_FOUND)
            return
        stdin = _Input(process.stdin)
        signalled = asyncio.create_task(stdin.pump())
        gone = asyncio.create_task(process.channel.wait_closed())
        work = asyncio.create_task(
            run_line(side, process.command, stdin, _Output(process.stdout), _Output(process.stderr))
        )
        try:
            await asyncio.wait({signalled, gone, work}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() or process.is_closing():
                return
            if work.done():
                process.exit(work.result())
            else:
                process.exit_with_signal(signalled.result())
        finally:
            for task in (signalled, gone, work):
                task.cancel()
            await asyncio.gather(signalled, gone, work, return_exceptions=True)

    return serve


class _Input:
    """A channel's input, read ahead a little, so that a signal is noticed while the command reads nothing."""

    def __init__(self, source: asyncssh.SSHReader[bytes]) -> None:
        self._source = source
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue(4)
        self._rest = b""
        self._ended = False

    async def pump(self) -> str:
        """Fetch what comes; returns the name of a signal that the client sent."""
        ended = False
        while True:
            try:
                data = await self._source.read(_PIECE)
            except asyncssh.SignalReceived as received:
                return received.signal
            except asyncssh.BreakReceived:
                return "INT"
            except asyncssh.TerminalSizeChanged:
                continue
            if data:
                await self._pieces.put(data)
            elif not ended:
                ended = True
                await self._pieces.put(b"")
            else:
                # asyncssh hands a signal over only through a read, and after the end a read returns at once.
                await asyncio.sleep(_SIGNAL_SECONDS)

    async def read(self, limit: int) -> bytes:
        if not self._rest and not self._ended:
            self._rest = await self._pieces.get()
            self._ended = not self._rest
        data, self._rest = self._rest[:limit], self._rest[limit:]
        return data


class _Output:
    def __init__(self, sink: asyncssh.SSHWriter[bytes]) -> None:
        self._sink = sink

    async def write(self, data: bytes) -> None:
        if not data:
            return
        self._sink.write(data)
        await self._sink.drain()
