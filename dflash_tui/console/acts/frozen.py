"""Which of a checkpoint's embedding and head are frozen copies of the target's, found out before they are moved.

A drafter that stores the target's own pair need not bring it to a host that has the target. Two tensors are the same
when dtype, shape and bytes are: their CRC-32 where the checkpoint's own directory states one, else their SHA-256, each
computed where the bytes lie. What can't be found out is kept.
"""

from __future__ import annotations

import asyncio
import json
import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.family import DRAFT_TO_TARGET, EMBEDDING, HEAD, TARGET_TO_DRAFT
from dflash_tui.checkpoints.keys import TARGET_PREFIXES, Part
from dflash_tui.checkpoints.opening import read_json
from dflash_tui.checkpoints.safetensors import read_safetensors
from dflash_tui.checkpoints.segments import Range
from dflash_tui.checkpoints.structure import TensorInfo
from dflash_tui.hosts.base import Host, HostError, Stat
from dflash_tui.transfer.digests import range_crc, range_digest
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.record import Identity
from dflash_tui.transfer.sources import same_as_read
from dflash_tui.watch.remote_files import RemoteFiles

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_REMEMBERED = "digests.json"
_VERSION = 1
_MOST = 500


@dataclass(frozen=True)
class Frozen:
    """Canonical names of tensors that are the target's own, with what told so ("crc32", "sha256"); and a sentence for
    each that could not be told."""

    compared: Mapping[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """What need not be moved."""
        return frozenset(self.compared)


@dataclass(frozen=True)
class _Placed:
    """A tensor in a file below `folder` of a host, and what that file was when it was looked at."""

    host: Host
    folder: str
    stat: Stat
    info: TensorInfo

    @property
    def piece(self) -> Range:
        """Its bytes."""
        return Range(self.info.file, self.info.offset, self.info.nbytes)

    def key(self, kind: str) -> str:
        """What its digest is remembered under: these bytes of this very file."""
        path = posixpath.join(self.folder, self.info.file)
        where = [self.host.name, path, self.stat.size, self.stat.mtime, self.stat.inode]
        return json.dumps([kind, *where, self.info.offset, self.info.nbytes])


async def frozen(
    console: Console, source: Host, folder: str, parts: Mapping[str, Part], stats: Mapping[str, Stat]
) -> Frozen:
    """Which of the checkpoint's `parts` (by canonical name, in files of `folder`) the evaluation host's target has,
    byte for byte. `stats` is what the files were before `parts` were read from them: of one that is not that any more
    nothing is told. Never raises what a host or a file may raise: unknown is not frozen."""
    stored = [name for name in (EMBEDDING, HEAD) if name in parts and _comparable(parts, name)]
    if not stored or console.config.evaluation is None:
        return Frozen()
    try:
        target = await _target(console.evaluation_host, console.evaluation.target)
    except (CheckpointError, HostError) as error:
        return Frozen(doubts=(f"{_named(stored)}: kept, because the target can't be read: {error}",))
    compared: dict[str, str] = {}
    doubts: list[str] = []
    memory = _Memory(console.store.state / _REMEMBERED)
    for name in stored:
        info, own = parts[name].info, target.get(name)
        if own is None or (info.dtype, info.shape) != (own.info.dtype, own.info.shape):
            continue
        try:
            mine = _Placed(source, folder, stats[info.file], info)
            by = await _compared(memory, mine, own)
            if by:
                compared[name] = by
        except (HostError, TransferError) as error:
            doubts.append(f"{_named([name])}: kept, because it can't be compared with the target's: {error}")
    memory.keep()
    return Frozen(compared, tuple(doubts))


def _comparable(parts: Mapping[str, Part], name: str) -> bool:
    """Whether its bytes are one range of a file; the head of a reduced vocabulary is the drafter's own."""
    if name == HEAD and (DRAFT_TO_TARGET in parts or TARGET_TO_DRAFT in parts):
        return False
    part = parts[name]
    return part.row_stop is None and part.info.contiguous and part.info.nbytes > 0


def _named(names: list[str]) -> str:
    return ", ".join(name.removesuffix(".weight") for name in names)


async def _compared(memory: _Memory, mine: _Placed, own: _Placed) -> str:
    """What showed that the two are the same bytes, "" where they are not. A CRC-32 is of a whole record; 0 is what
    writers put there that compute none, and a host without python3 computes none either."""
    info = mine.info
    whole = (info.storage_offset, info.storage_nbytes) == (info.offset, info.nbytes)
    if info.storage_crc and whole and (found := await _digest(memory, own, "crc32")):
        return "crc32" if found == f"{info.storage_crc:08x}" else ""
    theirs = await _digest(memory, own, "sha256")
    return "sha256" if await _digest(memory, mine, "sha256") == theirs else ""


async def _digest(memory: _Memory, placed: _Placed, kind: str) -> str:
    """Of the file that was looked at: one that was written again meanwhile has no digest under that file's key."""
    key = placed.key(kind)
    known = memory.known.get(key, "")
    if not known:
        if kind == "crc32":
            crc = await range_crc(placed.host, placed.folder, placed.piece)
            known = "" if crc is None else f"{crc:08x}"
        else:
            known = await range_digest(placed.host, placed.folder, placed.piece)
        if known:
            path = posixpath.join(placed.folder, placed.info.file)
            await same_as_read(placed.host, path, Identity.of(placed.stat))
            memory.known[key] = known
    return known


async def _target(host: Host, folder: str) -> dict[str, _Placed]:
    """The target's own embedding and head under the names that a drafter gives them; a tied head is the embedding."""
    stats = await _files(host, folder)
    files = RemoteFiles(host, folder, {name: stat.size for name, stat in stats.items()})
    found = await asyncio.to_thread(_read_target, files, INDEX in stats)
    return {name: _Placed(host, folder, stats[info.file], info) for name, info in found.items()}


async def _files(host: Host, folder: str) -> dict[str, Stat]:
    """What may be read of a target: its config, its index, its weights."""
    names = [entry.name for entry in await host.list(folder)]
    names = [name for name in names if name in ("config.json", INDEX) or name.endswith(".safetensors")]
    stats = await host.stat_many([posixpath.join(folder, name) for name in names])
    return {name: stat for name, stat in zip(names, stats, strict=True) if stat is not None}  # not a link to nothing


def _read_target(files: RemoteFiles, indexed: bool) -> dict[str, TensorInfo]:
    config = read_json(files, "config.json")
    nested = config.get("text_config")
    text: dict[str, Any] = nested if isinstance(nested, dict) else config
    shards = read_json(files, INDEX).get("weight_map") if indexed else None
    read: dict[str, Mapping[str, TensorInfo]] = {}

    def find(bare: str) -> TensorInfo | None:
        for prefix in TARGET_PREFIXES:
            name = prefix + bare
            file = shards.get(name) if isinstance(shards, dict) else SINGLE
            if not isinstance(file, str):
                continue
            if file not in read:
                read[file] = read_safetensors(files, file).tensors
            if name in read[file]:
                return read[file][name]
        return None

    embedding, head = find(EMBEDDING), find(HEAD)
    stated = config.get("tie_word_embeddings", text.get("tie_word_embeddings"))
    if stated is True or (stated is None and head is None):
        head = embedding
    return {name: info for name, info in ((EMBEDDING, embedding), (HEAD, head)) if info is not None}


class _Memory:
    """Digests that were computed before, in the state folder: gigabytes are not read again for every checkpoint."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known = self._read()
        self._before = dict(self.known)

    def _read(self) -> dict[str, str]:
        try:
            data = json.loads(self._path.read_text(encoding="utf-8"))
            digests = data["digests"] if data["version"] == _VERSION else {}
            return {str(key): str(value) for key, value in digests.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}  # it only spares work

    def keep(self) -> None:
        """Write what is new. A state folder that can't be written costs a comparison next time, nothing else."""
        if self.known == self._before:
            return
        body = {"version": _VERSION, "digests": dict(list(self.known.items())[-_MOST:])}
        part = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(body, indent=1), encoding="utf-8")
            part.replace(self._path)
        except OSError:
            part.unlink(missing_ok=True)
