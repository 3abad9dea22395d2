"""The same weights give the same blocks out of whatever container they lie in; what cannot be evaluated is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict_saver import save

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.files import local_files
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.harness.draft import draft
from dflash_tui.harness.drafter import Drafter
from dflash_tui.harness.errors import Refused
from dflash_tui.harness.identity import identify
from dflash_tui.harness.load import audit_data, build, check_audit, open_checkpoint
from dflash_tui.harness.mapped import Maps
from dflash_tui.harness.vocabulary import Vocabulary
from dflash_tui.records.block import BlockRecord
from tests.cases import OWN, all_are_expected, case_root, known
from tests.checkpoints.sharded import save_with_two_ranks
from tests.harness.world import Golden, golden, goldens, target_folder


@dataclass(frozen=True)
class Container:
    """A checkpoint as some software wrote it; `path` is what a user would name, `expected` what is said of it."""

    name: str
    path: Path
    expected: dict[str, Any]

    @property
    def source(self) -> str:
        return str(self.expected.get("weights_same_as", ""))


def containers() -> Iterator[Container]:
    for path in sorted((case_root() / "cases" / "checkpoints").glob("*/expected.json")):
        folder, expected = path.parent, json.loads(path.read_text(encoding="utf-8"))
        several = {name: part for name, part in expected.items() if isinstance(part, dict) and "family" in part}
        for name, part in (several or {"": expected}).items():
            yield Container(f"{folder.name}/{name}".rstrip("/"), weights_in(folder / name), part)


def weights_in(folder: Path) -> Path:
    """The folder, or the one below it, whose structure can be read; the folder itself when there is none."""
    below = sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())
    for candidate in (*below, folder):
        try:
            read_structure(local_files(candidate))
        except CheckpointError:
            continue
        return candidate
    return folder


NAMES = {case.name for case in goldens(case_root(), OWN) if case.is_v1}
ALL = list(containers())
SAME = [c for c in ALL if c.source in NAMES and "refused" not in c.expected["family"]]
UPCAST = [c for c in SAME if "logits.safetensors" in str(c.expected["compare_logits_with"])]
PLAIN = [c for c in SAME if c.expected.get("dtype") == "float32" and "draft_vocab" not in c.expected]
REDUCED = [c for c in SAME if "draft_vocab" in c.expected]
REFUSED = [c for c in ALL if c not in SAME]


def loaded(container: Container, case: Golden, folder: Path) -> tuple[Drafter, Vocabulary]:
    target = target_folder(folder / "target", case)
    checkpoint = open_checkpoint(container.path, Maps())
    check_audit(checkpoint, audit_data(checkpoint, case.settings))
    return build(checkpoint, case.settings, target, identify(checkpoint.structure, checkpoint.files, target))


def blocks(drafter: Drafter, vocabulary: Vocabulary, case: Golden) -> list[BlockRecord]:
    inputs = case.tensors("inputs")
    anchors, size = case.anchors, case.settings.block_size
    groups = draft(drafter, vocabulary, "p", inputs["token_ids"], inputs["context_features"], anchors, size)
    return [block for group in groups for block in group]


def logits(drafter: Drafter, vocabulary: Vocabulary, case: Golden, anchor: int) -> torch.Tensor:
    inputs = case.tensors("inputs")
    ids = torch.full((1, case.settings.block_size), case.settings.mask_token_id)
    ids[0, 0] = inputs["token_ids"][anchor]
    with torch.no_grad():
        hidden = drafter(vocabulary.embedding[ids], torch.tensor([anchor]), drafter.context(inputs["context_features"]))
        return drafter.logits(hidden[0, 1:], vocabulary.head)


def test_there_are_containers_of_every_kind() -> None:
    assert (len(PLAIN) >= 8 and REDUCED and REFUSED) or not all_are_expected()


@pytest.mark.parametrize("container", PLAIN, ids=lambda c: c.name)
def test_the_same_weights_give_the_same_blocks(container: Container, tmp_path: Path) -> None:
    case = golden(container.source)
    original = Container("", case.folder / "model.safetensors", {})
    expected = blocks(*loaded(original, case, tmp_path / "original"), case)
    assert blocks(*loaded(container, case, tmp_path / "contained"), case) == expected


@pytest.mark.parametrize("way", ["legacy", "one process", "two processes"])
def test_what_torch_saves_now_gives_the_same_blocks(way: str, tmp_path: Path) -> None:
    case = golden("v1-small")
    weights = case.tensors("model")
    folder = tmp_path / "step-7"
    if way == "two processes":
        save_with_two_ranks(folder, weights)
    elif way == "one process":
        save({"model": weights}, checkpoint_id=folder, no_dist=True)
    else:
        folder.mkdir()
        torch.save({"model": weights}, folder / "checkpoint.pt", _use_new_zipfile_serialization=False)
    pieces = [len(info.pieces) for info in read_structure(local_files(folder)).tensors.values()]
    assert any(pieces) == (way == "two processes")
    expected = blocks(*loaded(Container("", case.folder / "model.safetensors", {}), case, tmp_path / "original"), case)
    assert blocks(*loaded(Container("", folder, {}), case, tmp_path / "contained"), case) == expected


@pytest.mark.parametrize(
    "container",
    [c for c in SAME if "logits.safetensors" in str(c.expected["compare_logits_with"])],
    ids=lambda c: c.name,
)
def test_stored_bfloat16_weights_are_computed_in_float32(container: Container, tmp_path: Path) -> None:
    case = golden(container.source)
    path = known(f"cases/checkpoints/{str(container.expected['compare_logits_with']).split()[0]}")
    drafter, vocabulary = loaded(container, case, tmp_path)
    assert drafter.fc.weight.dtype == torch.bfloat16
    for key, expected in load_file(path).items():
        found = logits(drafter, vocabulary, case, int(key.split(".")[1]))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("container", REDUCED, ids=lambda c: c.name)
def test_a_reduced_vocabulary_ranks_among_its_own_tokens(container: Container, tmp_path: Path) -> None:
    case = golden(container.source)
    drafter, vocabulary = loaded(container, case, tmp_path)
    assert vocabulary.target_ids is not None
    assert vocabulary.target_ids.shape[0] == container.expected["draft_vocab"]["count"]
    full, inputs = case.tensors("expected"), case.tensors("inputs")
    absent = 0
    for block in blocks(drafter, vocabulary, case):
        expected = full[f"draft_logits.{block.anchor}"][:, vocabulary.target_ids]
        torch.testing.assert_close(logits(drafter, vocabulary, case, block.anchor), expected, rtol=0, atol=1e-3)
        for slot, token in enumerate(inputs["token_ids"][block.anchor + 1 :][: block.horizon].tolist()):
            place = (vocabulary.target_ids == token).nonzero()
            if place.numel() == 0:
                absent += 1
                assert (block.ranks[slot], block.logprobs[slot]) == (None, None)
            else:
                rank = 1 + int((expected[slot] > expected[slot, place[0, 0]]).sum())
                assert block.ranks[slot] == (rank if rank <= 64 else None)
    assert absent


@pytest.mark.parametrize("container", REFUSED, ids=lambda c: c.name)
def test_what_cannot_be_evaluated_is_refused_in_a_sentence(container: Container, tmp_path: Path) -> None:
    case = golden(container.source if container.source in NAMES else "v1-small")
    with pytest.raises(Refused) as refusal:
        loaded(container, case, tmp_path)
    sentence = str(refusal.value)
    assert str(container.path) in sentence
    for name in container.expected.get("missing_keys", []):
        assert name in sentence
    if container.expected["family"] in ("dflash2", "dspark", "domino"):
        assert f"those of {container.expected['family']}" in sentence


@pytest.mark.parametrize("container", [c for c in ALL if c.expected.get("nan_keys")], ids=lambda c: c.name)
def test_a_nan_tensor_is_named(container: Container, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(container.path, Maps())
    assert audit_data(checkpoint, golden(container.source).settings).nonfinite == tuple(container.expected["nan_keys"])


def test_a_nan_is_found_in_eight_bit_weights_too(tmp_path: Path) -> None:
    case = golden("v1-small")
    tensors = {name: tensor.to(torch.float8_e4m3fn) for name, tensor in case.tensors("model").items()}
    save_file(tensors, tmp_path / "model.safetensors")
    assert audit_data(open_checkpoint(tmp_path, Maps()), case.settings).nonfinite == ()
    tensors["fc.weight"].view(torch.uint8)[3, 5] = 0x7F
    save_file(tensors, tmp_path / "model.safetensors")
    assert audit_data(open_checkpoint(tmp_path, Maps()), case.settings).nonfinite == ("fc.weight",)


def test_biases_that_the_settings_do_not_know_are_not_left_out_silently(tmp_path: Path) -> None:
    case = golden("v1-small")
    container = Container("", case.folder / "model.safetensors", {})
    target = target_folder(tmp_path / "target", case)
    checkpoint = open_checkpoint(container.path, Maps())
    weights = identify(checkpoint.structure, checkpoint.files, target)
    with pytest.raises(Refused, match=r"layers\.1\..* would be left out"):
        build(checkpoint, replace(case.settings, num_hidden_layers=1, layer_masks=("full",)), target, weights)
