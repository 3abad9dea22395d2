"""PROMPT_SET_MISMATCH: the two results were measured on different prompts."""

from __future__ import annotations

from dflash_tui.records.facts import Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence
from dflash_tui.results.common import common_prompts


def find(current: Evaluation, previous: Evaluation) -> tuple[Finding, ...]:
    """Values (current's prompts, previous's, common ones), as counts. Unrecorded is not different: no finding."""
    mine, other = evidence.measured(current), evidence.measured(previous)
    if mine is None or other is None:
        return ()
    shared = common_prompts(current, previous)
    if len(shared) == len(set(mine)) == len(set(other)):
        return ()
    offered = bool(shared and current.per_prompt and previous.per_prompt)
    noun = "prompt" if len(shared) == 1 else "prompts"
    sentence = (
        f"Different prompts: {len(mine)} in the current result, {len(other)} in the previous, {len(shared)} in common"
        + (f"; compare on the {len(shared)} common {noun}." if offered else ".")
    )
    sources = (Source("", current.path, "prompts measured"), Source("", previous.path, "prompts measured"))
    remedy = "common" if offered else None
    return (Finding("PROMPT_SET_MISMATCH", "block", sentence, (len(mine), len(other), len(shared)), sources, remedy),)
