"""The checkpoints that a training has saved, as they lie on its host: which are whole, which are being written."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dflash_tui.checkpoints.complete import completeness
from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.identity import quick_id
from dflash_tui.checkpoints.listing import Candidate, Listed, candidates
from dflash_tui.checkpoints.opening import is_weights_name, read_directories
from dflash_tui.hosts.base import Entry, FileMissing, Host, HostError, HostKeyRefused, HostUnreachable, Stat
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.watch.clock import Clock, HostClock, read_clock
from dflash_tui.watch.remote_files import RemoteFiles

QUIET = 30.0  # seconds without a change after which an unfinished checkpoint is no longer called "saving"
_SETTLED = 5.0  # seconds after which a time stamp of whole seconds can't hide a later change
_NEWEST = 1  # checkpoint folders that are listed every time, for files in them may change in place
_ALL_EVERY = 12  # looks after which every folder is listed anew

_Files = tuple[tuple[str, Stat], ...]
"""A checkpoint's files: relative name and stat, sorted by name."""


@dataclass(frozen=True)
class _Judged:
    files: _Files
    checkpoint: SavedCheckpoint


@dataclass(frozen=True)
class _Folder:
    stat: Stat
    entries: tuple[Entry, ...]


class CheckpointLister:
    """Looks at a checkpoints folder again and again; what has not changed is neither listed nor read twice. `reads`
    counts the checkpoints whose bytes were looked at."""

    def __init__(self, host: Host, root: str, *, clock: Clock = time.time) -> None:
        self.reads = 0
        self._host = host
        self._root = root.rstrip("/") or "/"
        self._clock = clock
        self._judged: dict[str, _Judged] = {}
        self._folders: dict[str, _Folder] = {}
        self._fresh: set[str] = set()
        self._looks = 0
        self._one_at_a_time = asyncio.Lock()

    async def look(self, host_clock: HostClock) -> tuple[SavedCheckpoint, ...]:
        """The checkpoints, newest last. Raises HostError where the folder can't be listed."""
        async with self._one_at_a_time:
            self._looks += 1
            entries = await self._host.list(self._root)
            found = await self._candidates(entries)
            if self._looks % _ALL_EVERY != 1:
                # Files of the newest ones may have grown although their folder looks the same.
                stale = ({item.path for item in found[-_NEWEST:]} | self._unfinished()) & self._folders.keys()
                for path in stale - self._fresh:
                    del self._folders[path]
                if stale - self._fresh:
                    found = await self._candidates(entries)
            now = self._clock() + host_clock.ahead
            checkpoints = [await self._judge(item, entries, now) for item in found]
            self._judged = {item.path: self._judged[item.path] for item in found if item.path in self._judged}
            return tuple(checkpoints)

    async def _candidates(self, entries: Sequence[Entry]) -> list[Candidate]:
        """`candidates` with listings fetched as it asks for them: it names a folder, the folder is listed, it is asked
        again."""
        if self._looks % _ALL_EVERY == 1:
            self._folders.clear()
        self._fresh.clear()
        stats = {posixpath.join(self._root, entry.name): entry.stat for entry in entries}
        wanted: list[str] = []

        def listing(path: str) -> list[Listed]:
            known = self._folders.get(path)
            if known is None or known.stat != stats.get(path):
                wanted.append(path)
                return []
            return [_listed(entry) for entry in known.entries]

        listed = [_listed(entry) for entry in entries]
        found = candidates(self._root, listed, listing)
        if wanted:
            for path in wanted:
                try:
                    inside = await self._host.list(path)
                except FileMissing:
                    inside = []  # it went away since its parent was listed
                self._folders[path] = _Folder(stats[path], tuple(inside))
                self._fresh.add(path)
            found = candidates(self._root, listed, listing)
        return found

    def _unfinished(self) -> set[str]:
        return {path for path, judged in self._judged.items() if judged.checkpoint.completeness != "complete"}

    async def _judge(self, item: Candidate, root_entries: Sequence[Entry], now: float) -> SavedCheckpoint:
        inside = root_entries if item.folder == self._root else self._entries(item.folder)
        files = await self._files(item, inside)
        newest = max((stat.mtime for _, stat in files), default=item.mtime)
        before = self._judged.get(item.path)
        if before is not None and before.files == files:
            judged = before.checkpoint
        else:
            judged = await self._read(item, files, newest)
            if now - newest > _SETTLED:
                self._judged[item.path] = _Judged(files, judged)
        if judged.completeness in ("truncated", "unknown") and now - newest < QUIET:
            return replace(judged, completeness="saving")
        return judged

    async def _read(self, item: Candidate, files: _Files, newest: float) -> SavedCheckpoint:
        weights = [stat for name, stat in files if is_weights_name(name)] or [stat for _, stat in files]
        checkpoint = SavedCheckpoint(
            host=self._host.name,
            path=item.path,
            folder=item.folder,
            files=tuple(name for name, _ in files),
            step=item.step,
            size=sum(stat.size for _, stat in files),
            mtime=newest,
            inode=weights[0].inode if weights else 0,
            completeness="unknown",
        )
        self.reads += 1
        remote = RemoteFiles(self._host, item.folder, {name: stat.size for name, stat in files})
        try:
            state, reason = await asyncio.to_thread(completeness, remote, checkpoint.files)
            if state != "complete":
                return replace(checkpoint, completeness=state, reason=reason)
            return await self._identified(checkpoint, remote)
        except (HostUnreachable, HostKeyRefused):
            raise
        except (HostError, CheckpointError) as error:
            return replace(checkpoint, reason=str(error))

    async def _identified(self, checkpoint: SavedCheckpoint, remote: RemoteFiles) -> SavedCheckpoint:
        """The whole checkpoint with its quick_id; one whose directory can't be told is whole all the same."""
        try:
            identity = await asyncio.to_thread(lambda: quick_id(read_directories(remote)))
        except CheckpointError as error:
            return replace(checkpoint, completeness="complete", reason=str(error))
        return replace(checkpoint, completeness="complete", quick_id=identity)

    def _entries(self, folder: str) -> Sequence[Entry]:
        known = self._folders.get(folder)
        return known.entries if known is not None else ()

    async def _files(self, item: Candidate, inside: Sequence[Entry]) -> _Files:
        stats: list[tuple[str, Stat]] = []
        for entry in inside:
            if entry.name not in item.files:
                continue
            stat = entry.stat
            if stat.kind == "link":
                try:
                    stat = await self._host.stat(posixpath.join(item.folder, entry.name))
                except FileMissing:
                    continue  # it leads nowhere
            stats.append((entry.name, stat))
        return tuple(sorted(stats, key=lambda pair: pair[0]))


async def list_checkpoints(host: Host, root: str, *, clock: Clock = time.time) -> tuple[SavedCheckpoint, ...]:
    """The checkpoints under `root`, newest last, looked at once. Raises HostError."""
    return await CheckpointLister(host, root, clock=clock).look(await read_clock(host, clock))


def _listed(entry: Entry) -> Listed:
    return Listed(entry.name, entry.stat.kind, entry.target, entry.stat.mtime)
