"""Whether a checkpoint is all there, told from names and the ends of its files without reading their data."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from dflash_tui.checkpoints.dcp_metadata import shard_extents
from dflash_tui.checkpoints.errors import (
    CheckpointDamaged,
    CheckpointError,
    CheckpointIncomplete,
    CheckpointUnsupported,
)
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.layouts import awaited, holds_weights
from dflash_tui.checkpoints.legacy import legacy_extent
from dflash_tui.checkpoints.names import is_temporary
from dflash_tui.checkpoints.opening import WEIGHT_SUFFIXES, read_json, shard_names
from dflash_tui.checkpoints.safetensors import check_safetensors
from dflash_tui.checkpoints.sentences import sentence
from dflash_tui.checkpoints.torchzip import is_legacy, is_zip
from dflash_tui.checkpoints.zipdir import read_directory
from dflash_tui.records.checkpoint import Completeness

_STATE_FILES = 16
"""How many files of per-rank state are looked at: a large training has hundreds, each a question to its host."""


def completeness(files: Files, names: Sequence[str], folder: str = "") -> tuple[Completeness, str]:
    """("complete", "") or what is missing, in a sentence; one short read of each file's end or header.

    "saving": its writer says so, or files are still to come. "truncated": a file ends before it should. "unknown": the
    format has no end mark, so only the passing of time can tell. `folder` is the checkpoint folder's own name.
    """
    state, reason = _told(files, names, folder)
    return state, sentence(reason)


def _told(files: Files, names: Sequence[str], folder: str) -> tuple[Completeness, str]:
    unfinished = sorted(name for name in names if is_temporary(name))
    if unfinished:
        return "saving", f"{unfinished[0]} has a temporary name; still being written, or left by a crash"
    if "metadata.json" in names:
        answer = _marker(files)
        if answer is not None:
            return answer
    for index in sorted(name for name in names if name.endswith(".index.json")):
        answer = _index(files, names, index)
        if answer is not None:
            return answer
    to_come = awaited(names, folder)
    if to_come:
        return "saving", to_come
    distributed = sorted(name for name in names if posixpath.basename(name) == ".metadata")
    if not distributed and not any(holds_weights(name) for name in names):
        return "saving", "no weights are there yet"
    return _parts(files, names, distributed)


def _parts(files: Files, names: Sequence[str], distributed: Sequence[str]) -> tuple[Completeness, str]:
    """The parts of distributed checkpoints, then every file that has an end to be looked at."""
    unknown = ""
    for metadata in distributed:
        state, reason = _distributed(files, names, metadata)
        if state == "truncated":
            return state, reason
        unknown = unknown or reason
    looked_at = 0
    for name in sorted(names, key=lambda item: (not holds_weights(item), item)):
        if not name.lower().endswith(WEIGHT_SUFFIXES):
            continue
        weights = holds_weights(name)
        looked_at += not weights
        if looked_at > _STATE_FILES:
            break
        state, reason = file_completeness(files, name)
        if state == "truncated":
            return state, reason
        if state == "unknown" and weights:
            unknown = unknown or reason
    return ("unknown", unknown) if unknown else ("complete", "")


def file_completeness(files: Files, name: str) -> tuple[Completeness, str]:
    """Completeness of one weights file. A format that can't be told from its ends is "unknown"."""
    state, reason = _of_file(files, name)
    return state, sentence(reason)


def _of_file(files: Files, name: str) -> tuple[Completeness, str]:
    size = files.size(name)
    if size == 0:
        return "truncated", f"{name}: is empty; still being written?"
    try:
        if name.lower().endswith(".safetensors"):
            check_safetensors(files, name)
        elif is_zip(files, name):
            read_directory(files, name)
        elif is_legacy(files, name):
            return _legacy(files, name, size)
        elif size < 4:
            return "truncated", f"{name}: has {size} bytes; still being written?"
        else:
            return "unknown", f"{name}: neither a zip nor a torch file; its end can't be told"
    except CheckpointUnsupported as error:
        return "unknown", str(error)
    except (CheckpointIncomplete, CheckpointDamaged) as error:
        return "truncated", str(error)
    return "complete", ""


def _legacy(files: Files, name: str, size: int) -> tuple[Completeness, str]:
    end = legacy_extent(files, name)
    if size == end:
        return "complete", ""
    less = "cut, or still being written?" if size < end else "something else was written behind it"
    return "truncated", f"{name}: has {size} bytes, its storages end at byte {end}; {less}"


def _distributed(files: Files, names: Sequence[str], metadata: str) -> tuple[Completeness, str]:
    """Every part that the description names is there with all the bytes that it is said to have."""
    try:
        for part, end in sorted(shard_extents(files, metadata).items()):
            if part not in names:
                return "truncated", f"{metadata}: names {part}, which is not there"
            if files.size(part) < end:
                return "truncated", f"{part}: has {files.size(part)} bytes of {end} that {metadata} names"
    except CheckpointUnsupported as error:
        return "unknown", str(error)
    except (CheckpointIncomplete, CheckpointDamaged) as error:
        return "truncated", str(error)
    return "complete", ""


def _marker(files: Files) -> tuple[Completeness, str] | None:
    """verl-SpeCo writes `complete` into metadata.json."""
    try:
        said = read_json(files, "metadata.json").get("complete")
    except CheckpointError as error:
        return "saving", str(error)
    return ("saving", "metadata.json: complete is false") if said is False else None


def _index(files: Files, names: Sequence[str], index: str) -> tuple[Completeness, str] | None:
    """An index is written after its shards: one that names an absent shard is of a checkpoint that lost it."""
    try:
        absent = [shard for shard in shard_names(files, index) if shard not in names]
    except CheckpointError as error:
        return "truncated", str(error)
    if not absent:
        return None
    return "truncated", f"{index}: names {absent[0]}, which is not there ({len(absent)} shards are absent)"
