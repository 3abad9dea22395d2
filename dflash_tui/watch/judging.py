"""What the bytes of saved checkpoints say of them: many of them are judged with few questions to their host."""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from dflash_tui.checkpoints.anatomy import read_anatomy
from dflash_tui.checkpoints.complete import completeness
from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.identity import quick_id
from dflash_tui.checkpoints.layouts import by_rank, holds_weights, stated_step
from dflash_tui.checkpoints.listing import Candidate
from dflash_tui.checkpoints.opening import WEIGHT_SUFFIXES, read_directories
from dflash_tui.checkpoints.structure import DirectoryLine
from dflash_tui.checkpoints.zipdir import TAIL
from dflash_tui.hosts.base import Host, HostError, HostKeyRefused, HostUnreachable
from dflash_tui.hosts.shell import asked_together
from dflash_tui.hosts.together import AT_ONCE, each, read_files
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.watch.remote_files import RemoteFiles
from dflash_tui.watch.settled import FileStats

T = TypeVar("T")

TOGETHER = 50
"""Checkpoints whose files' ends cross together."""

_FEW = 4  # as many are read one by one: what crosses ahead may not be needed
_FILES_AHEAD = 8  # files of one checkpoint whose ends are read ahead
_HEAD, _FIRST = 512, 1 << 16  # bytes of the begin of a torch file and of a safetensors file, which has a header there

_THREADS = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="judging")
"""Readers wait in these for bytes that the event loop brings; the loop's own threads stay free to bring them."""


@dataclass(frozen=True)
class Unjudged:
    """A checkpoint as it is listed. `newest` is the time of its file that changed last; `refused` says why it can't be
    looked into."""

    item: Candidate
    files: FileStats
    newest: float
    refused: str = ""

    @property
    def own(self) -> str:
        """The name of its folder, where that is the checkpoint."""
        return posixpath.basename(self.item.folder) if self.item.path == self.item.folder else ""

    def unknown(self, host: str, reason: str) -> SavedCheckpoint:
        """What names and stats alone tell."""
        weights = [stat for name, stat in self.files if holds_weights(name) or name.endswith(".distcp")]
        weights = weights or [stat for _, stat in self.files]
        return SavedCheckpoint(
            host=host,
            path=self.item.path,
            folder=self.item.folder,
            files=tuple(name for name, _ in self.files),
            step=self.item.step,
            size=sum(stat.size for _, stat in self.files),
            mtime=self.newest,
            inode=weights[0].inode if weights else 0,
            completeness="unknown",
            reason=reason,
        )


