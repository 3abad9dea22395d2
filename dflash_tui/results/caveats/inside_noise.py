"""INSIDE_NOISE: the difference of two results can't be told from none."""

from __future__ import annotations

from dflash_tui.records.facts import Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import METRICS, Evaluation
from dflash_tui.results import evidence
from dflash_tui.results.figures import SHORT, bounds
from dflash_tui.results.paired import pair


def find(current: Evaluation, previous: Evaluation) -> tuple[Finding, ...]:
    """Values: the metrics whose paired 95 % interval covers 0, or that are the same on each prompt. Nothing under 2
    paired prompts, which have no interval, and nothing of a result beside itself, which has no noise."""
    if evidence.same_result(current, previous):
        return ()
    pairing = pair(current, previous)
    covered = [(metric, pairing.interval(metric)) for metric in METRICS]
    inside = {metric: found for metric, found in covered if found is not None and found[0] <= 0 <= found[1]}
    same = [metric for metric in METRICS if pairing.level(metric) == 0]
    if not inside and not same:
        return ()
    said = []
    if inside:
        shown = ", ".join(f"{SHORT[metric]} {bounds(found, 2)}" for metric, found in inside.items())
        said.append(f"The paired 95 % interval over {pairing.prompts} prompts covers 0: {shown}.")
    if same:
        said.append(
            f"No difference on any of {pairing.prompts} prompts: {', '.join(SHORT[metric] for metric in same)}."
        )
    values = tuple(metric for metric in METRICS if metric in inside or metric in same)
    sources = (Source("", current.path), Source("", previous.path))
    return (Finding("INSIDE_NOISE", "warn", " ".join(said), values, sources),)
