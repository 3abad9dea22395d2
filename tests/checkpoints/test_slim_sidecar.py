"""The file beside a slim copy: it says what was left out, and nobody takes it for anything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.checkpoints.complete import completeness
from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointUnsupported
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.needed import evaluation_files
from dflash_tui.checkpoints.opening import is_weights_name, read_configs, read_structure, weight_file
from dflash_tui.checkpoints.slim_sidecar import is_sidecar, read_sidecar, sidecar_name, slim_sidecar
from tests.checkpoints.composed import slim_copy
from tests.checkpoints.found import checkpoints_in, outcome

SOURCE = {"host": "ct200", "path": "/runs/a/step_4000", "size": 15470000000, "mtime": 1.5, "inode": 7, "quick_id": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A slim copy in a folder of its own, with its sidecar."""
    root = tmp_path_factory.mktemp("slim")
    data = {"model": {"fc.weight": torch.ones(5), "embed_tokens.weight": torch.ones(90)}, "step": 12, "optimizer": {}}
    torch.save(data, root / "checkpoint.pt")
    files = LocalFiles(root, ["checkpoint.pt"])
    made, copy = slim_copy(files, root / "step_12", frozenset(("embed_tokens.weight",)))
    sidecar = slim_sidecar(made, SOURCE, {"embed_tokens.weight": "model-00001-of-00002.safetensors on ct129"})
    (copy.root / sidecar_name(made.output.name)).write_bytes(sidecar)
    return copy.root


def test_it_says_what_was_made_of_what(folder: Path) -> None:
    said = read_sidecar((folder / "checkpoint.pt.slim.json").read_bytes())
    assert dict(said.source) == SOURCE
    assert (said.output, said.size) == ("checkpoint.pt", (folder / "checkpoint.pt").stat().st_size)
    assert said.step == 12
    assert [piece.name for piece in said.kept] == ["fc.weight"]
    assert [(item.name, item.nbytes) for item in said.left] == [("embed_tokens.weight", 360), ("optimizer", 0)]
    assert said.left[0].why == "frozen: the target has the same"
    assert said.compared == {"embed_tokens.weight": "model-00001-of-00002.safetensors on ct129"}


def test_nobody_takes_it_for_a_config_or_for_weights(folder: Path) -> None:
    names = LocalFiles(folder).names()
    assert names == ["checkpoint.pt", "checkpoint.pt.slim.json"]
    assert weight_file(names) == "checkpoint.pt"
    assert read_configs(LocalFiles(folder)) == []
    assert read_structure(LocalFiles(folder)).files == ("checkpoint.pt",)
    assert completeness(LocalFiles(folder), names) == ("complete", "")
    assert [item.name for item in checkpoints_in(folder)] == ["checkpoint.pt"]
    assert [item.name for item in checkpoints_in(folder.parent)][-1] == "step_12"


@pytest.mark.parametrize(
    "weights", ["checkpoint.pt", "model.safetensors", "pytorch_model.bin", "training_args.pt", "drafter_config.pt"]
)
def test_its_name_is_no_weights_and_no_description(weights: str) -> None:
    name = sidecar_name(weights)
    assert is_sidecar(name)
    assert not is_sidecar(weights)
    assert not is_weights_name(name)
    assert not name.endswith(".index.json")
    assert name not in evaluation_files(["checkpoint.pt", "config.json", name])


def test_one_of_a_later_version_is_refused_with_what_to_do(folder: Path) -> None:
    data = json.loads((folder / "checkpoint.pt.slim.json").read_bytes())
    with pytest.raises(CheckpointUnsupported, match=r"x: is of version 9, .* update"):
        read_sidecar(json.dumps({**data, "version": 9}).encode(), "x")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(key=st.sampled_from(["version", "output", "source", "step", "left", "kept", "compared"]), value=json_values)
def test_a_damaged_one_is_read_or_refused_in_one_sentence(folder: Path, key: str, value: object) -> None:
    data = json.loads((folder / "checkpoint.pt.slim.json").read_bytes())
    _, refusal = outcome(lambda: read_sidecar(json.dumps({**data, key: value}).encode(), "x"))
    assert not refusal or refusal.startswith("x: ")


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(CheckpointDamaged, match="not a slim copy's sidecar"):
        read_sidecar(b"\xff\x00")
