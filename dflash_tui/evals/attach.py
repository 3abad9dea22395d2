"""Following a run from anywhere: its files come home as they are written, and its end is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from dflash_tui.evals import launch
from dflash_tui.evals.errors import EvaluationError
from dflash_tui.hosts.base import FileMissing, Host, HostUnreachable, ReadShort
from dflash_tui.hosts.shell import asked_together
from dflash_tui.records.block import BlockRecord
from dflash_tui.records.codec import dumps, loads
from dflash_tui.records.external import Journal
from dflash_tui.records.process import ExitRecord, ProgressRecord, RunState

GROWING = ("progress.jsonl", "log.txt", "blocks.jsonl", "facts.jsonl")
AT_THE_END = ("manifest.json", "capture.json", "process.json", "audit.json", "results.json")
EXTERNAL, EXIT = "external.json", "exit.json"
POLL_SECONDS = 1.0
ASK_SECONDS = 15.0  # three missed heartbeats
RETRY_SECONDS = 3.0
CHUNK = 4 << 20


@dataclass(frozen=True)
class RunUpdate:
    """What came home in one look. `error` is the run's own last sentence, once it has ended."""

    state: RunState
    progress: ProgressRecord | None = None
    blocks: tuple[BlockRecord, ...] = ()
    log: tuple[str, ...] = ()
    lost_link: str = ""
    error: str | None = None


@dataclass
class _Copy:
    """One growing file: `offset` bytes lie at home, `tail` is the unfinished last line of those."""

    offset: int = 0
    tail: bytes = b""
    lines: list[str] = field(default_factory=list)


