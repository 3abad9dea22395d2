"""A container, pod or allocation reached by a launcher on another host (`pct exec 200 --`, `docker exec c`, …).

Everything goes through the launcher as argv, never with a PTY and never by the launcher's own copy command
(`pct pull` stages the whole file and exits 0 on a short copy). What is sent for files is the table in
`commands.py`; beside it only `pct status ID`, on the host itself, when a command was refused.
The launcher's status is its program's: byte counts and hashes are judged above it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

from dflash_tui.hosts import commands
from dflash_tui.hosts.base import Completed, Entry, Host, HostError, HostUnreachable, Process, Space, Stat
from dflash_tui.hosts.running import command_text, run_to_end

_NEEDS_INTERACTIVE = frozenset({"docker", "podman", "nerdctl", "kubectl", "oc"})
"""Launchers that leave the program's stdin closed unless told `-i`."""

_NOT_RUNNING = re.compile(
    r"container '[^']*' not running"  # pct
    r"|Configuration file '[^']*' does not exist"  # pct, on another node or destroyed
    r"|[Cc]ontainer \S+ is not running|No such container"  # docker
    r"|can only create exec sessions on running containers|no container with name or ID"  # podman
    r"|[Ii]nstance is not running|Instance not found"  # incus, lxc
    r'|pods "[^"]*" not found|container not found|cannot exec into a container in a completed pod'  # kubectl
    r"|Invalid job id specified|Job/step already completing or completed"  # srun
)


class ContainerHost:
    """The inside of a container. `prefix` is put before every command and run on `inner`, which this host does not own:
    `close` leaves it open."""

    def __init__(self, inner: Host, prefix: Sequence[str], name: str) -> None:
        """Raises HostError when the prefix is empty."""
        if not prefix:
            raise HostError(f"{name}: the prefix of a container is empty; expected one such as `pct exec 200 --`")
        self.name = name
        self._inner = inner
        self._prefix = tuple(prefix)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 60.0, check: bool = True
    ) -> Completed:
        """See `Host.run`. A container that does not run raises HostUnreachable."""
        opened = self.stream(argv, stdin=bool(stdin))
        return await run_to_end(self.name, argv, opened, stdin=stdin, timeout=timeout, check=check)

    def stream(self, argv: Sequence[str], *, stdin: bool = False) -> AbstractAsyncContextManager[Process]:
        """See `Host.stream`. Killing the launcher ends what it started where the two share a process group (pct, srun);
        a docker or kubectl program ends when its streams do."""
        return self._stream(argv, stdin)

    @contextlib.asynccontextmanager
    async def _stream(self, argv: Sequence[str], stdin: bool) -> AsyncIterator[Process]:
        async with self._inner.stream([*self._launcher(stdin), *argv], stdin=stdin) as process:
            yield _ContainerProcess(self, process)

    def _launcher(self, stdin: bool) -> list[str]:
        prefix = list(self._prefix)
        for at, word in enumerate(prefix[:-1]):
            if stdin and word.rsplit("/", 1)[-1] in _NEEDS_INTERACTIVE and "exec" in prefix[at:]:
                prefix.insert(prefix.index("exec", at) + 1, "-i")
                break
        return prefix

    async def refuse_if_stopped(self, done: Completed) -> None:
        """Raise HostUnreachable when a command failed because the container does not run."""
        match = _NOT_RUNNING.search(done.stderr) if done.status != 0 else None
        if match is None:
            return
        shown = f"{self.name} (`{command_text(self._prefix)}` on {self._inner.name})"
        status = self._status_command()
        if status is None:
            raise HostUnreachable(f"{shown} is not running or does not exist; the launcher says: {match[0]}")
        state = await self._inner.run(status, timeout=20, check=False)
        if state.status != 0:
            raise HostUnreachable(f"{shown} does not exist on that node; see `pct list` there")
        if "running" in state.text:
            # The words came from a program inside, or the container has just come up.
            return
        raise HostUnreachable(f"{shown} is stopped; start it with `pct start {status[-1]}` on {self._inner.name}")

    def _status_command(self) -> list[str] | None:
        for at, word in enumerate(self._prefix[:-2]):
            if word.rsplit("/", 1)[-1] == "pct" and self._prefix[at + 1] == "exec":
                return [*self._prefix[: at + 1], "status", self._prefix[at + 2]]
        return None

    async def read(self, path: str, offset: int, length: int) -> bytes:
        """See `Host.read`."""
        return await commands.read(self, path, offset, length)

    async def stat(self, path: str, *, follow: bool = True) -> Stat:
        """See `Host.stat`."""
        return await commands.stat(self, path, follow=follow)

    async def list(self, path: str) -> list[Entry]:
        """See `Host.list`."""
        return await commands.list_folder(self, path)

    async def write(self, path: str, data: bytes) -> None:
        """See `Host.write`."""
        await commands.write(self, path, data)

    async def make_folder(self, path: str, *, exclusive: bool = False) -> None:
        """See `Host.make_folder`."""
        await commands.make_folder(self, path, exclusive=exclusive)

    async def free_space(self, path: str) -> Space:
        """See `Host.free_space`."""
        return await commands.free_space(self, path)

    async def close(self) -> None:
        """The host that the container runs on stays open."""


class _ContainerProcess:
    def __init__(self, host: ContainerHost, process: Process) -> None:
        self._host, self._process = host, process
        self.read = process.read
        self.close_stdin = process.close_stdin
        self.write = process.write

    async def wait(self) -> Completed:
        done = await self._process.wait()
        await self._host.refuse_if_stopped(done)
        return done
