"""Slim copies of checkpoints as real software writes them: other bytes, the same weights."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dflash_tui.checkpoints.anatomy import read_anatomy
from dflash_tui.checkpoints.audit import audit
from dflash_tui.checkpoints.content import logical_bytes
from dflash_tui.checkpoints.family import EMBEDDING, HEAD
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.identity import WeightsId, weights_id
from dflash_tui.checkpoints.keys import Part, canonical_name
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.slim import Slim, without
from tests.cases import all_are_expected, known
from tests.checkpoints.composed import slim_copy
from tests.checkpoints.found import Case, all_cases, outcome, target_hashes
from tests.checkpoints.test_torch_files import raw

CASES = [case for case in all_cases() if outcome(partial(read_structure, case.files))[0] is not None]
NAMED = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def identity(case: Case, files: LocalFiles) -> WeightsId:
    hashes = target_hashes(case.source) if known(f"golden/{case.source}").exists() else ("0" * 64, "0" * 64)
    return weights_id(read_structure(files), files, target_embedding=hashes[0], target_head=hashes[1])


def loaded(path: Path) -> dict[str, torch.Tensor]:
    if path.suffix == ".safetensors":
        tensors: dict[str, torch.Tensor] = load_file(path)
        return tensors
    data = torch.load(path, weights_only=True, map_location="cpu")
    namespace = read_structure(LocalFiles(path.parent)).namespace
    found: dict[str, torch.Tensor] = data[namespace] if namespace else data
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


def same_bytes(slimmed: LocalFiles, full: LocalFiles) -> None:
    """Every kept tensor has the bytes that it has in the source, as the project's own library reads them."""
    structure = read_structure(slimmed)
    found = loaded(slimmed.root / slimmed.names()[0])
    assert set(found) == set(structure.tensors)
    source = read_structure(full)
    for name, tensor in found.items():
        assert raw(tensor) == b"".join(logical_bytes(full, Part(source.tensors[name]))), name


@NAMED
def test_the_weights_are_the_same(case: Case, tmp_path: Path) -> None:
    full = identity(case, case.files)
    made, files = slim_copy(case.files, tmp_path / "slim")
    assert identity(case, files) == full
    same_bytes(files, case.files)
    before, after = read_structure(case.files), read_structure(files)
    assert set(after.tensors) == {name for name in before.tensors if name != "verifier_lm_head.weight"}
    assert made.step == before.step
    said = {word for word, source in before.sources.items() if source.partition(": ")[0] in before.files}
    assert set(after.sources) == said
    assert after.args == (before.args if "args" in said else None)
    assert after.step == (before.step if "step" in said else None)
    assert after.namespace == before.namespace.rpartition(".")[2]
    assert made.output.size <= sum(case.files.size(name) for name in before.files)


@NAMED
def test_the_weights_are_the_same_without_what_the_target_has(case: Case, tmp_path: Path) -> None:
    full = identity(case, case.files)
    leave = frozenset(name for name, whose in ((EMBEDDING, full.embedding), (HEAD, full.head)) if whose == "equal")
    made, files = slim_copy(case.files, tmp_path / "slim", leave)
    of_slim = identity(case, files)
    assert (of_slim.sha256, of_slim.tensors) == (full.sha256, full.tensors)
    assert leave == {canonical_name(item.name) for item in made.left if item.kind in ("embedding", "head")}
    assert all(
        item.why == "frozen: the target has the same" for item in made.left if item.kind in ("embedding", "head")
    )


@NAMED
def test_a_head_of_the_drafters_own_is_never_left(case: Case, tmp_path: Path) -> None:
    full = identity(case, case.files)
    leave = frozenset((EMBEDDING, HEAD))
    made = without(case.files, read_anatomy(case.files), leave)
    if "draft_vocab" in case.expected:
        assert full.head == "own"
        assert HEAD in {canonical_name(piece.name) for piece in made.kept}


@NAMED
def test_a_slim_copy_of_a_slim_copy_leaves_nothing_and_is_the_same(case: Case, tmp_path: Path) -> None:
    _, files = slim_copy(case.files, tmp_path / "one")
    made, again = slim_copy(files, tmp_path / "two")
    assert made.left == ()
    assert identity(case, again) == identity(case, case.files)


@NAMED
def test_the_anatomy_adds_up_and_says_what_the_audit_says(case: Case) -> None:
    anatomy = read_anatomy(case.files)
    assert anatomy.problem == ""
    assert anatomy.total == sum(case.files.size(name) for name in case.files.names())
    assert sum(piece.nbytes for piece in anatomy.pieces) == anatomy.total
    found = audit(read_structure(case.files))
    assert anatomy.family == found.family
    drafters = {canonical_name(piece.name) for piece in anatomy.tensors if piece.kind == "drafter"}
    assert {name for name in drafters if name in found.drafter} or "fused" in case.name
    has_embedding = EMBEDDING in {canonical_name(name) for name in read_structure(case.files).tensors}
    assert (anatomy.nbytes("embedding") > 0) == has_embedding


def test_an_optimizer_is_left_and_said() -> None:
    seen: list[Slim] = []
    for case in CASES:
        made = without(case.files, read_anatomy(case.files), frozenset())
        optimizers = [item for item in made.left if item.kind == "optimizer" and item.nbytes]
        if optimizers:
            assert made.output.size + sum(item.nbytes for item in made.left) <= made.total * 1.01
            assert "optimizer" in made.sentence
            seen.append(made)
    assert seen or not all_are_expected()
