"""The checkpoints that a training has saved, as they lie on its host: which are whole, which are being written."""

from __future__ import annotations

import asyncio
import posixpath
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dflash_tui.checkpoints.layouts import ended
from dflash_tui.checkpoints.listing import Candidate, Listed, candidates
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
    Stat,
)
from dflash_tui.hosts.shell import asked_together
from dflash_tui.hosts.together import list_folders
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.watch.clock import Clock, HostClock, read_clock
from dflash_tui.watch.judging import Judge, Unjudged
from dflash_tui.watch.settled import APART, QUIET, FileStats, Sighting, settled, sighted

__all__ = ["QUIET", "CheckpointLister", "list_checkpoints"]

_SETTLED = 5.0  # seconds after which a time stamp of whole seconds can't hide a later change
_NEWEST = 1  # checkpoint folders that are listed every time, for files in them may change in place
_ALL_EVERY = 12  # looks after which every folder is listed anew
_DEEPEST = 4  # folders below one another that are listed: the root, a checkpoint, two inside it
_FEW = 48
"""The newest ones, which are looked into unasked; if none of them is whole, so many more until one is."""

_MANY = 400
"""The newest ones, which are looked into at most."""

_UNSEEN = "not looked into: there are many newer ones; its step or path asks for it"
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
    that of `step`; all with `every`. Of many checkpoints the newest are looked into, and the one that `step` or `path`
    (its own, or that of a file in it) names. `told` is called with the path and the seconds of each that is waited for.
    """

    step: int | None = None
    path: str = ""
    patience: float = QUIET + _PACE
    every: bool = False
    told: Callable[[str, float], None] = lambda path, seconds: None


class CheckpointLister:
    """Looks at a checkpoints folder again and again; what has not changed is neither listed nor read twice. `unseen`
    counts the checkpoints of the last look that were not looked into, for there are so many."""

    def __init__(self, host: Host, root: str, *, clock: Clock = time.time) -> None:
        self.unseen = 0
        self._judge = Judge(host.name)
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

    @property
    def reads(self) -> int:
        """How many checkpoints' bytes were looked at."""
        return self._judge.reads

    async def look(self, host_clock: HostClock, wanted: Wait | None = None) -> tuple[SavedCheckpoint, ...]:
        """The checkpoints, newest last; of many, the newest and what is `wanted` are looked into. Raises HostError
        where the folder can't be listed."""
        async with self._one_at_a_time, asked_together(self._host) as host:
            self._looks += 1
            self._fresh.clear()
            everything = self._looks % _ALL_EVERY == 1
            if everything:  # what lies deeper is listed again when its folder has changed
                self._folders = {path: known for path, known in self._folders.items() if not self._is_top(path)}
            entries = await host.list(self._root)
            found = await self._candidates(host, entries)
            if not everything and (stale := self._stale(found) - self._fresh):
                # Files of the newest ones may have grown although their folder looks the same.
                for path in stale:
                    del self._folders[path]
                found = await self._candidates(host, entries)
            now = self._clock() + host_clock.ahead
            pointers = await self._pointers(host, entries)
            told = await self._told(host, found, entries, pointers, now, wanted or Wait())
            listed = {item.path for item in found}
            for known in (self._judged, self._seen, self._undecided, self._weights):
                for path in known.keys() - listed:
                    del known[path]
            self._judge.keep(listed)
            self.unseen = len(found) - len(told)
            in_root = {entry.name: entry.stat for entry in entries}
            return tuple(told[item.path] if item.path in told else self._unseen(item, in_root) for item in found)

    async def settle(self, host_clock: HostClock, wait: Wait) -> tuple[SavedCheckpoint, ...]:
        """`look`, and look again where nothing but a second look tells whether a checkpoint is whole. It takes no time
        where nothing is undecided, and does not wait for one that changes meanwhile. Raises HostError."""
        found, changing, told = await self.look(host_clock, wait), set[str](), set[str]()
        while waiting := self._waited_for(found, wait, self._clock() + host_clock.ahead) - changing:
            now = self._clock() + host_clock.ahead
            soonest = min(self._undecided[path] for path in waiting)
            for path in sorted(waiting - told):
                wait.told(path, max(self._undecided[path] - now, APART))
            told |= waiting
            await asyncio.sleep(min(max(soonest - now, APART), _PACE))
            before = {path: self._seen[path].files for path in waiting}
            found = await self.look(host_clock, wait)
            changing |= {path for path in waiting if path in self._seen and self._seen[path].files != before[path]}
        return found

    def stats(self, checkpoint: SavedCheckpoint) -> dict[str, Stat]:
        """The stats of a listed checkpoint's files by relative name, as they were last seen."""
        seen = self._seen.get(checkpoint.path)
        return dict(seen.files) if seen is not None else {}

    async def weights_size(self, checkpoint: SavedCheckpoint) -> tuple[int | None, str]:
        """Bytes of the drafter's own tensors in a listed checkpoint; None, and why, where that can't be told. Its
        structure is read once as long as it stays the same. Raises HostUnreachable, HostKeyRefused."""
        seen = self._seen.get(checkpoint.path)
        if seen is None:
            return None, ""
        known = self._weights.get(checkpoint.path)
        if known is None or known[0] != seen.files:
            told = await self._judge.weights_size(self._host, checkpoint, seen.files)
            known = self._weights[checkpoint.path] = (seen.files, told)
        return known[1]

    def _waited_for(self, found: Sequence[SavedCheckpoint], wait: Wait, now: float) -> set[str]:
        """The undecided checkpoints that would be taken if they were whole, and will soon be known to be."""
        last = max((at for at, item in enumerate(found) if item.completeness == "complete"), default=-1)
        wanted = {item.path for at, item in enumerate(found) if wait.every or wait.step == item.step}
        if wait.step is None:
            wanted |= {item.path for item in found[last + 1 :]}
        return {path for path in wanted & self._undecided.keys() if self._undecided[path] - now <= wait.patience}

    async def _candidates(self, host: Host, entries: Sequence[Entry]) -> list[Candidate]:
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
            for path, inside in (await list_folders(host, list(dict.fromkeys(wanted)))).items():
                if isinstance(inside, HostError):  # it went away since its parent was listed; or lost+found, say
                    refused = "" if isinstance(inside, FileMissing) else str(inside)
                    self._folders[path] = _Folder(stats[path], (), refused)
                else:
                    self._folders[path] = _Folder(stats[path], tuple(inside))
                self._fresh.add(path)
        return found

    def _is_top(self, path: str) -> bool:
        return posixpath.dirname(path) == self._root

    def _stale(self, found: Sequence[Candidate]) -> set[str]:
        """The folders to be listed again: the newest checkpoint's, and everything inside unfinished ones."""
        unfinished = {path for path, judged in self._judged.items() if judged.checkpoint.completeness != "complete"}
        stale = {item.path for item in found[-_NEWEST:]}
        if unfinished:
            stale |= {path for path in self._folders if not unfinished.isdisjoint(_and_above(path))}
        return stale & self._folders.keys()

    async def _pointers(self, host: Host, entries: Sequence[Entry]) -> list[Pointer]:
        """What names the newest checkpoint here; a text is read when it has changed."""
        pointers = [pointer_of_link(item.name, item.target, item.stat.mtime) for item in entries]
        stats = {item.name: item.stat for item in entries}
        for name in pointer_files([(item.name, item.stat.kind) for item in entries]):
            stat = stats[name]
            if name not in self._texts or self._texts[name][0] != stat:
                try:
                    text = await host.read(posixpath.join(self._root, name), 0, min(stat.size, POINTER_BYTES))
                except (HostUnreachable, HostKeyRefused):
                    raise
                except HostError:
                    continue  # it is just being written, or is nobody's to read
                self._texts[name] = (stat, pointer_of_text(name, text, stat.mtime))
            pointers.append(self._texts[name][1])
        return [item for item in pointers if item is not None]

    async def _told(
        self,
        host: Host,
        found: Sequence[Candidate],
        entries: Sequence[Entry],
        pointers: Sequence[Pointer],
        now: float,
        wanted: Wait,
    ) -> dict[str, SavedCheckpoint]:
        """What is known, by path, of the newest ones, of the one that is wanted and of those that were looked into
        before."""
        newest = [item for item in reversed(found)][:_MANY]
        asked = [item for item in found if _is_wanted(item, wanted)][-_MANY:]
        known = [item for item in found if item.path in self._judged]
        now_looked_into = len(newest) if wanted.every else _FEW
        told: dict[str, SavedCheckpoint] = {}
        portion = [*newest[:now_looked_into], *asked, *known]
        while portion:
            told |= await self._all(host, [item for item in portion if item.path not in told], entries, pointers, now)
            if any(item.completeness == "complete" for item in told.values()):
                break
            portion = newest[now_looked_into : now_looked_into + _FEW]
            now_looked_into += _FEW
        return told

    async def _all(
        self, host: Host, items: Sequence[Candidate], entries: Sequence[Entry], pointers: Sequence[Pointer], now: float
    ) -> dict[str, SavedCheckpoint]:
        """What is to be believed of each; what has changed is read."""
        judged: dict[str, SavedCheckpoint] = {}
        unread: list[Unjudged] = []
        by_path = {item.path: item for item in items}
        in_root = {entry.name: entry.stat for entry in entries}
        for item in by_path.values():
            files, refused = await self._files(host, item, in_root)
            seen = self._seen[item.path] = sighted(self._seen.get(item.path), files, item.mtime, now)
            before = self._judged.get(item.path)
            if before is not None and before.files == files:
                step = before.checkpoint.step if item.step is None else item.step
                judged[item.path] = replace(before.checkpoint, step=step)
            else:
                folder = self._folders.get(item.folder)
                unread.append(Unjudged(item, files, seen.newest, refused or (folder.refused if folder else "")))
        for read, checkpoint in zip(unread, await self._judge.judge(host, unread), strict=True):
            judged[checkpoint.path] = checkpoint
            if now - read.newest > _SETTLED:
                self._judged[checkpoint.path] = _Judged(read.files, checkpoint)
        return {path: self._believed(item, judged[path], pointers) for path, item in by_path.items()}

    def _believed(self, item: Candidate, judged: SavedCheckpoint, pointers: Sequence[Pointer]) -> SavedCheckpoint:
        seen = self._seen[item.path]
        self._undecided.pop(item.path, None)
        if item.path in self._judge.unreadable:
            return judged
        said, pointer = finished(pointers, item.name, item.named, seen.newest)
        if said is None and item.link:
            said = item.link_mtime + APART >= seen.newest
            pointer = f"{item.link} leads to it" if said else f"{item.link} is older than they are"
        own = posixpath.basename(item.folder) if item.path == item.folder else ""
        answer = settled(judged, seen, said, pointer, ended=ended({name: stat.mtime for name, stat in seen.files}, own))
        if judged.completeness in ("complete", "unknown") and answer.completeness != "complete":
            self._undecided[item.path] = seen.decides_at()
        return answer

    def _unseen(self, item: Candidate, in_root: Mapping[str, Stat]) -> SavedCheckpoint:
        """One of which only names and stats were looked at."""
        files = tuple(sorted(self._stats(item, in_root).items()))
        return Unjudged(item, files, item.mtime).unknown(self._host.name, _UNSEEN)

    def _stats(self, item: Candidate, in_root: Mapping[str, Stat]) -> dict[str, Stat]:
        """The files' own stats, by name relative to the checkpoint."""
        inside: dict[str, Mapping[str, Stat]] = {}
        found: dict[str, Stat] = {}
        for name in item.files:
            folder, own = posixpath.split(posixpath.join(item.folder, name))
            if folder not in inside:
                known = self._folders.get(folder)
                listed = {entry.name: entry.stat for entry in known.entries} if known is not None else {}
                inside[folder] = in_root if folder == self._root else listed
            if own in inside[folder]:
                found[name] = inside[folder][own]
        return found

    async def _files(self, host: Host, item: Candidate, in_root: Mapping[str, Stat]) -> tuple[FileStats, str]:
        """The stats of a checkpoint's files, and why one can't be told; a link stands for the file that it leads to."""
        found = self._stats(item, in_root)
        links = [name for name, stat in found.items() if stat.kind == "link"]
        paths = [posixpath.join(item.folder, name) for name in links]
        try:
            stats = await host.stat_many(paths)
        except (HostUnreachable, HostKeyRefused):
            raise
        except HostError as error:
            return tuple(sorted(found.items())), str(error)
        for name, stat in zip(links, stats, strict=True):
            if stat is not None:
                found[name] = stat
            else:
                del found[name]  # it leads nowhere
        return tuple(sorted(found.items())), ""


async def list_checkpoints(host: Host, root: str, *, clock: Clock = time.time) -> tuple[SavedCheckpoint, ...]:
    """The checkpoints under `root`, newest last, looked at once. Raises HostError."""
    return await CheckpointLister(host, root, clock=clock).look(await read_clock(host, clock))


def _listed(entry: Entry) -> Listed:
    return Listed(entry.name, entry.stat.kind, entry.target, entry.stat.mtime)


def _is_wanted(item: Candidate, wanted: Wait) -> bool:
    """Whether it may be the one that was asked for: a step may be told by its files alone."""
    if wanted.step is not None and item.step in (wanted.step, None):
        return True
    files = (posixpath.join(item.folder, name) for name in item.files)
    return bool(wanted.path) and wanted.path in (item.path, item.folder, *files)


def _and_above(path: str) -> Iterator[str]:
    """A path and the folders that it lies in."""
    while True:
        yield path
        above = posixpath.dirname(path)
        if above == path:
            return
        path = above
