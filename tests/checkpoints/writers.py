"""Trainers' saves, step by step: the order in which each one's files come into being, and how."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cases import known
from tests.checkpoints.written import drafter, safetensors_bytes

TORCH = known("cases/checkpoints/specforge-new/tiny-v1-one-layer-gqa-step200/training_state.pt").read_bytes()
SAFETENSORS = safetensors_bytes(drafter())
_DCP = known("cases/checkpoints/dcp-with-optimizer/step-4000")
PART, DESCRIPTION = (_DCP / "__0_0.distcp").read_bytes(), (_DCP / ".metadata").read_bytes()
JSON = b'{"a": 1}'
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")

Move = Callable[[Path], None]


@dataclass(frozen=True)
class Writer:
    """`moves` are what its trainer does to the folder of checkpoints, one after another; `path` is what is listed, with
    its `step`."""

    name: str
    path: str
    step: int | None
    moves: tuple[Move, ...]


def growing(name: str, data: bytes) -> Iterator[Move]:
    """A file that is written in place."""
    for length in (0, 3, len(data) // 2, len(data) - 1, len(data)):
        yield lambda root, length=length: _put(root / name, data[:length])  # type: ignore[misc]


def replaced(name: str, data: bytes, temporary: str = "{}.tmp") -> Iterator[Move]:
    """A file that is written under another name and renamed."""
    folder, _, base = name.rpartition("/")
    other = f"{folder}/{temporary.format(base)}".lstrip("/")
    yield from growing(other, data)
    yield lambda root: os.replace(root / other, root / name)


def reserved(name: str, data: bytes) -> Iterator[Move]:
    """A file that has its whole size before it is written, under a name of its own (safetensors ≥ 0.8)."""
    folder, _, _ = name.rpartition("/")
    other = f"{folder}/.tmpAbC123".lstrip("/")
    yield lambda root: _put(root / other, bytes(len(data)))
    yield lambda root: _put(root / other, data)
    yield lambda root: os.replace(root / other, root / name)


def small(name: str, data: bytes = JSON) -> Iterator[Move]:
    """A file that is there at once."""
    yield lambda root: _put(root / name, data)


def linked(name: str, target: str) -> Iterator[Move]:
    """A link that is taken away and made again, which leaves a gap."""

    def unlink(root: Path) -> None:
        (root / name).unlink(missing_ok=True)

    yield unlink
    yield lambda root: (root / name).symlink_to(root / target[1:] if target.startswith("/") else target)


def removed(name: str) -> Iterator[Move]:
    """A marker that goes."""
    yield lambda root: (root / name).unlink()


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _writer(name: str, path: str, step: int | None, *parts: Iterator[Move]) -> Writer:
    return Writer(name, path, step, tuple(move for part in parts for move in part))


def _index() -> bytes:
    return json.dumps({"weight_map": {"a": SHARDS[0], "b": SHARDS[1]}}).encode()


def writers() -> list[Writer]:
    """One save of each layout. What the last move leaves behind is a finished checkpoint."""
    return [
        _writer("the story's", "step_4000", 4000, growing("step_4000/checkpoint.pt", TORCH)),
        _writer(
            "SpecForge",
            "run-step200",
            200,
            replaced("run-step200/training_state.pt", TORCH),
            replaced("run-step200/training_state_rank0.pt", TORCH),
            replaced("run-step200/training_state_rank1.pt", TORCH),
            linked("run-latest", "run-step200"),
        ),
        _writer(
            "SpecForge 0.2",
            "epoch_0_step_100",
            100,
            growing("epoch_0_step_100/training_state.pt", TORCH),
            small("epoch_0_step_100/config.json"),
            growing("epoch_0_step_100/model.safetensors", SAFETENSORS),
        ),
        _writer(
            "speculators",
            "0",
            16626,
            small("0/config.json"),
            reserved("0/model.safetensors", SAFETENSORS),
            growing("0/optimizer_state_dict.pt", TORCH),
            growing("0/scheduler_state_dict.pt", TORCH),
            small("0/training_state.json"),
            linked("epoch0_step16626", "0"),
        ),
        _writer(
            "DeepSpec",
            "step_300",
            300,
            small("step_300/config.json"),
            reserved("step_300/model.safetensors", SAFETENSORS),
            growing("step_300/training_state.rank0.pt", TORCH),
            growing("step_300/training_state.rank1.pt", TORCH),
            small("step_300/train_config.py"),
            linked("step_latest", "/step_300"),
        ),
        _writer(
            "verl-SpeCo",
            "draft_step_40",
            40,
            replaced("draft_step_40/config.json", JSON, "{}.tmp-4711"),
            replaced("draft_step_40/pytorch_model.bin", TORCH, "{}.tmp-4711"),
            growing("draft_step_40/optimizer/__0_0.distcp", PART),
            replaced("draft_step_40/optimizer/.metadata", DESCRIPTION),
            replaced("draft_step_40/metadata.json", b'{"step": 40, "complete": true}', "{}.tmp-4711"),
        ),
        _writer(
            "TorchSpec",
            "iter_0000500",
            500,
            growing("iter_0000500/model/__0_0.distcp", PART),
            replaced("iter_0000500/model/.metadata", DESCRIPTION),
            growing("iter_0000500/optimizer/__0_0.distcp", PART),
            replaced("iter_0000500/optimizer/.metadata", DESCRIPTION),
            growing("iter_0000500/lr_scheduler/__0_0.distcp", PART),
            replaced("iter_0000500/lr_scheduler/.metadata", DESCRIPTION),
            growing("iter_0000500/rng.pt", TORCH),
            small("iter_0000500/meta.json", b'{"global_step": 500}'),
        ),
        _writer(
            "NeMo Automodel",
            "epoch_1_step_900",
            900,
            small("epoch_1_step_900/.incomplete", b""),
            growing(f"epoch_1_step_900/model/{SHARDS[0]}", SAFETENSORS),
            growing(f"epoch_1_step_900/model/{SHARDS[1]}", SAFETENSORS),
            small("epoch_1_step_900/model/model.safetensors.index.json", _index()),
            growing("epoch_1_step_900/optim/__0_0.distcp", PART),
            replaced("epoch_1_step_900/optim/.metadata", DESCRIPTION),
            removed("epoch_1_step_900/.incomplete"),
            replaced("LATEST.txt", b"epoch_1_step_900"),
        ),
        _writer(
            "HF Trainer",
            "checkpoint-500",
            500,
            small("checkpoint-500/config.json"),
            reserved("checkpoint-500/model.safetensors", SAFETENSORS),
            small("checkpoint-500/training_args.bin", TORCH),
            growing("checkpoint-500/optimizer.pt", TORCH),
            growing("checkpoint-500/scheduler.pt", TORCH),
            growing("checkpoint-500/rng_state.pth", TORCH),
            small("checkpoint-500/trainer_state.json"),
        ),
        _writer(
            "HF Trainer, sharded",
            "checkpoint-500",
            500,
            small("checkpoint-500/config.json"),
            reserved(f"checkpoint-500/{SHARDS[0]}", SAFETENSORS),
            reserved(f"checkpoint-500/{SHARDS[1]}", SAFETENSORS),
            small("checkpoint-500/model.safetensors.index.json", _index()),
            small("checkpoint-500/training_args.bin", TORCH),
            growing("checkpoint-500/optimizer.pt", TORCH),
            small("checkpoint-500/trainer_state.json"),
        ),
        _writer(
            "torchtitan",
            "step-1000",
            1000,
            growing("step-1000/__0_0.distcp", PART),
            replaced("step-1000/.metadata", DESCRIPTION),
        ),
        _writer(
            "Megatron",
            "iter_0001000",
            1000,
            growing("iter_0001000/mp_rank_00/model_optim_rng.pt", TORCH),
            growing("iter_0001000/mp_rank_01/model_optim_rng.pt", TORCH),
            small("latest_checkpointed_iteration.txt", b"1000"),
        ),
        _writer(
            "Megatron, distributed",
            "iter_0001000",
            1000,
            growing("iter_0001000/common.pt", TORCH),
            growing("iter_0001000/__0_0.distcp", PART),
            replaced("iter_0001000/.metadata", DESCRIPTION),
            small("iter_0001000/metadata.json", b'{"sharded_backend": "torch_dist"}'),
            small("latest_checkpointed_iteration.txt", b"1000"),
        ),
        _writer(
            "verl",
            "global_step_60",
            60,
            growing("global_step_60/actor/model_world_size_2_rank_0.pt", TORCH),
            growing("global_step_60/actor/model_world_size_2_rank_1.pt", TORCH),
            growing("global_step_60/actor/optim_world_size_2_rank_0.pt", TORCH),
            growing("global_step_60/actor/optim_world_size_2_rank_1.pt", TORCH),
            small("global_step_60/actor/huggingface/config.json"),
            growing("global_step_60/data.pt", TORCH),
            small("latest_checkpointed_iteration.txt", b"60"),
        ),
        _writer(
            "DeepSpeed",
            "global_step100",
            100,
            growing("global_step100/mp_rank_00_model_states.pt", TORCH),
            growing("global_step100/zero_pp_rank_0_mp_rank_00_optim_states.pt", TORCH),
            small("latest", b"global_step100"),
        ),
        _writer(
            "EAGLE",
            "state_3",
            None,
            growing("state_3/global_step900/mp_rank_00_model_states.pt", TORCH),
            growing("state_3/global_step900/zero_pp_rank_0_mp_rank_00_optim_states.pt", TORCH),
            small("state_3/latest", b"global_step900"),
        ),
        _writer("nanochat", "model_000500.pt", 500, growing("model_000500.pt", TORCH)),
        _writer("nanoGPT, in place", "ckpt.pt", None, small("ckpt.pt", TORCH), growing("ckpt.pt", TORCH)),
        _writer("Lightning", "epoch=2-step=300.ckpt", 300, growing("epoch=2-step=300.ckpt", TORCH)),
        _writer(
            "litgpt",
            "step-00000500",
            500,
            growing("step-00000500/lit_model.pth", TORCH),
            small("step-00000500/model_config.yaml"),
        ),
    ]