class Judge:
    """Reads what has to be read of checkpoints on one host. `reads` counts them; `unreadable` are those, by path, of
    which that was refused or failed, so that the passing of time can't tell anything either."""

    def __init__(self, name: str) -> None:
        self.reads = 0
        self.unreadable: set[str] = set()
        self._name = name
        self._layouts: dict[str, str] = {}
        self._sizes: dict[str, int] = {}

    async def judge(self, host: Host, wanted: Sequence[Unjudged]) -> list[SavedCheckpoint]:
        """What each one's bytes say; what is wrong with one is its own reason. Raises HostUnreachable,
        HostKeyRefused."""
        found: list[SavedCheckpoint] = []
        for at in range(0, len(wanted), TOGETHER):
            some = wanted[at : at + TOGETHER]
            ahead = await _ahead(host, some) if len(some) > _FEW else {}

            async def one(item: Unjudged, ahead: _Pieces = ahead) -> SavedCheckpoint:
                return await self._read(host, item, ahead.get(item.item.path, {}))

            found += await each(one, some)
        return found

    async def weights_size(self, host: Host, checkpoint: SavedCheckpoint, files: FileStats) -> tuple[int | None, str]:
        """Bytes of the drafter's own tensors; None, and why, where that can't be told. Of checkpoints whose files have
        the same records of the same sizes, as one run's have, one is read. Raises HostUnreachable, HostKeyRefused."""
        layout = self._layouts.get(checkpoint.path, "")
        if layout in self._sizes:
            return self._sizes[layout], ""
        try:
            async with asked_together(host) as asked:
                remote = RemoteFiles(asked, checkpoint.folder, {name: stat.size for name, stat in files})
                anatomy = await _in_thread(lambda: read_anatomy(remote))
        except (HostUnreachable, HostKeyRefused):
            raise
        except (HostError, CheckpointError) as error:
            return None, str(error)
        if layout and anatomy.weights and not anatomy.problem:
            self._sizes[layout] = anatomy.weights
        return anatomy.weights or None, anatomy.problem

    def keep(self, paths: Set[str]) -> None:
        """Only these are there still."""
        self.unreadable &= paths
        for path in self._layouts.keys() - paths:
            del self._layouts[path]

    async def _read(self, host: Host, wanted: Unjudged, ahead: _Ends) -> SavedCheckpoint:
        checkpoint = wanted.unknown(self._name, wanted.refused)
        self._layouts.pop(checkpoint.path, None)
        self.unreadable.discard(checkpoint.path)
        if wanted.refused:
            self.unreadable.add(checkpoint.path)
            return checkpoint
        self.reads += 1
        remote = RemoteFiles(host, checkpoint.folder, {name: stat.size for name, stat in wanted.files}, ahead)
        try:
            state, reason = await _in_thread(lambda: completeness(remote, checkpoint.files, wanted.own))
            if checkpoint.step is None:
                checkpoint = replace(checkpoint, step=await _in_thread(lambda: stated_step(remote)))
            if state != "complete":
                return replace(checkpoint, completeness=state, reason=reason)
            return await self._identified(checkpoint, remote, wanted.files)
        except (HostUnreachable, HostKeyRefused):
            raise
        except (HostError, CheckpointError) as error:
            self.unreadable.add(checkpoint.path)
            return replace(checkpoint, reason=str(error))

    async def _identified(self, checkpoint: SavedCheckpoint, remote: RemoteFiles, files: FileStats) -> SavedCheckpoint:
        """The whole checkpoint with its quick_id; one whose directory can't be told is whole all the same."""
        try:
            lines = await _in_thread(lambda: read_directories(remote))
        except CheckpointError as error:
            said = "its weights lie in files by rank, which can't be read as one" if by_rank(checkpoint.files) else ""
            return replace(checkpoint, completeness="complete", reason=said or str(error))
        self._layouts[checkpoint.path] = _layout(lines, files)
        return replace(checkpoint, completeness="complete", quick_id=quick_id(lines))


_Ends = Mapping[str, Sequence[tuple[int, bytes]]]
_Pieces = Mapping[str, _Ends]


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


async def _ahead(host: Host, wanted: Sequence[Unjudged]) -> _Pieces:
    """The ends of the checkpoints' files by path and name, where they can be had together."""
    places: list[tuple[str, str, int]] = []
    ranges: list[tuple[str, int, int]] = []
    for one in wanted:
        for name, offset, length in _ends(one) if not one.refused else ():
            places.append((one.item.path, name, offset))
            ranges.append((posixpath.join(one.item.folder, name), offset, length))
    pieces: dict[str, dict[str, list[tuple[int, bytes]]]] = {}
    for (path, name, offset), data in zip(places, await read_files(host, ranges), strict=True):
        if data is not None:
            pieces.setdefault(path, {}).setdefault(name, []).append((offset, data))
    return pieces


def _ends(wanted: Unjudged) -> list[tuple[str, int, int]]:
    """Which ranges of which files tell whether they are whole, as (name, offset, length)."""
    ends: list[tuple[str, int, int]] = []
    names = sorted(wanted.files, key=lambda pair: (not holds_weights(pair[0]), pair[0]))
    for name, stat in names[:_FILES_AHEAD]:
        if name.endswith(".safetensors"):
            ends.append((name, 0, min(stat.size, _FIRST)))
        elif name.lower().endswith(WEIGHT_SUFFIXES):
            ends += [(name, 0, min(stat.size, _HEAD)), (name, max(0, stat.size - TAIL), min(stat.size, TAIL))]
        elif name.endswith(".json") and stat.size <= _FIRST:
            ends.append((name, 0, stat.size))
    return [(name, offset, length) for name, offset, length in ends if length]


def _layout(lines: Sequence[DirectoryLine], files: FileStats) -> str:
    """What files of the same structure have in common: their records' names and sizes, whatever lies in them."""
    sizes = {name: stat.size for name, stat in files}
    said = [f"{name}\t{sizes.get(name)}\t{record}\t{size}" for name, record, size, _ in lines]
    return hashlib.sha256("\n".join(said).encode("utf-8", "surrogateescape")).hexdigest()
