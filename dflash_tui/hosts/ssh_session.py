"""A command's streams over an SSH connection, for many gigabytes: few copies, and no more memory than a window.

A channel that is paused and let go on for a moment grants the other side a whole window anew, whatever it still keeps:
asyncssh's own streams grow without an end when who reads them is slow. Here a channel goes on only to give all that it
keeps, so that never more than two windows are held; and its packets of 32 KiB are laid together, because the holes that
they leave among buffers that come and go would cost as much again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncssh

    _Base = asyncssh.SSHClientSession[bytes]
else:
    # asyncssh asks for these methods, not for the class; and importing it is for who connects.
    _Base = object

_BLOCK = 1 << 20
_HELD = 2 << 20
"""Bytes that wait to be read; beyond them the channel is paused."""


class Session(_Base):
    """One command. Errors are asyncssh's and OSError, as `translated` expects them."""

    def __init__(self) -> None:
        self.stdout, self.stderr = Incoming(self), Incoming(self)
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._paused = self._resuming = False
        self._writing = asyncio.Event()
        self._writing.set()
        self._closed = False
        self._reason: Exception | None = None

    @property
    def channel(self) -> asyncssh.SSHClientChannel[bytes]:
        """What it is opened on."""
        assert self._channel is not None, "the session is opened before it is used"
        return self._channel

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """See asyncssh."""
        self._channel = chan

    def session_started(self) -> None:
        """See asyncssh."""

    def exit_status_received(self, status: int) -> None:
        """See asyncssh; the channel remembers it."""

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        """See asyncssh; the channel remembers it."""

    def xon_xoff_requested(self, client_can_do: bool) -> None:
        """See asyncssh."""

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """See asyncssh."""
        pipe = self.stdout if datatype is None else self.stderr
        pipe.put(data)
        if pipe.held >= _HELD and not self._resuming:
            self._pause()

    def room(self) -> None:
        """Something was read."""
        if self._paused and not self._full():
            self._paused, self._resuming = False, True
            self.channel.resume_reading()
            self._resuming = False
            if self._full():
                self._pause()

    def _full(self) -> bool:
        return self.stdout.held >= _HELD or self.stderr.held >= _HELD

    def _pause(self) -> None:
        self._paused = True
        self.channel.pause_reading()

    def eof_received(self) -> bool:
        """See asyncssh. The command may still be written to."""
        self.stdout.end(None)
        self.stderr.end(None)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncssh."""
        self._closed, self._reason = True, exc
        self.stdout.end(exc)
        self.stderr.end(exc)
        self._writing.set()

    def pause_writing(self) -> None:
        """See asyncssh."""
        self._writing.clear()

    def resume_writing(self) -> None:
        """See asyncssh."""
        self._writing.set()

    async def write(self, data: bytes) -> None:
        """Write to stdin, and wait until the window of the other side has taken nearly all of it."""
        full = False
        self.channel.write(data)
        if not self._writing.is_set():
            full = True
            await self._writing.wait()
        if self._closed and (self._reason is not None or full):
            raise self._reason or BrokenPipeError("the command ended while it was written to")


class Incoming:
    """What came of one stream and was not read yet."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._blocks: deque[bytes] = deque()
        self._packets: list[bytes] = []
        self._packed = 0
        self._ended = False
        self._reason: Exception | None = None
        self._some = asyncio.Event()
        self.held = 0

    def put(self, data: bytes) -> None:
        """Take in a packet."""
        self._packets.append(data)
        self._packed += len(data)
        self.held += len(data)
        if self._packed >= _BLOCK:
            self._pack()
        self._some.set()

    def end(self, reason: Exception | None) -> None:
        """No more comes; `reason` is an error that a reader meets behind the last byte."""
        if not self._ended:
            self._ended, self._reason = True, reason
            self._some.set()

    async def read(self, limit: int) -> bytes:
        """Up to `limit` bytes as soon as there are some, b"" at the end."""
        while not self.held:
            if self._ended:
                if self._reason is not None:
                    reason, self._reason = self._reason, None
                    raise reason
                return b""
            self._some.clear()
            await self._some.wait()
        if not self._blocks:
            self._pack()
        block = self._blocks.popleft()
        if len(block) > limit:
            self._blocks.appendleft(block[limit:])
            block = block[:limit]
        self.held -= len(block)
        self._session.room()
        return block

    def _pack(self) -> None:
        self._blocks.append(b"".join(self._packets) if len(self._packets) != 1 else self._packets[0])
        self._packets.clear()
        self._packed = 0
