"""What is brought of a checkpoint: only what an evaluation reads of it, or its files as they are."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from dflash_tui.checkpoints.anatomy import kind_of_entry, read_anatomy
from dflash_tui.checkpoints.covering import covering
from dflash_tui.checkpoints.errors import CheckpointError, CheckpointIncomplete
from dflash_tui.checkpoints.keys import canonical_tensors
from dflash_tui.checkpoints.needed import evaluation_files
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.segments import Literal as Given
from dflash_tui.checkpoints.segments import Output
from dflash_tui.checkpoints.slim import Left, kept_words, left_words, slim
from dflash_tui.checkpoints.slim_sidecar import is_sidecar, sidecar_name, slim_sidecar
from dflash_tui.checkpoints.slim_words import is_state, words_beside
from dflash_tui.console.acts.frozen import Frozen, frozen
from dflash_tui.hosts.base import FileMissing, Host, Stat
from dflash_tui.hosts.several import stats_of
from dflash_tui.transfer.record import Identity, read_records
from dflash_tui.watch.remote_files import RemoteFiles

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

_INDEX = ".index.json"

Mode = Literal["slim", "full"]
Copy = Literal["slim", "plain", "full"]
"""slim: without what no evaluation reads; plain: the files that it reads, as they are; full: every file."""


@dataclass(frozen=True)
class Cargo:
    """What is going to lie at the destination: `outputs`, the weights first, of which `names` are a checkpoint's own.
    `original` bytes lie at the source; `kept` and `left` (with its bytes) say in words what they hold, `why` is the
    reason why nothing is left though that was asked. `read` is what the sources were before anything was read of them:
    what was made of them is true of nothing else."""

    copy: Copy
    outputs: tuple[Output | str, ...]
    names: tuple[str, ...]
    original: int
    kept: tuple[str, ...] = ()
    left: tuple[tuple[str, int], ...] = ()
    why: str = ""
    notes: tuple[str, ...] = ()
    read: Mapping[str, Identity] = field(default_factory=dict)


async def sizes_of(host: Host, folder: str, names: Sequence[str]) -> dict[str, Stat]:
    """What each of these files of a folder is; links are what they lead to. Raises HostError."""
    beside = {entry.name: entry.stat for entry in await host.list(folder)}
    found = {name: beside[name] for name in names if name in beside and beside[name].kind != "link"}
    others = [name for name in names if name not in found]
    found |= zip(others, await stats_of(host, [posixpath.join(folder, name) for name in others]), strict=True)
    return {name: found[name] for name in names}


async def lies_whole(source: Host, folder: str, names: Sequence[str], destination: Host, wanted: str) -> bool:
    """Whether the folder `wanted` holds all that an evaluation reads of this very checkpoint, as it is at its source:
    its record says so. Then there is nothing to make slim. Raises HostError."""
    records = await read_records(destination, wanted)
    needed = evaluation_files(names)
    known = [records[name] for name in needed if name in records]
    if len(known) < len(needed) or any(is_sidecar(name) for name in records):
        return False
    stats = await sizes_of(source, folder, needed)
    for name, recorded in zip(needed, known, strict=True):
        identity = Identity.of(stats[name])
        told = (recorded.host, recorded.path, recorded.source, recorded.here.size)
        if told != (source.name, posixpath.join(folder, name), identity, identity.size):
            return False
    return True


async def load_up(
    console: Console,
    source: Host,
    folder: str,
    names: Sequence[str],
    mode: Mode,
    destination: Host,
    *,
    whole: str = "",
) -> Cargo:
    """What to bring of the checkpoint whose files are `names` of `folder`. Reads some of it, by ranges. `whole` is the
    folder that holds the files that an evaluation reads as they are, where one does. Raises CheckpointIncomplete for
    one that is being written, HostError."""
    stats = await sizes_of(source, folder, names)
    cargo = await _loaded(console, source, folder, stats, mode, destination, whole)
    return replace(cargo, read={name: Identity.of(stat) for name, stat in stats.items()})


async def _loaded(
    console: Console, source: Host, folder: str, stats: Mapping[str, Stat], mode: Mode, destination: Host, whole: str
) -> Cargo:
    names = tuple(stats)
    original = sum(stat.size for stat in stats.values())
    needed = evaluation_files(names)
    if mode == "full":
        needed = tuple(dict.fromkeys((*needed, *names)))
    others = _in_words(_staying(stats, needed))
    files = RemoteFiles(source, folder, {name: stat.size for name, stat in stats.items()})
    copy: Copy = "full" if mode == "full" else "plain"
    if source.name == destination.name:  # a link takes no room, whatever is in it
        said = await asyncio.to_thread(_words_beside, files, needed)
        return Cargo(copy, (*needed, *said), (*needed, *_names(said)), original, left=others)
    why = ""
    notes = (f"{destination.name}:{whole} holds the whole copy of it already",) if whole else ()
    if mode == "slim" and not whole:
        try:
            return await _slim(console, source, folder, files, stats, needed, destination)
        except CheckpointIncomplete:
            raise
        except CheckpointError as error:
            why = f"moved as it is, because it can't be made slim: {error}"
        except _Nothing:
            pass
    outputs = await asyncio.to_thread(lambda: tuple(_as_it_is(files, name) for name in needed))
    said = await asyncio.to_thread(_words_beside, files, needed)
    names = (*needed, *_names(said))
    return Cargo(copy, (*outputs, *said), names, original, left=others, why=why, notes=notes)


class _Nothing(Exception):
    """There is nothing to leave out."""


async def _slim(
    console: Console,
    source: Host,
    folder: str,
    files: RemoteFiles,
    stats: Mapping[str, Stat],
    needed: Sequence[str],
    destination: Host,
) -> Cargo:
    anatomy = await asyncio.to_thread(read_anatomy, files)
    equal = Frozen()
    evaluation = console.config.evaluation
    if anatomy.structure is not None and evaluation is not None and destination.name == evaluation.host:
        equal = await frozen(console, source, folder, canonical_tensors(anatomy.structure), stats)
    made = await asyncio.to_thread(slim, files, anatomy, equal.names)
    if not made.left:
        raise _Nothing
    weights = made.output.sources
    described = tuple(name for name in needed if name.endswith(".json") and not name.endswith(_INDEX))
    first = stats[weights[0]]
    told = {
        "host": source.name,
        "path": posixpath.join(folder, weights[0]),
        "size": first.size,
        "mtime": first.mtime,
        "inode": first.inode,
        "files": {name: stats[name].size for name in weights},
    }
    stay = _staying(stats, [*weights, *described, *(name for name in needed if name.endswith(_INDEX))])
    sidecar = slim_sidecar(made, told, equal.compared, stay)
    beside = Output(sidecar_name(made.output.name), (Given(sidecar),))
    own = (made.output.name, *described)
    words = [] if anatomy.structure is None else words_beside(anatomy.structure, own)
    return Cargo(
        "slim",
        (made.output, *described, *words, beside),
        (*own, *_names(words)),
        sum(stat.size for stat in stats.values()),
        kept=tuple(kept_words(made.kept).split(", ")),
        left=_in_words([*made.left, *stay]),
        notes=(*equal.doubts, *(f"{name}: {change}" for name, change in made.changed.items())),
    )


def _words_beside(files: RemoteFiles, needed: Sequence[str]) -> list[Output]:
    """As `words_beside`, of files that come as they are; of what can't be read nothing is said."""
    if all(name in needed for name in files.names() if is_state(name)):
        return []
    try:
        return words_beside(read_structure(files), needed)
    except CheckpointError:
        return []


