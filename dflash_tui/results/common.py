"""What two results share: the parts of both that may be set against each other."""

from __future__ import annotations

from dataclasses import replace

from dflash_tui.measure.summary import cut
from dflash_tui.records.block import BlockRecord
from dflash_tui.records.result import Evaluation, Score
from dflash_tui.results import evidence
from dflash_tui.results.errors import NothingInCommon, NothingMeasured
from dflash_tui.results.evaluation import quick_of, with_blocks

Pair = tuple[Evaluation, Evaluation]


def common_prompts(current: Evaluation, previous: Evaluation) -> tuple[str, ...]:
    """Ids that both measured, in the current result's order; where both record a prompt's text hash, it must agree."""
    mine, other = evidence.measured(current), evidence.measured(previous)
    if mine is None or other is None:
        return ()
    return tuple(prompt for prompt in mine if prompt in other and not _other_text(prompt, current, previous))


def _other_text(prompt: str, one: Evaluation, other: Evaluation) -> bool:
    hashes = one.prompt_hashes.get(prompt), other.prompt_hashes.get(prompt)
    return None not in hashes and hashes[0] != hashes[1]


def on_common_prompts(current: Evaluation, previous: Evaluation) -> Pair:
    """Both results on the prompts that both measured. Raises NothingInCommon."""
    shared = common_prompts(current, previous)
    if not shared or not current.per_prompt or not previous.per_prompt:
        raise NothingInCommon(f"{current.name} and {previous.name} share no prompts with values of their own")
    return on_prompts(current, shared), on_prompts(previous, shared)


def on_prompts(evaluation: Evaluation, prompts: tuple[str, ...]) -> Evaluation:
    """The evaluation on some of its measured prompts; pooled again from blocks, else from the prompts' means.

    The measured prompts that are left out count as not asked for; what was asked for and never measured stays so.
    """
    left_out = set(evidence.measured(evaluation) or ()) - set(prompts)
    asked, count = evaluation.prompts_asked, evidence.asked_count(evaluation)
    kept = replace(
        evaluation,
        prompts_asked=tuple(prompt for prompt in asked if prompt not in left_out) if asked else None,
        prompts_asked_count=count - len(left_out) if count is not None else None,
        request_id=None,
    )
    blocks = [block for block in evaluation.blocks if block.prompt in prompts]
    if blocks:
        return with_blocks(kept, blocks)
    per_prompt = {prompt: evaluation.per_prompt[prompt] for prompt in prompts}
    return replace(
        kept,
        pooled=_pooled(tuple(per_prompt.values())),
        per_prompt=per_prompt,
        prompts_present=tuple(per_prompt),
        prompt_count=len(per_prompt),
    )


def _pooled(scores: tuple[Score, ...]) -> Score:
    """Weighted by blocks; where a prompt's number of blocks is unrecorded (0), every prompt weighs the same."""
    known = all(score.blocks > 0 for score in scores)
    weights = [score.blocks if known else 1 for score in scores]
    metrics = [metric for metric in scores[0].streak if all(metric in score.streak for score in scores)]
    streak = {
        metric: sum(w * s.streak[metric] for w, s in zip(weights, scores, strict=True)) / sum(weights)
        for metric in metrics
    }
    tau = sum(w * s.tau for w, s in zip(weights, scores, strict=True)) / sum(weights)
    return Score(blocks=sum(s.blocks for s in scores) if known else 0, streak=streak, tau=tau)


def cut_to_common_horizon(current: Evaluation, previous: Evaluation) -> Pair:
    """Both results read to the shorter horizon. Raises NothingInCommon when a horizon is unrecorded, or the longer
    result keeps no blocks to cut."""
    horizons = evidence.horizon(current), evidence.horizon(previous)
    if horizons[0] is None or horizons[1] is None:
        unknown = current if horizons[0] is None else previous
        raise NothingInCommon(f"{unknown.name} does not record its block size, so no common horizon is known")
    shorter = min(horizons[0], horizons[1])
    return _cut(current, shorter), _cut(previous, shorter)


def _cut(evaluation: Evaluation, horizon: int) -> Evaluation:
    if evidence.horizon(evaluation) == horizon:
        return replace(evaluation, horizon=horizon)
    if not evaluation.blocks:
        raise NothingInCommon(f"{evaluation.name} keeps no blocks, so it can't be cut to {horizon} drafts")
    return replace(with_blocks(evaluation, cut(evaluation.blocks, horizon)), horizon=horizon)


def on_common_parts(current: Evaluation, previous: Evaluation) -> Pair:
    """Both results on what both measured: their common prompts, read to the shorter horizon. Raises NothingInCommon."""
    pair = current, previous
    shared = common_prompts(current, previous)
    if any(evidence.measured(side) is not None and len(evidence.measured(side) or ()) > len(shared) for side in pair):
        pair = on_common_prompts(*pair)
    if evidence.horizon(current) != evidence.horizon(previous):
        pair = cut_to_common_horizon(*pair)
    return pair


def on_common_anchors(current: Evaluation, previous: Evaluation) -> Pair | None:
    """Both results on the same blocks: those anchors of common prompts that both measured.

    None unless, prompt by prompt, one side's anchors are all among the other's: a chance overlap of two choices of
    anchors is no pairing.
    """
    mine, other = _by_place(current), _by_place(previous)
    kept: list[tuple[str, int]] = []
    for prompt in common_prompts(current, previous):
        one = {place for place in mine if place[0] == prompt}
        two = {place for place in other if place[0] == prompt}
        if not one or not two or not (one <= two or two <= one):
            return None
        kept += sorted(one & two)
    if not kept:
        return None
    return with_blocks(current, [mine[p] for p in kept]), with_blocks(previous, [other[p] for p in kept])


def at_equal_blocks(current: Evaluation, previous: Evaluation) -> Pair:
    """Both results, a full one as its quick part where that has as many blocks as the other one; else as they are."""
    if current.pooled.blocks > previous.pooled.blocks:
        return _like(current, previous), previous
    return current, _like(previous, current)


def _like(full: Evaluation, other: Evaluation) -> Evaluation:
    if not full.blocks or full.preset != "full" or full.pooled.blocks == other.pooled.blocks:
        return full
    try:
        quick = quick_of(full)
    except NothingMeasured:
        return full
    return quick if quick.pooled.blocks == other.pooled.blocks else full


def _by_place(evaluation: Evaluation) -> dict[tuple[str, int], BlockRecord]:
    return {(block.prompt, block.anchor): block for block in evaluation.blocks}
