"""ANCHOR_POLICY_MISMATCH: the two results measured blocks at differently chosen places, or one does not say."""

from __future__ import annotations

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence

CODE = "ANCHOR_POLICY_MISMATCH"


def find(current: Evaluation, previous: Evaluation) -> tuple[Finding, ...]:
    """`block` with values (current's, previous's) when both are recorded and differ; `warn` with ("side: unrecorded",)
    otherwise. When neither is recorded the value names the previous side."""
    mine, other = evidence.anchors(current), evidence.anchors(previous)
    sources = tuple(evidence.source(side, "eval.anchors", "anchors") for side in (current, previous))
    if mine is None or other is None:
        side = "previous" if other is None else "current"
        which = f"{side} result does" if mine is not None or other is not None else "current and previous results do"
        sentence = f"The {which} not record how anchors were chosen: the blocks may lie at other places."
        return (Finding(CODE, "warn", sentence, (f"{side}: unrecorded",), sources),)
    if mine == other:
        return ()
    sentence = f"Anchors were chosen by different policies: {mine} in the current result, {other} in the previous."
    return (Finding(CODE, "block", sentence, (mine, other), sources),)
