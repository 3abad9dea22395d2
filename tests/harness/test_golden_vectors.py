"""Every reference vector of the families that we evaluate; every other family is refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dflash_tui.checkpoints.family import declared_family
from dflash_tui.harness.draft import draft, scan
from dflash_tui.harness.drafter import Drafter
from dflash_tui.harness.errors import Refused
from dflash_tui.harness.identity import identify
from dflash_tui.harness.load import audit_data, build, check_audit, open_checkpoint
from dflash_tui.harness.mapped import Maps
from tests.cases import all_are_expected
from tests.harness.world import Golden, goldens, target_folder

ATOL = 1e-3
V1 = [case for case in goldens() if case.is_v1]
OTHERS = [case for case in goldens() if not case.is_v1]


def loaded(case: Golden, folder: Path) -> Drafter:
    target = target_folder(folder / "target", case)
    checkpoint = open_checkpoint(case.folder / "model.safetensors", Maps())
    check_audit(checkpoint, audit_data(checkpoint, case.settings))
    return build(checkpoint, case.settings, target, identify(checkpoint.structure, checkpoint.files, target))[0]


def test_there_are_cases_of_both_kinds() -> None:
    assert (len(V1) >= 5 and OTHERS) or not all_are_expected()


@pytest.mark.parametrize("case", V1, ids=lambda case: case.name)
def test_logits_agree_with_the_reference(case: Golden, tmp_path: Path) -> None:
    drafter, inputs, expected = loaded(case, tmp_path), case.tensors("inputs"), case.tensors("expected")
    anchors = torch.tensor(case.anchors)
    ids = torch.full((len(anchors), case.settings.block_size), case.settings.mask_token_id)
    ids[:, 0] = inputs["token_ids"][anchors]
    with torch.no_grad():
        context = drafter.context(inputs["context_features"])
        hidden = drafter(case.vocabulary.embedding[ids], anchors, context)
        logits = drafter.logits(hidden[:, 1:], case.vocabulary.head)
    for found, anchor in zip(logits, case.anchors, strict=True):
        torch.testing.assert_close(found, expected[f"draft_logits.{anchor}"], rtol=0, atol=ATOL)


@pytest.mark.parametrize("case", V1, ids=lambda case: case.name)
def test_ranks_agree_with_the_reference_where_its_logits_are_apart(case: Golden, tmp_path: Path) -> None:
    inputs, expected, horizon = case.tensors("inputs"), case.tensors("expected"), case.settings.block_size - 1
    groups = draft(
        loaded(case, tmp_path),
        case.vocabulary,
        case.name,
        inputs["token_ids"],
        inputs["context_features"],
        case.anchors,
        case.settings.block_size,
    )
    compared = 0
    for block in (record for group in groups for record in group):
        logits = expected[f"draft_logits.{block.anchor}"]
        references = inputs["token_ids"][block.anchor + 1 : block.anchor + 1 + horizon]
        for slot, token in enumerate(references.tolist()):
            own = logits[slot, token]
            gaps = (logits[slot] - own).abs()
            gaps[token] = torch.inf
            if float(gaps.min()) > ATOL:
                rank = 1 + int((logits[slot] > own).sum())
                assert block.ranks[slot] == (rank if rank <= 64 else None)
                compared += 1
            logprob = torch.log_softmax(logits[slot].double(), 0)[token]
            assert block.logprobs[slot] == pytest.approx(float(logprob), abs=2 * ATOL)
    assert compared > horizon


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.name)
def test_another_family_is_refused_by_its_name(case: Golden) -> None:
    checkpoint = open_checkpoint(case.folder / "model.safetensors", Maps())
    with pytest.raises(Refused, match=f"keys are those of {declared_family(case.config)};"):
        check_audit(checkpoint, audit_data(checkpoint, next(c for c in goldens() if c.is_v1).settings))


def test_a_scan_keeps_exactly_what_a_stable_sort_of_everything_would() -> None:
    case = V1[0]
    drafter = Drafter(case.settings)
    draw = torch.Generator().manual_seed(3)
    width = case.settings.hidden_size
    hidden = torch.randint(-2, 3, (6, width), generator=draw).float()
    head = torch.randint(-1, 2, (20_000, width), generator=draw).float()  # whole numbers: sums are exact, ties abound
    reference = torch.randint(0, 20_000, (6,), generator=draw)
    found = scan(drafter, hidden, head, reference)
    logits = hidden @ head.T
    values, order = logits.sort(dim=1, descending=True, stable=True)
    assert torch.equal(found.rows, order[:, :512])
    assert torch.equal(found.values, values[:, :512])
    assert torch.equal(found.reference, logits.gather(1, reference[:, None])[:, 0])
    torch.testing.assert_close(found.total, logits.double().logsumexp(1), rtol=0, atol=1e-9)
