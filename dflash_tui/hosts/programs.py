"""Programs of this workstation whose streams are descriptors: bytes go past this process, not through it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Sequence
from typing import IO

from dflash_tui.hosts.base import Completed, HostError
from dflash_tui.hosts.openssh import environment
from dflash_tui.hosts.running import Tail, command_text

_REAP = 5.0
_MOST = 1 << 16
"""Bytes of an answer: who says more does not answer what was asked."""


class Program:
    """A running program in a session of its own: no terminal is near it that it could ask on."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        assert child.stderr is not None
        self.pid = child.pid
        self._child = child
        self._tail = Tail(child.stderr.read, (OSError,))

    async def announced(self, mark: str, patience: float) -> int | None:
        """See `Process.announced`."""
        return await self._tail.pid(mark, patience)

    async def wait(self) -> Completed:
        """The exit status (128 + signal when killed) and stderr's tail."""
        status = await self._child.wait()
        return Completed(status if status >= 0 else 128 - status, b"", await self._tail.text(_REAP))

    async def end(self) -> None:
        """Kill what still runs of the session, a jump's `ssh` too, and reap the child."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REAP):
                await self._child.wait()
        await self._tail.close()


@contextlib.asynccontextmanager
async def started(
    argv: Sequence[str], *, stdin: int | IO[bytes] = asyncio.subprocess.DEVNULL, stdout: int
) -> AsyncIterator[Program]:
    """Start a program; leaving the context kills its session if anything of it still runs. Raises HostError when it
    can't be started."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=stdin,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=environment(),
        )
    )
    try:
        # Cancelled in the middle of a start, nobody would know what to end.
        child = await asyncio.shield(starting)
    except asyncio.CancelledError:
        await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            await Program(starting.result()).end()
        raise
    except OSError as error:
        raise HostError(f"this workstation can't start `{command_text(argv)}`: {error.strerror}") from error
    program = Program(child)
    try:
        yield program
    finally:
        await program.end()


async def answer(argv: Sequence[str], *, timeout: float) -> Completed:
    """Run a program with little output to its end. Raises HostError when it takes longer."""
    near, far = os.pipe()
    reader = asyncio.StreamReader()
    opened = os.fdopen(near, "rb", 0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), opened
    )
    try:
        async with asyncio.timeout(timeout):
            try:
                async with started(argv, stdout=far) as program:
                    os.close(far)
                    far = -1
                    said = b""
                    while len(said) < _MOST and (data := await reader.read(_MOST)):
                        said += data
                    done = await program.wait()
            finally:
                if far >= 0:
                    os.close(far)
    except TimeoutError:
        raise HostError(f"`{command_text(argv)}` did not answer within {timeout:g} s") from None
    finally:
        transport.close()
    return Completed(done.status, said, done.stderr)
