"""Which of a checkpoint's files hold the weights, and their structure as one, whatever the container."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dflash_tui.checkpoints.dcp import dcp_directory, read_dcp
from dflash_tui.checkpoints.dcp_metadata import METADATA
from dflash_tui.checkpoints.errors import (
    CheckpointDamaged,
    CheckpointError,
    CheckpointIncomplete,
    CheckpointUnsupported,
    guarded,
)
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.jsontext import read_object
from dflash_tui.checkpoints.legacy import read_legacy, read_legacy_words
from dflash_tui.checkpoints.safetensors import read_safetensors
from dflash_tui.checkpoints.sentences import shown
from dflash_tui.checkpoints.statedict import NAMESPACES
from dflash_tui.checkpoints.structure import DirectoryLine, Structure, TensorInfo
from dflash_tui.checkpoints.torchzip import directory_lines, is_legacy, read_torch_zip, read_words
from dflash_tui.checkpoints.zipdir import read_directory

TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
WEIGHT_SUFFIXES = (".safetensors", *TORCH_SUFFIXES)

_MAX_JSON = 64 << 20
_BESIDE = re.compile(
    r"(^|[._/-])(optim(?!ized)|sched(?!uled)|lr_sched|rng|rank_?\d|training_args|scaler|meta_|mp_rank|data\.pt$)", re.I
)
_PREFERRED = ("checkpoint.pt", "model.safetensors", "pytorch_model.bin", "training_state.pt", "model.pt")
_MODEL_FOLDERS = ("model/consolidated/", "model/", "actor/huggingface/")  # NeMo Automodel's, verl's
_STATES = (("metadata.json", "step"), ("trainer_state.json", "global_step"), ("training_state.json", "global_step"))


def is_weights_name(name: str) -> bool:
    """Whether a file of this name may hold a model's weights (not optimizer, scheduler, random or per-rank state)."""
    return name.lower().endswith(WEIGHT_SUFFIXES) and not _BESIDE.search(name)


def weight_file(names: Sequence[str]) -> str:
    """The file that holds the weights: an index of shards, else the best-known name, else the description of a DCP
    folder, else the only candidate.

    Raises CheckpointIncomplete (no weights yet), CheckpointUnsupported (several).
    """
    top = [name for name in names if "/" not in name]
    for name in sorted(top):
        if name.endswith(".index.json"):
            return name
    candidates = [name for name in top if is_weights_name(name)]
    for name in _PREFERRED:
        if name in candidates:
            return name
    if METADATA in names:
        return METADATA
    candidates = candidates or _nested(names) or _folders(names)
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise CheckpointUnsupported(f"{', '.join(sorted(candidates))}: several files may hold the weights; name one")
    if any(name.endswith(".distcp") for name in names):
        raise CheckpointIncomplete(
            "a torch.distributed.checkpoint (DCP) folder without its .metadata, which is written last; still being "
            "written?"
        )
    raise CheckpointIncomplete(f"no weights among {', '.join(sorted(names)[:6]) or 'no files'}; still being written?")


def _nested(names: Sequence[str]) -> list[str]:
    """The weights in a folder that trainers put a whole model into, inside the checkpoint's."""
    for folder in _MODEL_FOLDERS:
        below = [name.removeprefix(folder) for name in names if name.startswith(folder)]
        if any("/" not in name and is_weights_name(name) for name in below):
            return [f"{folder}{weight_file(below)}"]
    return []


def _folders(names: Sequence[str]) -> list[str]:
    """The descriptions of DCP folders that may hold weights: `model/.metadata`, not `optimizer/.metadata`."""
    found = [name for name in names if name.endswith(f"/{METADATA}") and not _BESIDE.search(name)]
    return [name for name in found if name == f"model/{METADATA}"] or found


def is_dcp(name: str) -> bool:
    """Whether a `weight_file` is the description of a DCP folder."""
    return name.rpartition("/")[2] == METADATA


@guarded
def read_structure(files: Files) -> Structure:
    """Structure of the checkpoint that these files are, with the trainer's args and step wherever they lie in it.

    Raises CheckpointError (see the readers of each format).
    """
    names = files.names()
    main = weight_file(names)
    structure = _read_shards(files, main, names) if main.endswith(".index.json") else _read_one(files, main)
    if not structure.tensors:
        raise CheckpointUnsupported(
            f"{main}: holds no model tensors (looked under {', '.join(NAMESPACES)} and at its top level)"
        )
    return structure if structure.args is not None and structure.step is not None else _beside(files, names, structure)