class Attachment:
    """Follows the run in `run_dir` on `host`; its files are kept in `home`.

    What lies in `home` from an earlier attachment is continued, never fetched twice. The link may break and come back
    any number of times: the run doesn't notice. Two may follow one run into one `home`: they write the same bytes to
    the same places.
    """

    def __init__(self, host: Host, python: str, harness: str, run_dir: str, home: Path) -> None:
        self.host, self.python, self.harness, self.run_dir, self.home = host, python, harness, run_dir, home
        self._asked = host
        self._copies = {name: _Copy() for name in GROWING}
        self._beat: float | None = None  # progress.jsonl's mtime: the run touches it every five seconds

    async def follow(self, emit: Callable[[RunUpdate], None]) -> RunUpdate:
        """Emit updates until the run has ended; the last update is also returned. Cancel to detach."""
        self.home.mkdir(parents=True, exist_ok=True)
        for update in self._kept():
            emit(update)
        async with self._asked_together():
            return await self._follow(emit)

    async def _follow(self, emit: Callable[[RunUpdate], None]) -> RunUpdate:
        quiet_since = asyncio.get_running_loop().time()
        while True:
            now, beat = asyncio.get_running_loop().time(), self._beat
            try:
                update = await (self._ask() if now - quiet_since >= ASK_SECONDS else self._look_or_ask())
            except (HostUnreachable, ReadShort) as error:
                emit(RunUpdate("running", lost_link=str(error)))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self._beat != beat or update.blocks or update.log or now - quiet_since >= ASK_SECONDS:
                quiet_since = now
            emit(update)
            if update.state not in ("running", "starting"):
                return update
            await asyncio.sleep(POLL_SECONDS)

    async def _look_or_ask(self) -> RunUpdate:
        try:
            return await self._look()
        except FileMissing:  # a file, or the whole run directory, was taken away
            return await self._ask()

    async def ask(self) -> RunUpdate:
        """Let the host say what became of the run; what it has written comes home.

        A run that is gone without an exit record is "lost", and that is kept at home, so that nobody asks again. Raises
        HostError, EvaluationError.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        async with self._asked_together():
            return await self._ask()

    @contextlib.asynccontextmanager
    async def _asked_together(self) -> AsyncIterator[None]:
        """Where commands are dear, all questions go through one that stands open."""
        async with asked_together(self.host) as self._asked:
            try:
                yield
            finally:
                self._asked = self.host

    async def _ask(self) -> RunUpdate:
        try:
            await self._asked.stat(self.run_dir)
        except FileMissing:
            return self._lost(f"{self.host.name}:{self.run_dir} is not there any more")
        state = await launch.state(self._asked, self.python, self.harness, self.run_dir)
        update = await self._look()
        if update.state != "running":
            return update
        if state != "lost":
            return replace(update, state=state)
        sizes = await self._sizes()
        for name in AT_THE_END:
            await self._fetch(name, sizes.get(name))
        if "process.json" in sizes:
            last = _last_line(self.home / "log.txt")
            said = f"the process is gone from {self.host.name} without an exit record; last log line: {last}"
        else:
            said = f"it never began on {self.host.name}: no process has recorded itself there; ask for it again"
        lost = self._lost(said)
        return replace(update, state=lost.state, error=lost.error)

    def _lost(self, sentence: str) -> RunUpdate:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._keep("exit.json", dumps(ExitRecord("lost", 1, now, sentence), indent=1).encode())
        return RunUpdate("lost", error=sentence)

    def _kept(self) -> list[RunUpdate]:
        """What an earlier attachment left at home, as one update a file."""
        for name, copy in self._copies.items():
            path = self.home / name
            if path.exists():
                data = path.read_bytes()
                copy.offset = len(data)
                self._split(copy, data)
        update = self._take("running")
        return [update] if update.blocks or update.log else []

    async def _look(self) -> RunUpdate:
        sizes = await self._sizes()
        ended = "exit.json" in sizes
        if ended:
            sizes = await self._sizes()  # exit.json is written last: from now on every other size is final
        for name, copy in self._copies.items():
            await self._bring(name, copy, sizes.get(name, 0))
        if not ended:
            return self._take("running")
        for name in (*AT_THE_END, EXTERNAL):
            await self._fetch(name, sizes.get(name))
        await self._outputs()
        await self._fetch(EXIT, sizes[EXIT])  # last: who finds it at home finds the rest
        end = exit_of(self.home)
        update = self._take(end.state if end else "lost")
        return replace(update, error=end.error if end else None)

    async def _sizes(self) -> dict[str, int]:
        """One look at the run directory: the size of every file in it, in bytes."""
        entries = await self._asked.list(self.run_dir)
        self._beat = next((entry.stat.mtime for entry in entries if entry.name == "progress.jsonl"), None)
        return {entry.name: entry.stat.size for entry in entries}

    async def _bring(self, name: str, copy: _Copy, size: int) -> None:
        path = posixpath.join(self.run_dir, name)
        while copy.offset < size:
            data = await self._asked.read(path, copy.offset, min(CHUNK, size - copy.offset))
            with _opened(self.home / name) as stream:
                stream.seek(copy.offset)
                stream.write(data)
            copy.offset += len(data)
            self._split(copy, data)

    def _split(self, copy: _Copy, data: bytes) -> None:
        *whole, copy.tail = (copy.tail + data).split(b"\n")
        copy.lines += [line.decode("utf-8", "replace") for line in whole if line.strip()]

    def _take(self, state: RunState) -> RunUpdate:
        """Everything split so far and not told yet."""
        taken = {name: copy.lines for name, copy in self._copies.items()}
        for copy in self._copies.values():
            copy.lines = []
        progress = taken["progress.jsonl"]
        where = f"{self.host.name}:{self.run_dir}"
        return RunUpdate(
            state=state,
            progress=loads(ProgressRecord, progress[-1], f"{where}/progress.jsonl") if progress else None,
            blocks=tuple(loads(BlockRecord, line, f"{where}/blocks.jsonl") for line in taken["blocks.jsonl"]),
            log=tuple(taken["log.txt"]),
        )

    async def _fetch(self, name: str, size: int | None) -> None:
        """A finished file, whole: temporary name, then rename. A `size` of None: the run has no such file."""
        if size is None:
            return
        path = posixpath.join(self.run_dir, name)
        chunks = [await self._asked.read(path, offset, min(CHUNK, size - offset)) for offset in range(0, size, CHUNK)]
        self._keep(name, b"".join(chunks))

    async def _outputs(self) -> None:
        """The result files of a script of the user's own, as its journal names them."""
        path = self.home / EXTERNAL
        if not path.exists():
            return
        for output in loads(Journal, path.read_bytes(), str(path)).outputs:
            parts = output.name.split("/")
            if parts[0] not in ("work", "written") or ".." in parts or "" in parts:
                raise EvaluationError(f"{self.host.name}:{self.run_dir}/{EXTERNAL}: found the name {output.name!r}")
            await self._fetch(output.name, output.size)

    def _keep(self, name: str, data: bytes) -> None:
        """Write a file at home under a name of its own, then rename."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        part.write_bytes(data)
        part.replace(path)


def exit_of(home: Path) -> ExitRecord | None:
    """The end of a run as it came home; None while it is not known. Raises RecordError when the file is damaged."""
    path = home / "exit.json"
    return loads(ExitRecord, path.read_bytes(), str(path)) if path.exists() else None


def _opened(path: Path) -> BinaryIO:
    """A file to write into, made where it is missing."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b")


def _last_line(path: Path) -> str:
    try:
        lines = [line for line in path.read_text("utf-8", "replace").splitlines() if line.strip()]
    except FileNotFoundError:
        return "none"
    return lines[-1] if lines else "none"
