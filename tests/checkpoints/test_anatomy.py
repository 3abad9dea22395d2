"""What a checkpoint's bytes are: every one of them is counted once, and nothing is guessed."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict_saver import save

from dflash_tui.checkpoints.anatomy import Anatomy, Piece, kind_of_entry, read_anatomy
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.segments import Output, Range
from dflash_tui.checkpoints.slim import Left, Slim, portion, slim
from tests.checkpoints.composed import slim_copy
from tests.checkpoints.test_torch_files import CountedFiles


def body() -> dict[str, torch.Tensor]:
    """A drafter of one layer; 10 float32 a tensor."""
    keys = (
        "input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm",
        "self_attn.k_norm",
    )  # fmt: skip
    names = [f"layers.0.{key}.weight" for key in keys] + ["fc.weight", "hidden_norm.weight", "norm.weight"]
    return {name: torch.randn(10) for name in names}


def saved(folder: Path, data: object) -> Anatomy:
    torch.save(data, folder / "checkpoint.pt")
    anatomy = read_anatomy(LocalFiles(folder))
    assert sum(piece.nbytes for piece in anatomy.pieces) == anatomy.total
    return anatomy


def test_each_kind_has_its_bytes(tmp_path: Path) -> None:
    pair = torch.randn(50)
    moments = {i: {"exp_avg": torch.randn(10), "exp_avg_sq": torch.randn(10), "step": i} for i in range(14)}
    (tmp_path / "scheduler.pt").write_bytes(bytes(300))
    (tmp_path / "config.json").write_text("{}")
    anatomy = saved(
        tmp_path,
        {
            "model": {
                **body(), "embed_tokens.weight": pair, "lm_head.weight": pair.clone(), "rotary_emb.inv_freq": pair[:2],
                "verifier_norm.weight": torch.randn(10), "verifier_lm_head.weight": pair.clone(),
            },
            "optimizer": {"state": moments, "param_groups": [{"lr": 1.0}]},
            "rng_state": torch.zeros(64, dtype=torch.uint8),
            "args": argparse.Namespace(lr=1),
            "step": 7,
        },
    )  # fmt: skip
    assert anatomy.family == "dflash"
    assert anatomy.weights == anatomy.nbytes("drafter") == 14 * 40
    assert anatomy.nbytes("embedding") == anatomy.nbytes("head") == 200
    assert anatomy.nbytes("verifier") == 240
    assert anatomy.nbytes("optimizer") == 28 * 40
    assert anatomy.nbytes("state") == 64 + 300
    assert anatomy.extras == {"args": {"lr": 1}, "step": 7}
    assert {piece.name for piece in anatomy.files} == {"scheduler.pt", "config.json"}


def test_a_tied_pair_counts_once(tmp_path: Path) -> None:
    pair = torch.randn(50)
    anatomy = saved(tmp_path, {"model": {**body(), "embed_tokens.weight": pair, "lm_head.weight": pair}})
    assert (anatomy.nbytes("embedding"), anatomy.nbytes("head")) == (200, 0)


def test_moments_that_share_the_models_storage_do_not_count_again(tmp_path: Path) -> None:
    model = body()
    anatomy = saved(tmp_path, {"model": model, "optimizer": {"params": list(model.values())}})
    assert anatomy.nbytes("optimizer") == 0


def test_the_head_of_a_reduced_vocabulary_is_the_drafters(tmp_path: Path) -> None:
    maps = {"d2t": torch.zeros(5, dtype=torch.int64), "t2d": torch.zeros(9, dtype=torch.bool)}
    anatomy = saved(tmp_path, {"model": {**body(), "lm_head.weight": torch.randn(5, 2), **maps}})
    assert anatomy.nbytes("head") == 0
    assert anatomy.weights == 14 * 40 + 40 + 40 + 9
    made = slim(LocalFiles(tmp_path), anatomy, frozenset(("lm_head.weight",)))
    assert made.left == ()
    assert "lm_head.weight" in {piece.name for piece in made.kept}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("nested", [False, True])
def test_a_dcp_folder_is_told_apart_by_its_items(tmp_path: Path, nested: bool) -> None:
    model = body()
    state = {
        "model": {**model, "embed_tokens.weight": torch.randn(3000)},
        "optimizer": {"state": {"fc.weight": {"exp_avg": torch.randn(4000)}}},
        "global_step": 12,
        "args": {"block_size": 16},
    }
    save({"app": state} if nested else state, checkpoint_id=tmp_path / "step-12", no_dist=True)
    files = LocalFiles(tmp_path / "step-12")
    anatomy = read_anatomy(files)
    assert anatomy.problem == ""
    assert (anatomy.weights, anatomy.nbytes("embedding")) == (14 * 40, 12_000)
    assert anatomy.nbytes("optimizer") >= 16_000
    assert sum(piece.nbytes for piece in anatomy.pieces) == anatomy.total
    made, copy = slim_copy(files, tmp_path / "slim", frozenset(("embed_tokens.weight",)))
    assert made.output.name == "checkpoint.pt"
    found = torch.load(copy.root / "checkpoint.pt", weights_only=True)
    assert (found["step"], found["args"]) == (12, {"block_size": 16})
    assert all(torch.equal(found["model"][name], tensor) for name, tensor in model.items())
    assert {item.kind for item in made.left} == {"embedding", "optimizer"}


def test_what_cannot_be_read_says_why_and_still_has_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"PK\x03\x04" + bytes(100))
    (tmp_path / "optimizer.pt").write_bytes(bytes(50))
    anatomy = read_anatomy(LocalFiles(tmp_path))
    assert anatomy.structure is None
    assert anatomy.problem.startswith("checkpoint.pt: ")
    assert anatomy.incomplete
    assert anatomy.pieces == (Piece("checkpoint.pt", 104, "other"), Piece("optimizer.pt", 50, "optimizer"))
    assert (anatomy.total, anatomy.weights) == (154, 0)


def test_names_that_collide_are_said_and_the_tensors_still_listed(tmp_path: Path) -> None:
    save_file({"fc.weight": torch.ones(4), "module.fc.weight": torch.zeros(4)}, tmp_path / "model.safetensors")
    anatomy = read_anatomy(LocalFiles(tmp_path))
    assert anatomy.structure is not None
    assert "both fc.weight" in anatomy.problem
    assert [(piece.nbytes, piece.kind) for piece in anatomy.tensors] == [(16, "other"), (16, "other")]


def test_a_far_checkpoint_is_read_once(tmp_path: Path) -> None:
    optimizer = {"state": {i: torch.randn(3) for i in range(500)}}
    torch.save({"model": {**body()}, "optimizer": optimizer, "step": 1, "args": {}}, tmp_path / "checkpoint.pt")
    files = CountedFiles(tmp_path)
    anatomy = read_anatomy(files)
    assert files.trips <= 9
    slim(files, anatomy, frozenset())
    assert files.trips <= 9


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("optimizer_state_dict", "optimizer"), ("replicated_optimizer_state", "optimizer"), ("optim.pt", "optimizer"),
        ("lr_scheduler", "state"), ("rng_state", "state"), ("scaler.pt", "state"), ("ema_model", "state"),
        ("training_state_rank0.pt", "state"), ("trainer_state.json", "state"), ("rng_state_0.pth", "state"),
        ("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "optimizer"),
        ("config.json", "other"), ("schema", "other"), ("step", "other"), ("tokenizer.json", "other"),
    ],
)  # fmt: skip
def test_entries_and_files_are_told_by_their_names(name: str, kind: str) -> None:
    assert kind_of_entry(name) == kind


def test_the_sentence_says_what_moves_and_what_stays() -> None:
    output = Output("checkpoint.pt", (Range("checkpoint.pt", 0, 3_460_000_000),))
    left = (
        Left("optimizer", 6_920_000_000, "optimizer", ""),
        Left("embed_tokens.weight", 2_540_000_000, "embedding", ""),
        Left("lm_head.weight", 2_540_000_000, "head", ""),
        Left("object", 0, "other", ""),
    )
    made = Slim(output, (Piece("fc.weight", 3_460_000_000, "drafter"),), left, 15_470_000_000)
    assert made.sentence == "3.46 of 15.47 GB: drafter; optimizer, frozen embed/lm_head left"
    assert portion(300, 999) == "300 of 999 bytes"
    assert portion(300_000, 1_250_000) == "0.3 of 1.2 MB"
