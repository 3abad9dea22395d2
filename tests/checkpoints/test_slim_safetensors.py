"""Slim copies of safetensors files, read back by safetensors itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from dflash_tui.checkpoints.family import EMBEDDING, HEAD
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.opening import read_structure
from tests.checkpoints.composed import is_in_order, slim_copy
from tests.checkpoints.test_torch_files import raw

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float64)


def sharded(folder: Path, shards: list[dict[str, torch.Tensor]]) -> LocalFiles:
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    for name, tensors in zip(names, shards, strict=True):
        save_file(tensors, folder / name, metadata={"format": "pt", "of": name})
    where = {key: name for name, tensors in zip(names, shards, strict=True) for key in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return LocalFiles(folder)


def tensors() -> dict[str, torch.Tensor]:
    """Widths mixed so that an order by name would leave some unaligned."""
    torch.manual_seed(1)
    return {
        "a": torch.randn(3).to(torch.float8_e4m3fn),
        "b": torch.randn(7, dtype=torch.float64),
        "embed_tokens.weight": torch.randn(11, 3).bfloat16(),
        "fc.weight": torch.randn(5, 3),
        "empty": torch.empty(0, 4),
        "lm_head.weight": torch.randn(11, 3).bfloat16(),
        "t2": torch.tensor([True, False, True]),
        "verifier_lm_head.weight": torch.randn(11, 3).bfloat16(),
    }


def test_the_pair_of_the_target_is_left_and_the_rest_comes_back(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "model.safetensors", metadata={"format": "pt", "made by": "a trainer"})
    files = LocalFiles(tmp_path, ["model.safetensors"])
    made, copy = slim_copy(files, tmp_path / "slim", frozenset((EMBEDDING, HEAD)))
    assert made.output.name == "model.safetensors"
    found = load_file(copy.root / "model.safetensors")
    assert set(found) == {"a", "b", "fc.weight", "empty", "t2"}
    assert all(raw(found[name]) == raw(tensors()[name]) for name in found)
    with safe_open(copy.root / "model.safetensors", "pt") as opened:
        assert opened.metadata() == {"format": "pt", "made by": "a trainer"}
    assert {item.name for item in made.left} == {EMBEDDING, HEAD, "verifier_lm_head.weight"}
    assert made.sentence.endswith("verifier_lm_head, frozen embed/lm_head left")


def test_every_tensor_lies_at_a_multiple_of_its_element(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "model.safetensors")
    _, copy = slim_copy(LocalFiles(tmp_path, ["model.safetensors"]), tmp_path / "slim")
    for info in read_structure(copy).tensors.values():
        assert info.offset % info.itemsize == 0, info.name


def test_shards_become_one_file(tmp_path: Path) -> None:
    every = tensors()
    names = sorted(every)
    files = sharded(tmp_path, [{name: every[name] for name in names[i::3]} for i in range(3)])
    made, copy = slim_copy(files, tmp_path / "slim", frozenset((HEAD,)))
    assert made.output.name == "model.safetensors"
    found = load_file(copy.root / "model.safetensors")
    assert set(found) == set(every) - {HEAD, "verifier_lm_head.weight"}
    assert all(raw(found[name]) == raw(every[name]) for name in found)
    with safe_open(copy.root / "model.safetensors", "pt") as opened:
        assert opened.metadata()["format"] == "pt"


def test_neighbours_stay_neighbours(tmp_path: Path) -> None:
    save_file({f"t{i:03}": torch.randn(64).bfloat16() for i in range(100)}, tmp_path / "model.safetensors")
    made, _ = slim_copy(LocalFiles(tmp_path, ["model.safetensors"]), tmp_path / "slim")
    assert is_in_order(made.output)
    assert made.output.sources == ("model.safetensors",)


def test_nothing_is_left_of_a_file_that_is_only_weights(tmp_path: Path) -> None:
    save_file({"fc.weight": torch.ones(4)}, tmp_path / "model.safetensors")
    (tmp_path / "optimizer.pt").write_bytes(bytes(5000))
    made, _ = slim_copy(LocalFiles(tmp_path), tmp_path / "slim")
    assert made.left == ()


@given(
    parts=st.dictionaries(
        st.text(min_size=1, max_size=8), st.tuples(st.lists(st.integers(0, 5), max_size=3), st.sampled_from(DTYPES)),
        min_size=1, max_size=8,
    ),
    shards=st.integers(1, 3),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_tensors_come_back(
    tmp_path_factory: pytest.TempPathFactory, parts: dict[str, tuple[list[int], torch.dtype]], shards: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    made = {f"t{name}": torch.randn(shape).mul(9).to(dtype) for name, (shape, dtype) in parts.items()}
    names = sorted(made)
    groups = [{name: made[name] for name in names[i::shards]} for i in range(shards)]
    files = sharded(folder, [group for group in groups if group])
    output, copy = slim_copy(files, folder / "slim")
    found = load_file(copy.root / output.output.name)
    assert set(found) == set(made)
    for name, tensor in made.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
        assert raw(found[name]) == raw(tensor)
