"""What a slim copy may leave and what it must say: nothing that might be the drafter goes, nothing changes unsaid."""

from __future__ import annotations

import argparse
import enum
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from dflash_tui.checkpoints.anatomy import read_anatomy
from dflash_tui.checkpoints.errors import CheckpointUnsupported
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.settings import resolve_settings
from dflash_tui.checkpoints.slim import Slim, slim
from dflash_tui.checkpoints.slim_sidecar import read_sidecar, slim_sidecar
from dflash_tui.checkpoints.slim_words import words_beside
from tests.cases import known
from tests.checkpoints.composed import composed
from tests.checkpoints.test_anatomy import body

BULK = 30_000  # float32: more than any counter
ARGS = {
    "block_size": 8, "mask_token_id": 256, "target_layer_ids": [1, 3, 5], "num_target_layers": 8, "rope_theta": 1e6,
    "rms_norm_eps": 1e-6, "vocab_size": 257, "layer_types": ["full_attention"] * 2,
}  # fmt: skip


class Colour(enum.Enum):
    RED = 1


@dataclass
class Options:
    block_size: int = 4


class Weird:
    """An object of which only its own class knows what it was made from."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        return Weird, (self.tensor,)


def made_of(folder: Path, data: object) -> tuple[Slim, dict[Any, Any]]:
    """A slim copy of what torch.save writes, and what torch reads of it."""
    torch.save(data, folder / "checkpoint.pt")
    files = LocalFiles(folder, ["checkpoint.pt"])
    made = slim(files, read_anatomy(files), frozenset())
    (folder / "slim").mkdir(exist_ok=True)
    (folder / "slim" / "checkpoint.pt").write_bytes(composed(files, made.output))
    found: dict[Any, Any] = torch.load(folder / "slim" / "checkpoint.pt", weights_only=True)
    return made, found


def drafter() -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(
        known("cases/checkpoints/raw-step/step_4000/checkpoint.pt"), weights_only=False
    )["model_state_dict"]
    return found


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (lambda: {"model": {"weight": torch.ones(9)}, "optimizer": torch.ones(BULK)}, "no drafter"),
        (lambda: {"model": {k: v for k, v in body().items() if k != "norm.weight"}}, "norm.weight"),
        (lambda: {"model": {k.replace(".0.", ".1."): v for k, v in body().items()}}, r"layers\.0\."),
        (lambda: {"model": body(), "heads": {"lm_head": torch.ones(BULK)}, "optimizer": torch.ones(9)}, "heads holds"),
        (lambda: {"model": body(), "lm_head.weight": torch.ones(BULK)}, r"lm_head\.weight holds 120,000 bytes"),
        (lambda: {"model": {**body(), "adapter": {"w": torch.ones(BULK)}}}, r"model\.adapter holds"),
        (lambda: {"model": body(), "mystery": Weird(torch.ones(BULK))}, "can't be looked into"),
        (lambda: {"model": body(), "mystery": [Weird(torch.ones(BULK))], "optimizer": Weird(torch.ones(9))}, "looked"),
        (lambda: {"draft_model": body(), "model": {"w": torch.ones(BULK)}}, "model holds"),
    ],
)  # fmt: skip
def test_what_may_be_the_drafter_is_never_left(tmp_path: Path, data: Callable[[], object], says: str) -> None:
    with pytest.raises(CheckpointUnsupported, match=says):
        made_of(tmp_path, data())


@pytest.mark.parametrize("keys", [("drafter",), ("trainer", "net"), ("model",), ("trainer", "model")])
def test_a_drafter_comes_along_under_whatever_key_it_is(tmp_path: Path, keys: tuple[str, ...]) -> None:
    model = body()
    data: dict[str, Any] = {keys[-1]: model, "optimizer": torch.ones(BULK), "best_loss": torch.tensor(0.3)}
    data = data if len(keys) == 1 else {keys[0]: data, "model_name": "qwen3"}
    made, _ = made_of(tmp_path, data)
    copy = read_structure(LocalFiles(tmp_path / "slim", ["checkpoint.pt"]))
    assert set(copy.tensors) == set(model)
    around = "" if len(keys) == 1 else f"{keys[0]}."
    assert {item.name: item.nbytes for item in made.left} == {f"{around}optimizer": 4 * BULK, f"{around}best_loss": 4}


def test_a_name_that_the_copy_needs_for_the_model_is_not_given_away_unsaid(tmp_path: Path) -> None:
    data = {"trainer": {"net": body(), "optimizer": torch.ones(BULK)}, "model": "qwen3"}
    made, found = made_of(tmp_path, data)
    assert set(found["model"]) == set(body())
    assert {item.name for item in made.left} == {"trainer.optimizer", "model"}


def test_one_part_of_a_storage_in_the_model_and_another_elsewhere_is_not_nothing(tmp_path: Path) -> None:
    flat = torch.ones(2 * BULK)
    with pytest.raises(CheckpointUnsupported, match="rest holds 120,000 bytes"):
        made_of(tmp_path, {"model": {**body(), "x": flat[:BULK]}, "rest": {"w": flat[BULK:]}})


@pytest.mark.parametrize("legacy", [False, True])
def test_all_that_is_left_is_in_the_sidecar_with_its_bytes(tmp_path: Path, legacy: bool) -> None:
    data = {
        "model": {**body(), "count": 7, "scale": {"w": torch.ones(4)}, "mlp._extra_state": torch.ones(5)},
        "optimizer": Weird(torch.ones(BULK)),
        "ema_model": {"w": torch.ones(10)},
        "training": {"grad_buffer": torch.ones(BULK), "rng": torch.ones(3)},
        "verifier": {"w": torch.ones(BULK)},
        "best_loss": torch.tensor(0.3),
    }
    torch.save(data, tmp_path / "checkpoint.pt", _use_new_zipfile_serialization=not legacy)
    files = LocalFiles(tmp_path, ["checkpoint.pt"])
    made = slim(files, read_anatomy(files), frozenset())
    said = read_sidecar(slim_sidecar(made, {}))
    left = {item.name: item.nbytes for item in said.left}
    assert left == {
        "optimizer": 0, "objects that can't be looked into": 4 * BULK, "ema_model": 40, "training": 4 * BULK + 12,
        "verifier": 4 * BULK, "best_loss": 4, "model.count": 0, "model.scale": 16, "model.mlp._extra_state": 20,
    }  # fmt: skip
    assert all(item.why for item in said.left)
    assert next(item.kind for item in said.left if item.name.startswith("objects")) == "optimizer"


@pytest.mark.parametrize("kind", [dict, lambda data: argparse.Namespace(**data)])
@pytest.mark.parametrize("count", [3000, 30_000, 300_000])
def test_settings_survive_among_any_number_of_arguments(
    tmp_path: Path, kind: Callable[[Mapping[str, Any]], Any], count: int
) -> None:
    args = kind({"files": [f"shard{number}" for number in range(count)], "nested": {"seed": 3}, **ARGS})
    made, _ = made_of(tmp_path, {"model": drafter(), "args": args, "step": 4000, "optimizer": torch.ones(BULK)})
    full, copy = (read_structure(LocalFiles(folder, ["checkpoint.pt"])) for folder in (tmp_path, tmp_path / "slim"))
    assert resolve_settings(copy, [], {}) == resolve_settings(full, [], {})
    assert copy.args is not None
    assert copy.args["nested"] == {"seed": 3}
    assert list(copy.args) == list(full.args or {})
    if count < 200_000:
        assert (copy.args, made.changed) == (full.args, {})
    else:
        assert made.changed == {"args.files": "too large or too deep to be kept"}
        assert read_sidecar(slim_sidecar(made, {})).changed == made.changed


def test_plain_data_comes_back_exactly_or_not_at_all(tmp_path: Path) -> None:
    exact: dict[Any, Any] = {
        "set": {1, 2, "x"}, "bytes": b"a\x00\xff", "tuple": (1, (2, 3)), "keys": {1: "a", "1": "b", None: 0, 1.5: 2},
        "pairs": {(1, 2): 3}, 1: "one", "1": "text", None: "none", 2.5: "half", "dtype": torch.bfloat16,
        "list": [{"deep": [{4}, b"x"]}], "none": None, "long": "x" * 70_000,
    }  # fmt: skip
    gone = {"frozen": frozenset([1]), "enum": Colour.RED, "keyed": {frozenset([1]): 1, frozenset([2]): 2}}
    made, found = made_of(tmp_path, {"model": body(), "optimizer": torch.ones(BULK), **exact, **gone})
    assert {key: value for key, value in found.items() if key != "model"} == exact
    assert [type(key) for key in found["keys"]] == [int, str, type(None), float]
    assert {item.name for item in made.left} == {"optimizer", *gone}
    assert made.changed == {}


def test_what_arguments_cannot_keep_is_as_readers_see_it_and_said(tmp_path: Path) -> None:
    args = argparse.Namespace(
        block_size=16, colour=Colour.RED, inner=Options(), blob=b"xy", frozen=frozenset([1]), huge=1 << 5000,
        many={1: "a", "1": "b"}, tensor=torch.ones(3), odd={frozenset([1]): 1, frozenset([2]): 2},
    )  # fmt: skip
    made, found = made_of(tmp_path, {"model": body(), "args": args, "optimizer": torch.ones(BULK)})
    full, copy = (read_structure(LocalFiles(folder, ["checkpoint.pt"])) for folder in (tmp_path, tmp_path / "slim"))
    assert full.args is not None
    assert copy.args is not None
    odd = copy.args.pop("odd")
    assert {**full.args, "odd": None} == {**copy.args, "odd": None}
    assert sorted(odd.values()) == [1, 2]
    assert (found["args"]["blob"], found["args"]["many"]) == (b"xy", {1: "a", "1": "b"})
    changed = {where.split(".")[1] for where in made.changed}
    assert changed == {"colour", "inner", "frozen", "huge", "tensor", "odd"}


@pytest.mark.parametrize("state", ["training_state.pt", "trainer_state.json"])
def test_the_words_of_a_state_beside_the_weights_come_along_without_it(tmp_path: Path, state: str) -> None:
    save_file({name: tensor.clone() for name, tensor in drafter().items()}, tmp_path / "model.safetensors")
    if state.endswith(".pt"):
        data = {"args": argparse.Namespace(**ARGS), "global_step": 4000, "optimizer": torch.ones(BULK)}
        torch.save(data, tmp_path / state)
    else:
        (tmp_path / state).write_text('{"global_step": 4000, "log_history": []}')
    full = read_structure(LocalFiles(tmp_path))
    (words,) = words_beside(full, ["model.safetensors"])
    assert words.size < 4000
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "model.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes())
    (copy / words.name).write_bytes(composed(LocalFiles(tmp_path), words))
    found = read_structure(LocalFiles(copy))
    assert (found.files, found.args, found.step) == (("model.safetensors",), full.args, 4000)
    if full.args is not None:
        assert found.sources == full.sources
        assert resolve_settings(found, [], {}) == resolve_settings(full, [], {})
    assert words_beside(full, ["model.safetensors", state]) == []


def test_words_never_take_the_place_of_the_weights(tmp_path: Path) -> None:
    save_file(drafter(), tmp_path / "drafter.safetensors")
    (tmp_path / "trainer_state.json").write_text('{"global_step": 4000}')
    full = read_structure(LocalFiles(tmp_path))
    assert full.step == 4000
    assert words_beside(full, ["drafter.safetensors"]) == []


def test_what_is_shared_and_too_deep_is_left_as_what_is_too_deep_by_itself(tmp_path: Path) -> None:
    level: Any = [1]
    history = []
    for _ in range(25):
        for _ in range(30):
            level = [level]
        history.append(level)
    made, copy = made_of(tmp_path, {"model": body(), "history": history, "optimizer": torch.ones(BULK)})
    assert "history" in [item.name for item in made.left]
    assert copy.keys() == {"model"}


def test_a_file_whose_name_is_no_text_can_be_made_slim_too(tmp_path: Path) -> None:
    name = os.fsdecode(b"m\xff.pt")
    torch.save({"model": body(), "optimizer": torch.ones(BULK)}, tmp_path / name)
    files = LocalFiles(tmp_path, [name])
    made = slim(files, read_anatomy(files), frozenset())
    assert made.output.name == name
    (tmp_path / "slim.pt").write_bytes(composed(files, made.output))
    assert torch.load(tmp_path / "slim.pt", weights_only=True)["model"].keys() == body().keys()
