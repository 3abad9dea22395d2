"""The checkpoints that a training has saved, as they lie on its host: which are whole, which are being written."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dflash_tui.checkpoints.anatomy import read_anatomy
from dflash_tui.checkpoints.complete import completeness
from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.identity import quick_id
from dflash_tui.checkpoints.layouts import by_rank, ended, holds_weights, stated_step
from dflash_tui.checkpoints.listing import Candidate, Listed, candidates
from dflash_tui.checkpoints.opening import read_directories
from dflash_tui.checkpoints.pointers import (
    POINTER_BYTES,
    Pointer,
    finished,
    pointer_files,
    pointer_of_link,
    pointer_of_text,
)
from dflash_tui.hosts.base import (
    Entry,
    FileMissing,
    Host,
    HostError,
    HostKeyRefused,
    HostUnreachable,
    PermissionRefused,
    ReadShort,
    Stat,
)
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.watch.clock import Clock, HostClock, read_clock
from dflash_tui.watch.remote_files import RemoteFiles
from dflash_tui.watch.settled import APART, QUIET, FileStats, Sighting, settled, sighted

__all__ = ["QUIET", "CheckpointLister", "list_checkpoints"]

_SETTLED = 5.0  # seconds after which a time stamp of whole seconds can't hide a later change
_NEWEST = 1  # checkpoint folders that are listed every time, for files in them may change in place
_ALL_EVERY = 12  # looks after which every folder is listed anew
_DEEPEST = 4  # folders below one another that are listed: the root, a checkpoint, two inside it
_PACE = 5.0  # seconds between two looks at what may still be written


@dataclass(frozen=True)
class _Judged:
    files: FileStats
    checkpoint: SavedCheckpoint


@dataclass(frozen=True)
class _Folder:
    stat: Stat
    entries: tuple[Entry, ...]
    refused: str = ""


@dataclass(frozen=True)
class Wait:
    """Which undecided checkpoints are worth a wait, and how long in seconds: those newer than the newest whole one, or
    that of `step`; all with `every`. `told` is called with the path and the seconds of each that is waited for."""

    step: int | None = None
    patience: float = QUIET + _PACE
    every: bool = False
    told: Callable[[str, float], None] = lambda path, seconds: None


class CheckpointLister:
    """Looks at a checkpoints folder again and again; what has not changed is neither listed nor read twice. `reads`
    counts the checkpoints whose bytes were looked at."""

    def __init__(self, host: Host, root: str, *, clock: Clock = time.time) -> None:
        self.reads = 0
        self._host = host
        self._root = root.rstrip("/") or "/"
        self._clock = clock
        self._judged: dict[str, _Judged] = {}
        self._seen: dict[str, Sighting] = {}
        self._undecided: dict[str, float] = {}
        self._folders: dict[str, _Folder] = {}
        self._fresh: set[str] = set()
        self._weights: dict[str, tuple[FileStats, tuple[int | None, str]]] = {}
        self._texts: dict[str, tuple[Stat, Pointer | None]] = {}
        self._looks = 0
        self._one_at_a_time = asyncio.Lock()

    async def look(self, host_clock: HostClock) -> tuple[SavedCheckpoint, ...]:
        """The checkpoints, newest last. Raises HostError where the folder can't be listed."""
        async with self._one_at_a_time:
            self._looks += 1
            self._fresh.clear()
            everything = self._looks % _ALL_EVERY == 1
            if everything:  # what lies deeper is listed again when its folder has changed
                self._folders = {path: known for path, known in self._folders.items() if not self._is_top(path)}
            entries = await self._host.list(self._root)
            found = await self._candidates(entries)
            if not everything and (stale := self._stale(found) - self._fresh):
                # Files of the newest ones may have grown although their folder looks the same.
                for path in stale:
                    del self._folders[path]
                found = await self._candidates(entries)
            now = self._clock() + host_clock.ahead
            pointers = await self._pointers(entries)
            checkpoints = [await self._judge(item, entries, pointers, now) for item in found]
            listed = {item.path for item in found}
            for known in (self._judged, self._seen, self._undecided, self._weights):
                for path in known.keys() - listed:
                    del known[path]
            return tuple(checkpoints)

    async def settle(self, host_clock: HostClock, wait: Wait) -> tuple[SavedCheckpoint, ...]:
        """`look`, and look again where nothing but a second look tells whether a checkpoint is whole. It takes no time
        where nothing is undecided, and does not wait for one that changes meanwhile. Raises HostError."""
        found, changing, told = await self.look(host_clock), set[str](), set[str]()
        while waiting := self._waited_for(found, wait, self._clock() + host_clock.ahead) - changing:
            now = self._clock() + host_clock.ahead
            soonest = min(self._undecided[path] for path in waiting)
            for path in sorted(waiting - told):
                wait.told(path, max(self._undecided[path] - now, APART))
            told |= waiting
            await asyncio.sleep(min(max(soonest - now, APART), _PACE))
            before = {path: self._seen[path].files for path in waiting}
            found = await self.look(host_clock)
            changing |= {path for path in waiting if path in self._seen and self._seen[path].files != before[path]}
        return found

    def stats(self, checkpoint: SavedCheckpoint) -> dict[str, Stat]:
        """The stats of a listed checkpoint's files by relative name, as they were last seen."""
        seen = self._seen.get(checkpoint.path)
        return dict(seen.files) if seen is not None else {}

    async def weights_size(self, checkpoint: SavedCheckpoint) -> tuple[int | None, str]:
        """Bytes of the drafter's own tensors in a listed checkpoint; None, and why, where that can't be told. Its
        structure is read once as long as it stays the same. Raises HostError."""
        seen = self._seen.get(checkpoint.path)
        if seen is None:
            return None, ""
        known = self._weights.get(checkpoint.path)
        if known is None or known[0] != seen.files:
            remote = RemoteFiles(self._host, checkpoint.folder, {name: stat.size for name, stat in seen.files})
            try:
                anatomy = await asyncio.to_thread(read_anatomy, remote)
                told = (anatomy.weights or None, anatomy.problem)
            except CheckpointError as error:
                told = (None, str(error))
            known = self._weights[checkpoint.path] = (seen.files, told)
        return known[1]

    def _waited_for(self, found: Sequence[SavedCheckpoint], wait: Wait, now: float) -> set[str]:
        """The undecided checkpoints that would be taken if they were whole, and will soon be known to be."""
        last = max((at for at, item in enumerate(found) if item.completeness == "complete"), default=-1)
        wanted = {item.path for at, item in enumerate(found) if wait.every or wait.step == item.step}
        if wait.step is None:
            wanted |= {item.path for item in found[last + 1 :]}
        return {path for path in wanted & self._undecided.keys() if self._undecided[path] - now <= wait.patience}

    async def _candidates(self, entries: Sequence[Entry]) -> list[Candidate]:
        """`candidates` with listings fetched as it asks for them: it names a folder, the folder is listed, it is asked
        again."""
        stats = {posixpath.join(self._root, entry.name): entry.stat for entry in entries}
        listed = [_listed(entry) for entry in entries]
        found: list[Candidate] = []
        for _ in range(_DEEPEST):
            wanted: list[str] = []

            def listing(path: str, wanted: list[str] = wanted) -> list[Listed]:
                known = self._folders.get(path)
                if known is None or known.stat != stats.get(path):
                    wanted.append(path)
                    return []
                stats.update({posixpath.join(path, entry.name): entry.stat for entry in known.entries})
                return [_listed(entry) for entry in known.entries]

            found = candidates(self._root, listed, listing)
            if not wanted:
                break
            for path in wanted:
                try:
                    inside, refused = await self._host.list(path), ""
                except FileMissing:
                    inside, refused = [], ""  # it went away since its parent was listed
                except PermissionRefused as error:
                    inside, refused = [], str(error)  # lost+found, say
                self._folders[path] = _Folder(stats[path], tuple(inside), refused)
                self._fresh.add(path)
        return found

    def _is_top(self, path: str) -> bool:
        return posixpath.dirname(path) == self._root

    def _stale(self, found: Sequence[Candidate]) -> set[str]:
        """The folders to be listed again: the newest checkpoint's, and everything inside unfinished ones."""
        unfinished = [path for path, judged in self._judged.items() if judged.checkpoint.completeness != "complete"]
        stale = {item.path for item in found[-_NEWEST:]}
        stale |= {path for path in self._folders if any(f"{path}/".startswith(f"{item}/") for item in unfinished)}
        return stale & self._folders.keys()

    async def _pointers(self, entries: Sequence[Entry]) -> list[Pointer]:
        """What names the newest checkpoint here; a text is read when it has changed."""
        pointers = [pointer_of_link(item.name, item.target, item.stat.mtime) for item in entries]
        stats = {item.name: item.stat for item in entries}
        for name in pointer_files([(item.name, item.stat.kind) for item in entries]):
            stat = stats[name]
            if name not in self._texts or self._texts[name][0] != stat:
                try:
                    text = await self._host.read(posixpath.join(self._root, name), 0, min(stat.size, POINTER_BYTES))
                except (FileMissing, ReadShort):
                    continue  # it is just being written
                self._texts[name] = (stat, pointer_of_text(name, text, stat.mtime))
            pointers.append(self._texts[name][1])
        return [item for item in pointers if item is not None]

    async def _judge(
        self, item: Candidate, entries: Sequence[Entry], pointers: Sequence[Pointer], now: float
    ) -> SavedCheckpoint:
        files = await self._files(item, entries)
        seen = self._seen[item.path] = sighted(self._seen.get(item.path), files, item.mtime, now)
        before = self._judged.get(item.path)
        if before is not None and before.files == files:
            judged = replace(before.checkpoint, step=before.checkpoint.step if item.step is None else item.step)
        else:
            judged = await self._read(item, files, seen.newest)
            if now - seen.newest > _SETTLED:
                self._judged[item.path] = _Judged(files, judged)
        said, pointer = finished(pointers, item.name, item.named, seen.newest)
        if said is None and item.link:
            said = item.link_mtime + APART >= seen.newest
            pointer = f"{item.link} leads to it" if said else f"{item.link} is older than they are"
        own = posixpath.basename(item.folder) if item.path == item.folder else ""
        answer = settled(judged, seen, said, pointer, ended=ended([name for name, _ in files], own))
        self._undecided.pop(item.path, None)
        if judged.completeness in ("complete", "unknown") and answer.completeness != "complete":
            self._undecided[item.path] = seen.decides_at()
        return answer

    async def _read(self, item: Candidate, files: FileStats, newest: float) -> SavedCheckpoint:
        weights = [stat for name, stat in files if holds_weights(name) or name.endswith(".distcp")]
        weights = weights or [stat for _, stat in files]
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
        if (folder := self._folders.get(item.folder)) is not None and folder.refused:
            return replace(checkpoint, reason=folder.refused)
        self.reads += 1
        remote = RemoteFiles(self._host, item.folder, {name: stat.size for name, stat in files})
        own = posixpath.basename(item.folder) if item.path == item.folder else ""
        try:
            state, reason = await asyncio.to_thread(completeness, remote, checkpoint.files, own)
            if item.step is None:
                checkpoint = replace(checkpoint, step=await asyncio.to_thread(stated_step, remote))
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
            said = "its weights lie in files by rank, which can't be read as one" if by_rank(checkpoint.files) else ""
            return replace(checkpoint, completeness="complete", reason=said or str(error))
        return replace(checkpoint, completeness="complete", quick_id=identity)

    async def _files(self, item: Candidate, root_entries: Sequence[Entry]) -> FileStats:
        """The stats of a checkpoint's files; a link stands for the file that it leads to."""
        found: list[tuple[str, Stat]] = []
        inside: dict[str, dict[str, Stat]] = {}
        for name in item.files:
            folder = posixpath.dirname(posixpath.join(item.folder, name))
            if folder not in inside:
                known = self._folders.get(folder)
                entries = root_entries if folder == self._root else known.entries if known is not None else ()
                inside[folder] = {entry.name: entry.stat for entry in entries}
            stat = inside[folder].get(posixpath.basename(name))
            if stat is not None and stat.kind == "link":
                try:
                    stat = await self._host.stat(posixpath.join(item.folder, name))
                except FileMissing:
                    continue  # it leads nowhere
            if stat is not None:
                found.append((name, stat))
        return tuple(sorted(found, key=lambda pair: pair[0]))


async def list_checkpoints(host: Host, root: str, *, clock: Clock = time.time) -> tuple[SavedCheckpoint, ...]:
    """The checkpoints under `root`, newest last, looked at once. Raises HostError."""
    return await CheckpointLister(host, root, clock=clock).look(await read_clock(host, clock))


def _listed(entry: Entry) -> Listed:
    return Listed(entry.name, entry.stat.kind, entry.target, entry.stat.mtime)
