"""Whether a checkpoint is all there, told from the ends of its files without reading their data."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dflash_tui.checkpoints.errors import (
    CheckpointDamaged,
    CheckpointError,
    CheckpointIncomplete,
    CheckpointUnsupported,
)
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.opening import WEIGHT_SUFFIXES, is_weights_name, read_json, shard_names
from dflash_tui.checkpoints.safetensors import read_safetensors
from dflash_tui.checkpoints.torchzip import is_legacy, is_zip
from dflash_tui.checkpoints.zipdir import read_directory
from dflash_tui.records.checkpoint import Completeness

_TEMPORARY = re.compile(
    r"(^|/)(\.tmp|\.reserving|\.incomplete|tmp-)|\.(tmp|part|partial|incomplete)([-._\d]\w*)?(/|$)", re.I
)
_SHARD = re.compile(r"^(.+)-(\d{5})-of-(\d{5})\.(?:safetensors|bin)$")


def is_temporary(name: str) -> bool:
    """Whether a file name says that its writer has not finished (`.tmp…`, `.part`, an `.incomplete` marker)."""
    return bool(_TEMPORARY.search(name))


def completeness(files: Files, names: Sequence[str]) -> tuple[Completeness, str]:
    """("complete", "") or what is missing, in a sentence; one short read of each file's end or header.

    "saving": its writer says so, or files are still to come. "truncated": a file ends before it should. "unknown": the
    format has no end mark (legacy pickles, DCP folders), so only the passing of time can tell.
    """
    unfinished = sorted(name for name in names if is_temporary(name))
    if unfinished:
        return "saving", f"{unfinished[0]} has a temporary name; still being written, or left by a crash"
    if "metadata.json" in names:
        answer = _marker(files)
        if answer is not None:
            return answer
    indexes = sorted(name for name in names if name.endswith(".index.json"))
    for index in indexes:
        try:
            absent = [shard for shard in shard_names(files, index) if shard not in names]
        except CheckpointError as error:
            return "truncated", str(error)
        if absent:
            return "truncated", f"{index}: names {absent[0]}, which is not there ({len(absent)} shards are absent)"
    if not indexes:
        answer = _shards_to_come(names)
        if answer is not None:
            return answer
    if not any(is_weights_name(name) for name in names):
        if any(name.rpartition("/")[2] == ".metadata" for name in names):
            return "unknown", "a torch.distributed.checkpoint folder: .metadata is there, its parts can't be checked"
        return "saving", "no weights are there yet"
    return _files_end(files, names)


def _files_end(files: Files, names: Sequence[str]) -> tuple[Completeness, str]:
    unknown = ""
    for name in sorted(names, key=lambda item: (not is_weights_name(item), item)):
        if not name.lower().endswith(WEIGHT_SUFFIXES):
            continue
        state, reason = file_completeness(files, name)
        if state == "truncated":
            return state, reason
        if state == "unknown" and is_weights_name(name):
            unknown = unknown or reason
    return ("unknown", unknown) if unknown else ("complete", "")


def file_completeness(files: Files, name: str) -> tuple[Completeness, str]:
    """Completeness of one weights file. A format that can't be told from its ends is "unknown"."""
    size = files.size(name)
    if size == 0:
        return "truncated", f"{name}: is empty; still being written?"
    try:
        if name.lower().endswith(".safetensors"):
            read_safetensors(files, name)
        elif is_zip(files, name):
            read_directory(files, name)
        elif is_legacy(files, name):
            return "unknown", f"{name}: a legacy torch file of {size} bytes, whose end can't be told"
        elif size < 4:
            return "truncated", f"{name}: has {size} bytes; still being written?"
        else:
            return "unknown", f"{name}: neither a zip nor a torch file; its end can't be told"
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


def _shards_to_come(names: Sequence[str]) -> tuple[Completeness, str] | None:
    """Shards are written before their index: numbered ones without it are a save under way."""
    shards = [match for name in names if (match := _SHARD.match(name))]
    if not shards:
        return None
    return "saving", f"{len(shards)} of {int(shards[0].group(3))} shards are there and no index; still being written?"
