"""What each trainer writes last, and so what a checkpoint of its layout still waits for. Told from names alone.

| layout | last |
|---|---|
| HF Trainer, axolotl, ModelOpt, unsloth: `checkpoint-N` with optimizer or arguments | `trainer_state.json` |
| SpecForge ≤ 0.2: `epoch_E_step_S` | the model's weights, after `training_state.pt` |
| torch.distributed.checkpoint (torchtitan, TorchSpec, NeMo) | `.metadata` beside the `*.distcp` parts |
| TorchSpec: `iter_N/model` | `meta.json`, after model, optimizer and scheduler |
| Megatron, distributed: `iter_N` with `common.pt` | `metadata.json` |
| DeepSpeed inside another folder (EAGLE, HF Trainer): `global_stepN` | `latest` beside it |
| FSDP by ranks (verl): `…_world_size_W_rank_R.pt` | all W ranks |
| shards: `…-00001-of-00004.safetensors` | their index |
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence, Set

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.opening import WEIGHT_SUFFIXES, is_weights_name, read_json

_HF_FOLDER = re.compile(r"^(?:.+[-_.])?checkpoint-\d+$", re.I)
_HF_STATE = frozenset(("optimizer.pt", "optimizer.bin", "scheduler.pt", "training_args.bin"))
_OLD_SPECFORGE = re.compile(r"^epoch_\d+_step_\d+$")
_ITERATION = re.compile(r"^iter_\d+$")
_ENGINE_FOLDER = re.compile(r"^((?:.*/)?)global_step\d+/")
_RANK = re.compile(r"^(.+_world_size_(\d+)_rank_)(\d+)(\.\w+)$")
_BY_RANK = re.compile(
    r"(^|/)(mp_rank_\d+(_\d+)?(_model_states\.pt|/model\w*\.pt)|model_world_size_\d+_rank_\d+\.pt)$"
)  # of DeepSpeed, Megatron and FSDP
_STATES = (
    ("training_state.json", ("global_step", "step")),
    ("trainer_state.json", ("global_step",)),
    ("metadata.json", ("step", "global_step")),
    ("meta.json", ("global_step", "step")),
)
_MODEL_ALONE = (".safetensors", ".bin")  # these hold a model and nothing else
_SMALL = 1 << 18
_ABOUT = 2.0  # seconds: file systems tell times in their own steps
_SHARD = re.compile(r"^(.+)-(\d{5})-of-(\d{5})\.(?:safetensors|bin)$")


def by_rank(names: Sequence[str]) -> bool:
    """Whether the weights lie in files of one rank each, which can't be read as one model."""
    return not any(is_weights_name(name) for name in names) and any(_BY_RANK.search(name) for name in names)


def holds_weights(name: str) -> bool:
    """Whether a file of this name may hold a model's weights, whole or as the part of one rank."""
    return is_weights_name(name) or _BY_RANK.search(name) is not None


def stated_step(files: Files) -> int | None:
    """The step that a small state file beside the weights tells; None without one. Raises the backing's own errors."""
    names = set(files.names())
    for name, keys in _STATES:
        if name in names and files.size(name) <= _SMALL:
            try:
                data = read_json(files, name)
            except CheckpointError:
                continue
            told = [data[key] for key in keys if type(data.get(key)) is int]
            if told:
                return int(told[0])
    return None


def ended(times: Mapping[str, float], folder: str = "") -> bool:
    """Whether a checkpoint whose files are whole is known to have ended, for what its layout writes last is there, and
    is not older than its weights: it would be of a save before, which is being written over. `times` are its files',
    POSIX seconds, by name. A folder of which this is not known may get more: an optimizer beside its weights, another
    rank's state."""
    files = [name for name in times if name.lower().endswith(WEIGHT_SUFFIXES)]
    if not folder or (len(files) == 1 and _holds_all(files[0], set(times))):
        return True
    weights = [when for name, when in times.items() if holds_weights(name) or name.endswith(".distcp")]
    newest = max(weights, default=0.0)
    return any(times[marker] + _ABOUT >= newest for marker in _markers(set(times), files))


def _markers(here: Set[str], files: Sequence[str]) -> Iterator[str]:
    """The files that are there and that a layout writes last."""
    yield from sorted(here & {"trainer_state.json", "metadata.json"})
    if "model/.metadata" in here and "meta.json" in here:
        yield "meta.json"
    if ".metadata" in here and not files:
        yield ".metadata"
    latest = {f"{match[1]}latest" for name in here if (match := _ENGINE_FOLDER.match(name))}
    yield from sorted(here & latest)


def _holds_all(name: str, names: set[str]) -> bool:
    """Whether a torch file alone in its folder is all that its trainer writes there."""
    if "/" in name or _BY_RANK.search(name) or name.lower().endswith(_MODEL_ALONE) or name == "training_state.pt":
        return False
    return name != "lit_model.pth" or "model_config.yaml" in names


def awaited(names: Sequence[str], folder: str = "") -> str:
    """What a checkpoint still waits for, as a sentence; "" where its layout tells nothing more to come.

    `folder` is the checkpoint folder's own name, "" where there is none: some layouts are told by it.
    """
    return next(_awaited(frozenset(names), folder), "")


def _awaited(names: frozenset[str], folder: str) -> Iterator[str]:
    state = sorted(names & _HF_STATE)
    if state and _HF_FOLDER.match(folder) and "trainer_state.json" not in names:
        yield f"{state[0]} is there and trainer_state.json, which is written last, is not"
    if _OLD_SPECFORGE.match(folder) and "training_state.pt" in names and not _has_model(names):
        yield "training_state.pt is there and the model, which is written after it, is not"
    for where in sorted({posixpath.dirname(name) for name in names if name.endswith(".distcp")}):
        if posixpath.join(where, ".metadata") not in names:
            yield f"{posixpath.join(where, '.metadata')}, which is written after the *.distcp parts, is not there"
    if _ITERATION.match(folder):
        if "model/.metadata" in names and "meta.json" not in names:
            yield "model/.metadata is there and meta.json, which is written after all parts, is not"
        if "common.pt" in names and "metadata.json" not in names:
            yield "common.pt is there and metadata.json, which is written last, is not"
    for above in sorted({match[1] for name in names if (match := _ENGINE_FOLDER.match(name))}):
        if f"{above}latest" not in names:
            yield f"{above}latest, which names the folder of the engine's state after that is written, is not there"
    yield from _ranks(names)
    yield from _shards(names)


def _has_model(names: frozenset[str]) -> bool:
    return any(name != "training_state.pt" and (holds_weights(name) or name.endswith(".index.json")) for name in names)


def _ranks(names: frozenset[str]) -> Iterator[str]:
    sizes = {(match[1], match[4]): int(match[2]) for name in sorted(names) if (match := _RANK.match(name))}
    for (stem, suffix), size in sizes.items():
        for rank in range(min(size, 1 << 16)):
            if f"{stem}{rank}{suffix}" not in names:
                yield f"{stem}{rank}{suffix} is not there yet: it is one of {size} ranks"
                break


def _shards(names: frozenset[str]) -> Iterator[str]:
    """Shards are written before their index: numbered ones without it are a save under way."""
    indexed = {posixpath.dirname(name) for name in names if name.endswith(".index.json")}
    for where in sorted({posixpath.dirname(name) for name in names if _SHARD.match(name)} - indexed):
        shards = [match for name in sorted(names) if posixpath.dirname(name) == where and (match := _SHARD.match(name))]
        yield f"{len(shards)} of {int(shards[0][3])} shards are there and no index; still being written?"
