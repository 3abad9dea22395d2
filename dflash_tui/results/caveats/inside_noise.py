"""INSIDE_NOISE: the difference of two results can't be told from none."""

from __future__ import annotations

from dflash_tui.records.facts import Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import METRICS, Evaluation
from dflash_tui.results import evidence
from dflash_tui.results.figures import SHORT, bounds
from dflash_tui.results.paired import pair


def find(current: Evaluation, previous: Evaluation) -> tuple[Finding, ...]:
    """Values: the metrics whose paired 95 % interval covers 0. Nothing under 2 paired prompts, which have no interval,
    and nothing of a result beside itself, which has no noise."""
    if evidence.same_result(current, previous):
        return ()
    pairing = pair(current, previous)
    covered = [(metric, pairing.interval(metric)) for metric in METRICS]
    inside = [(metric, found) for metric, found in covered if found is not None and found[0] <= 0 <= found[1]]
    if not inside:
        return ()
    shown = ", ".join(f"{SHORT[metric]} {bounds(found, 2)}" for metric, found in inside)
    sentence = f"The paired 95 % interval over {pairing.prompts} prompts covers 0: {shown}."
    sources = (Source("", current.path), Source("", previous.path))
    return (Finding("INSIDE_NOISE", "warn", sentence, tuple(metric for metric, _ in inside), sources),)
