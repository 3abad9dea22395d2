"""Which of a torch file's dictionaries is the model: chosen by what is in them, and never by halves."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch

from dflash_tui.checkpoints.anatomy import read_anatomy
from dflash_tui.checkpoints.errors import CheckpointUnsupported
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.slim import slim
from dflash_tui.checkpoints.structure import Structure
from tests.checkpoints.composed import slim_copy
from tests.checkpoints.written import drafter as names_of_a_drafter

OTHER: dict[str, Any] = {"optimizer": {"state": {0: {"exp_avg": torch.ones(5)}}, "param_groups": []}, "step": 3}
LOSS = torch.tensor(0.3)


def drafter(value: float = 1.0) -> dict[str, torch.Tensor]:
    return {name: torch.full(shape, value) for name, (_, shape, _) in names_of_a_drafter().items()}


def target() -> dict[str, torch.Tensor]:
    return {f"model.layers.{i}.self_attn.q_proj.weight": torch.ones(2) for i in range(3)}


def saved(folder: Path, data: Any) -> Structure:
    torch.save(data, folder / "checkpoint.pt")
    return read_structure(LocalFiles(folder))


@pytest.mark.parametrize(
    ("data", "namespace"),
    [
        ({"drafter": drafter(), "best_loss": LOSS, **OTHER}, "drafter"),
        ({"model": {"draft": drafter(), "o": LOSS}, **OTHER}, "model.draft"),
        ({"app": {"model": drafter(), "best_loss": LOSS}, "rng_state": torch.zeros(8)}, "app.model"),
        ({"drafter": drafter(), "target": target(), **OTHER}, "drafter"),
        ({"model": target(), "drafter": drafter(), **OTHER}, "drafter"),
        ({"drafter": drafter(), "ema": drafter(2.0), "drafter_ema": drafter(3.0), "best_loss": LOSS}, "drafter"),
        ({"model": drafter(), "best": drafter(2.0), "best_loss": LOSS}, "model"),
        ({"net": {"a.weight": torch.ones(2)}, "best_loss": LOSS, "loss_history": torch.ones(9)}, "net"),
        ({"net": {"odd": torch.ones(2)}, "step": torch.tensor(5), **OTHER}, "net"),
        ({**drafter(), "best_loss": LOSS, **OTHER}, ""),
        ({"fc.weight": torch.ones(2), "statistics": {"loss": LOSS}, **OTHER}, ""),
        ({"model": {"odd": torch.ones(2)}, "statistics": {"of.loss": LOSS}}, "model"),
    ],
)
def test_the_model_is_told_by_its_names(tmp_path: Path, data: dict[str, Any], namespace: str) -> None:
    structure = saved(tmp_path, data)
    assert structure.namespace == namespace
    assert "best_loss" not in structure.tensors or not namespace


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ({"one": drafter(), "two": drafter(2.0), **OTHER}, "one, two"),
        ({"model": {"a": drafter(), "b": drafter(2.0)}}, r"model\.a, model\.b"),
        ({"one": {"x.weight": LOSS}, "two": {"y.weight": LOSS}}, "one, two"),
        ({"one": {"odd": LOSS}, "best_loss": LOSS}, "its top level, one"),
    ],
)
def test_of_several_none_is_guessed(tmp_path: Path, data: dict[str, Any], names: str) -> None:
    with pytest.raises(
        CheckpointUnsupported, match=rf"checkpoint\.pt: {names} hold tensors; which .* draft_state_dict"
    ):
        saved(tmp_path, data)


def test_one_dictionary_under_two_keys_is_one(tmp_path: Path) -> None:
    same = drafter()
    assert saved(tmp_path, {"drafter": same, "alias": same}).namespace == "drafter"


@pytest.mark.filterwarnings("ignore")
def test_weights_of_a_kind_that_is_not_understood_are_not_passed_over_for_a_number(tmp_path: Path) -> None:
    strange = {name: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8) for name in drafter()}
    with pytest.raises(CheckpointUnsupported, match="not a plain tensor"):
        saved(tmp_path, {"model": strange, "best_loss": LOSS})


@pytest.mark.parametrize("data", [{"drafter": drafter()}, {"model": {"draft": drafter(), "o": LOSS}}])
def test_a_slim_copy_holds_the_model_wherever_it_was(tmp_path: Path, data: dict[str, Any]) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    torch.save({**data, **OTHER, "optimizer": torch.zeros(4000)}, tmp_path / "there" / "checkpoint.pt")
    _, copied = slim_copy(LocalFiles(tmp_path / "there"), tmp_path / "here", frozenset())
    assert set(read_structure(copied).tensors) == set(drafter())
    loaded = torch.load(tmp_path / "here" / "checkpoint.pt", weights_only=True)
    assert [set(value) for value in loaded.values() if isinstance(value, dict)] == [set(drafter())]


def test_every_byte_of_a_nested_model_counts_once(tmp_path: Path) -> None:
    torch.save({"model": {"draft": drafter(), "o": torch.ones(500)}, **OTHER}, tmp_path / "checkpoint.pt")
    anatomy = read_anatomy(LocalFiles(tmp_path))
    assert sum(piece.nbytes for piece in anatomy.pieces) == anatomy.total
    assert anatomy.weights == sum(tensor.numel() * 4 for tensor in drafter().values())
    assert 2000 in [piece.nbytes for piece in anatomy.entries]


STARTS = ("optim_proj", "scheduler_embed", "lr_scheduler_x", "rng_head", "ema_gate", "grad_proj", "scaler")


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("namespace", ["model", "drafter", ""])
def test_a_parameter_may_have_any_name(tmp_path: Path, start: str, namespace: str) -> None:
    name = f"{start}.weight" if namespace or start != "scaler" else "rescaler.weight"
    model = {**drafter(), name: torch.ones(3)}
    structure = saved(tmp_path, {namespace: model, **OTHER} if namespace else {**model, **OTHER})
    assert name in structure.tensors


def test_a_parameter_in_a_namespace_may_be_called_as_state_is(tmp_path: Path) -> None:
    model = {**drafter(), "grad_scale": torch.ones(1), "scaler": torch.ones(1), "fc._extra_state": torch.ones(1)}
    assert set(saved(tmp_path, {"model": model}).tensors) == {*model} - {"fc._extra_state"}


def test_state_at_the_top_of_a_flat_file_is_not_the_model(tmp_path: Path) -> None:
    state = {
        name: torch.ones(2) for name in ("rng_state", "grad_norm", "ema_model.fc.weight", "optimizer.state.0.exp_avg")
    }
    assert set(saved(tmp_path, {**drafter(), **state}).tensors) == set(drafter())


def test_a_number_and_its_text_are_two_names(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnsupported, match=r"model\.5 is two tensors, under the keys 5 and '5'"):
        saved(tmp_path, {"model": {**drafter(), 5: torch.ones(2), "5": torch.zeros(2)}})


def test_a_name_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnsupported, match="whose name is no text"):
        saved(tmp_path, {"model": {**drafter(), "x.\ud800": torch.ones(2)}})


def test_arguments_are_no_candidates(tmp_path: Path) -> None:
    args = argparse.Namespace(a=1)
    structure = saved(tmp_path, {"drafter": drafter(), "args": args, "config": drafter(3.0)})
    assert structure.namespace == "drafter"


def test_a_slim_copy_of_a_file_with_several_is_refused_and_the_file_is_complete(tmp_path: Path) -> None:
    torch.save({"one": drafter(), "two": drafter(2.0)}, tmp_path / "checkpoint.pt")
    files = LocalFiles(tmp_path)
    with pytest.raises(CheckpointUnsupported, match="one, two"):
        slim(files, read_anatomy(files), frozenset())
