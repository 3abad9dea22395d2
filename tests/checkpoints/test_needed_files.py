"""What is moved for an evaluation: the weights and what describes them, not the state that only training needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.needed import evaluation_files
from dflash_tui.checkpoints.opening import read_configs, read_structure, weight_file
from tests.checkpoints.found import Case, all_cases

WEIGHTS = ("checkpoint.pt", "model.safetensors", "pytorch_model.bin", "model-00001-of-00002.safetensors")
STATE = (
    "optimizer.pt", "optimizer_state_dict.pt", "scheduler.pt", "scheduler_state_dict.pt", "rng_state.pth",
    "rng_state_3.pth", "training_state.rank0.pt", "training_state_rank0.pt", "training_args.bin", "trainer_state.json",
    "scaler.pt", "optim_000500_rank0.pt", "optim/model_world_size_1_rank_0.pt",
)  # fmt: skip
OTHER = (
    "config.json", "metadata.json", "train_args.json", "generation_config.json", "tokenizer.json",
    "val_metrics.json", "model.safetensors.index.json", "train.log", "training_state.pt", "drafter.pt",
    "model.safetensors.tmp", ".metadata",
)  # fmt: skip
NAMES = st.lists(st.sampled_from((*WEIGHTS, *STATE, *OTHER)), unique=True)


@pytest.mark.parametrize(
    ("names", "needed"),
    [
        (("config.json", "model.safetensors", "training_state.pt"), ("model.safetensors", "config.json")),
        (
            ("config.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state_0.pth",
             "trainer_state.json", "training_args.bin", "tokenizer.json", "tokenizer_config.json",
             "generation_config.json"),
            ("model.safetensors", "config.json"),
        ),
        (
            ("config.json", "model.safetensors", "train_config.py", "training_state.rank0.pt"),
            ("model.safetensors", "config.json"),
        ),
        (
            ("config.json", "model.safetensors", "optimizer_state_dict.pt", "scheduler_state_dict.pt",
             "train_command.txt", "val_metrics.json"),
            ("model.safetensors", "config.json"),
        ),
        (
            ("config.json", "metadata.json", "optimizer/rank_0.pt", "pytorch_model.bin"),
            ("pytorch_model.bin", "config.json", "metadata.json"),
        ),
        (
            ("config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
             "model.safetensors.index.json", "optimizer.bin", "pytorch_model.bin", "training_state.pt"),
            ("model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
             "config.json"),
        ),
        (("training_state.pt", "training_state_rank0.pt"), ("training_state.pt",)),
        (
            ("config.yaml", "model/config.json", "model/model-00001-of-00002.safetensors",
             "model/model-00002-of-00002.safetensors", "model/model.safetensors.index.json", "model/tokenizer.json",
             "optim/.metadata", "optim/__0_0.distcp"),
            ("model/model.safetensors.index.json", "model/model-00001-of-00002.safetensors",
             "model/model-00002-of-00002.safetensors", "model/config.json"),
        ),
        (
            ("lr_scheduler/.metadata", "lr_scheduler/__0_0.distcp", "meta.json", "model/.metadata",
             "model/__0_0.distcp", "model/__1_0.distcp", "optimizer/.metadata", "optimizer/__0_0.distcp", "rng.pt"),
            ("model/.metadata", "model/__0_0.distcp", "model/__1_0.distcp", "meta.json"),
        ),
        ((".metadata", "__0_0.distcp", "__1_0.distcp"), (".metadata", "__0_0.distcp", "__1_0.distcp")),
        (("checkpoint.pt",), ("checkpoint.pt",)),
        (("dflash_config.json", "step_00500.pt"), ("step_00500.pt", "dflash_config.json")),
    ],
)  # fmt: skip
def test_the_weights_and_their_description_are_needed(names: tuple[str, ...], needed: tuple[str, ...]) -> None:
    assert evaluation_files(names) == needed
    assert evaluation_files(tuple(reversed(names))) == needed


@given(NAMES)
def test_opening_what_is_needed_opens_the_same_weights(names: list[str]) -> None:
    needed = evaluation_files(names)
    try:
        main = weight_file(names)
    except CheckpointError:
        assert needed == tuple(names)
        return
    assert weight_file(needed) == needed[0] == main
    assert set(needed) <= set(names)
    assert len(set(needed)) == len(needed)
    assert ("config.json" in needed) == ("config.json" in names)


@given(NAMES)
def test_state_of_the_training_is_not_needed_beside_weights(names: list[str]) -> None:
    needed = evaluation_files(names)
    if not set(names) & {"checkpoint.pt", "model.safetensors", "pytorch_model.bin", "model.safetensors.index.json"}:
        return
    assert not set(needed) & {*STATE, "training_state.pt"}
    assert evaluation_files(needed) == needed


@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.name)
def test_the_same_tensors_and_configs_are_read_of_what_is_needed(case: Case) -> None:
    names = case.candidate.files
    needed = evaluation_files(names)
    moved = LocalFiles(Path(case.candidate.folder), needed)
    assert read_structure(moved).tensors == read_structure(case.files).tensors
    assert read_configs(moved) == read_configs(case.files)
    assert not [name for name in needed if any(word in name for word in ("optim", "sched", "rank0"))]
    assert needed == ("training_state.pt",) or "training_state.pt" not in needed
