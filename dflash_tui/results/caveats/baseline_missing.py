"""BASELINE_MISSING: a configured baseline that can't be found or read."""

from __future__ import annotations

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """One finding a missing baseline; values (its name,)."""
    configured = evidence.names(evidence.value(evaluation, "baselines.configured")) or ()
    found = evidence.names(evidence.value(evaluation, "baselines.found"))
    if found is None:
        return ()
    sources = (evidence.source(evaluation, "baselines.configured"), evidence.source(evaluation, "baselines.found"))
    return tuple(
        Finding(
            "BASELINE_MISSING",
            "warn",
            f"Baseline {name} is configured and was not found or could not be read; pin its file once it is there.",
            (name,),
            sources,
        )
        for name in configured
        if name not in found
    )