def _names(outputs: Sequence[Output]) -> list[str]:
    return [output.name for output in outputs]


def _staying(stats: Mapping[str, Stat], taken: Sequence[str]) -> list[Left]:
    """The files that stay where they are."""
    return [
        Left(name, stat.size, kind_of_entry(name), "another file, which an evaluation does not read")
        for name, stat in stats.items()
        if name not in set(taken)
    ]


def _in_words(left: Sequence[Left]) -> tuple[tuple[str, int], ...]:
    """What is left, the largest first."""
    found: dict[str, int] = {}
    frozen_pair = [item for item in left if item.kind in ("embedding", "head")]
    for item in left:
        word = left_words(frozen_pair if item in frozen_pair else [item])
        found[word] = found.get(word, 0) + item.nbytes
    return tuple(sorted(found.items(), key=lambda item: -item[1]))


def _as_it_is(files: RemoteFiles, name: str) -> Output | str:
    """A whole file, with the CRC-32s that its own directory states where it is a zip."""
    try:
        return covering(files, name)
    except CheckpointError:
        return name


async def with_sidecars(host: Host, folder: str, files: tuple[str, ...], sidecars: Sequence[str]) -> tuple[str, ...]:
    """The checkpoint's files and those small ones beside them that say what weights can't."""
    try:
        beside = {entry.name for entry in await host.list(folder) if entry.stat.kind == "file"}
    except FileMissing:
        return files
    return (*files, *(name for name in sidecars if name in beside and name not in files))