@guarded
def read_directories(files: Files) -> tuple[DirectoryLine, ...]:
    """`Structure.directory` alone, from the ends of the weights' files: far fewer reads than their structure takes.

    Raises CheckpointError.
    """
    main = weight_file(files.names())
    if is_dcp(main):
        return dcp_directory(files, main)
    names = shard_names(files, main) if main.endswith(".index.json") else [main]
    return tuple(line for name in names for line in _directory(files, name))


def _directory(files: Files, name: str) -> tuple[DirectoryLine, ...]:
    if name.lower().endswith(".safetensors"):
        return read_safetensors(files, name).directory
    if is_legacy(files, name):
        return read_legacy(files, name).directory
    return directory_lines(read_directory(files, name))


@guarded
def read_configs(files: Files) -> list[tuple[str, dict[str, Any]]]:
    """The model configs that lie beside the weights, as (file, data). Raises CheckpointDamaged."""
    names = ("config.json", *(f"{folder}config.json" for folder in _MODEL_FOLDERS))
    there = set(files.names())
    return [(name, read_json(files, name)) for name in names if name in there]


def read_json(files: Files, name: str) -> dict[str, Any]:
    """A JSON object. Raises CheckpointDamaged naming the file."""
    size = files.size(name)
    if size > _MAX_JSON:
        raise CheckpointDamaged(f"{name}: {size} bytes are too many for a JSON description")
    return read_object(files.read(name, 0, size), name)


def shard_names(files: Files, index: str) -> list[str]:
    """The shard files that an index names, in its own folder, sorted. Raises CheckpointDamaged."""
    weight_map = read_json(files, index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise CheckpointDamaged(f"{index}: has no weight_map from tensor names to files")
    shards = sorted(set(weight_map.values()))
    for name in shards:
        if "/" in name or "\\" in name or name in ("", ".", ".."):
            raise CheckpointDamaged(f"{index}: names a shard {shown(name)} outside its folder")
    return [posixpath.join(posixpath.dirname(index), name) for name in shards]


def _read_one(files: Files, name: str) -> Structure:
    if is_dcp(name):
        return read_dcp(files, name)
    if name.lower().endswith(".safetensors"):
        return read_safetensors(files, name)
    return read_legacy(files, name) if is_legacy(files, name) else read_torch_zip(files, name)


def _read_shards(files: Files, index: str, names: Sequence[str]) -> Structure:
    shards = shard_names(files, index)
    absent = [name for name in shards if name not in names]
    if absent:
        raise CheckpointIncomplete(f"{index}: {len(absent)} of {len(shards)} shards are absent, first {absent[0]}")
    parts = [_read_one(files, name) for name in shards]
    tensors: dict[str, TensorInfo] = {}
    for part in parts:
        for name, info in part.tensors.items():
            if name in tensors:
                raise CheckpointDamaged(f"{index}: {name} is in {tensors[name].file} and in {info.file}")
            tensors[name] = info
    lost = sorted(set(read_json(files, index)["weight_map"]) - set(tensors))
    if lost:
        raise CheckpointDamaged(f"{index}: {lost[0]} is in none of its shards ({len(lost)} such tensors)")
    return Structure(
        container=f"{parts[0].container} shards",
        tensors=tensors,
        files=(index, *shards),
        directory=tuple(line for part in parts for line in part.directory),
    )


def _beside(files: Files, names: Sequence[str], structure: Structure) -> Structure:
    """Fill args and step from the trainer's state beside the weights. What can't be read there adds nothing."""
    args, step, sources = structure.args, structure.step, dict(structure.sources)
    if "training_state.pt" in names and "training_state.pt" not in structure.files:
        try:
            read = read_legacy_words if is_legacy(files, "training_state.pt") else read_words
            words = read(files, "training_state.pt")
        except CheckpointError:
            words = {"args": None, "step": None, "sources": {}}
        if args is None and words["args"] is not None:
            args, sources["args"] = words["args"], words["sources"]["args"]
        if step is None and words["step"] is not None:
            step, sources["step"] = words["step"], words["sources"]["step"]
    for name, key in _STATES:
        if step is None and name in names:
            try:
                value = read_json(files, name).get(key)
            except CheckpointError:
                continue
            if type(value) is int:
                step, sources["step"] = value, f"{name}: {key}"
    return replace(structure, args=args, step=step, sources=sources)
