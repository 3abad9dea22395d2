"""What a block may see, and that how blocks are batched changes nothing."""

from __future__ import annotations

import pytest
import torch

from dflash_tui.harness.draft import draft
from dflash_tui.harness.drafter import Drafter
from dflash_tui.harness.errors import HarnessError
from dflash_tui.records.block import BlockRecord
from tests.harness.world import Golden, generator, goldens, near

V1 = [case for case in goldens() if case.is_v1]


def drafter_of(case: Golden) -> Drafter:
    drafter = Drafter(case.settings)
    drafter.load_state_dict(case.tensors("model"))
    return drafter


def records(
    case: Golden, anchors: list[int], tokens: torch.Tensor | None = None, features: torch.Tensor | None = None
) -> list[BlockRecord]:
    inputs = case.tensors("inputs")
    tokens = inputs["token_ids"] if tokens is None else tokens
    features = inputs["context_features"] if features is None else features
    groups = draft(drafter_of(case), case.vocabulary, "p", tokens, features, anchors, case.settings.block_size)
    return [block for group in groups for block in group]


@pytest.mark.parametrize("case", V1, ids=lambda case: case.name)
def test_blocks_drafted_together_and_alone_agree(case: Golden) -> None:
    anchors = list(range(1, case.tensors("inputs")["context_features"].shape[0]))
    together = records(case, anchors)
    assert len(together) == len(anchors)
    assert near(together, [block for anchor in anchors for block in records(case, [anchor])])


@pytest.mark.parametrize("case", V1, ids=lambda case: case.name)
def test_features_at_and_after_the_anchor_change_nothing(case: Golden) -> None:
    features = case.tensors("inputs")["context_features"]
    anchor = features.shape[0] // 2
    later = features.shape[0] - 1
    changed = features.clone()
    changed[anchor:] = torch.randn(changed[anchor:].shape, generator=generator(1)) * 9
    assert near(records(case, [anchor, later])[:1], records(case, [anchor, later], features=changed)[:1])
    assert not near(records(case, [later]), records(case, [later], features=changed))  # they do matter to a later one


@pytest.mark.parametrize("case", V1, ids=lambda case: case.name)
def test_the_feature_just_before_the_anchor_matters(case: Golden) -> None:
    features = case.tensors("inputs")["context_features"].clone()
    anchor = features.shape[0] // 2
    before = records(case, [anchor])
    features[anchor - 1] = 9 * torch.randn(features.shape[1], generator=generator(2))
    assert not near(before, records(case, [anchor], features=features))


@pytest.mark.parametrize("case", V1, ids=lambda case: case.name)
def test_tokens_after_the_anchor_are_references_and_never_inputs(case: Golden) -> None:
    tokens = case.tensors("inputs")["token_ids"].clone()
    anchor, slot = 5, 3
    before = records(case, [anchor])[0]
    tokens[anchor + slot] = (tokens[anchor + slot] + 1) % case.settings.vocab_size
    tokens[anchor + case.settings.block_size :] = 0
    after = records(case, [anchor], tokens=tokens)[0]
    assert after.logprobs[slot - 1] != before.logprobs[slot - 1]
    assert after.logprobs[: slot - 1] + after.logprobs[slot:] == before.logprobs[: slot - 1] + before.logprobs[slot:]


def test_the_anchor_token_itself_is_an_input() -> None:
    case = V1[0]
    tokens = case.tensors("inputs")["token_ids"].clone()
    before = records(case, [5])
    tokens[5] = (tokens[5] + 1) % case.settings.vocab_size
    assert not near(before, records(case, [5], tokens=tokens))


def test_only_context_before_the_last_anchor_is_read() -> None:
    case = V1[0]
    features = case.tensors("inputs")["context_features"]
    anchor = features.shape[0] // 2
    assert near(records(case, [anchor]), records(case, [anchor], features=features[:anchor]))


def test_a_drafter_whose_logits_are_not_finite_is_no_result() -> None:
    case = V1[0]
    features = case.tensors("inputs")["context_features"].clone()
    features[0] = torch.nan
    with pytest.raises(HarnessError, match="not finite"):
        records(case, [5], features=features)


@pytest.mark.parametrize("case", V1, ids=lambda case: case.name)
def test_training_sees_what_evaluation_sees_and_reaches_every_parameter(case: Golden) -> None:
    """Many anchors of a sequence at once, at a longer block than the config's, through autograd."""
    drafter, inputs = drafter_of(case).train(), case.tensors("inputs")
    anchors = torch.tensor([3, 9, 21])
    ids = torch.full((3, 32), case.settings.mask_token_id)
    ids[:, 0] = inputs["token_ids"][anchors]
    hidden = drafter(case.vocabulary.embedding[ids], anchors, drafter.context(inputs["context_features"]))
    with torch.no_grad():
        context = drafter.context_kv(drafter.context(inputs["context_features"]))
        alone = drafter(case.vocabulary.embedding[ids[1:2]], anchors[1:2], context)
    torch.testing.assert_close(hidden[1:2].detach(), alone, rtol=1e-4, atol=1e-4)
    loss = drafter.logits(hidden[:, 1:], case.vocabulary.head).logsumexp(-1).sum()
    torch.autograd.backward(loss)
    assert [name for name, p in drafter.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []
