"""SAME_PROMPTS_MORE_BLOCKS: two results of one checkpoint differ in blocks alone: the larger is no second opinion."""

from __future__ import annotations

from dflash_tui.records.facts import Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(current: Evaluation, previous: Evaluation) -> tuple[Finding, ...]:
    """Values (fewer blocks, more blocks)."""
    fewer, more = sorted((current.pooled.blocks, previous.pooled.blocks))
    prompts = evidence.measured_count(current)
    if fewer == 0 or fewer == more or prompts is None or not evidence.same_checkpoint(current, previous):
        return ()
    horizons = {evidence.horizon(current), evidence.horizon(previous)} - {None}
    if len(horizons) > 1:
        return ()
    mine, other = evidence.measured(current), evidence.measured(previous)
    if mine is None or other is None:
        if prompts != evidence.measured_count(previous):
            return ()
        which = f"{prompts} prompts each, by count (which prompts is unrecorded on one side)"
    elif set(mine) == set(other):
        which = f"the same {prompts} prompts"
    else:
        return ()
    sentence = f"{more} blocks rest on the prompts of the {fewer}: {which}; n for intervals stays {prompts}."
    sources = (Source("", current.path, "blocks"), Source("", previous.path, "blocks"))
    return (Finding("SAME_PROMPTS_MORE_BLOCKS", "note", sentence, (fewer, more), sources),)
