"""BASELINE_MISSING: a configured baseline that can't be found or read."""

from __future__ import annotations

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """One finding a missing baseline; values (its name,). A drafter that was to be evaluated beside the result has a
    recorded reason why it was not."""
    configured = evidence.names(evidence.value(evaluation, "baselines.configured")) or ()
    found = evidence.names(evidence.value(evaluation, "baselines.found"))
    if found is None:
        return ()
    withheld = [fact.value for fact in evidence.facts(evaluation, "baselines.withheld") if isinstance(fact.value, dict)]
    reasons = {value.get("name"): value.get("reason") for value in reversed(withheld)}  # the newest one counts
    sources = (evidence.source(evaluation, "baselines.configured"), evidence.source(evaluation, "baselines.found"))
    return tuple(
        Finding(
            "BASELINE_MISSING",
            "warn",
            _sentence(name, reasons.get(name)),
            (name,),
            sources,
        )
        for name in configured
        if name not in found
    )


def _sentence(name: str, reason: object) -> str:
    if isinstance(reason, str):
        return f"Baseline {name} is configured and was not evaluated beside this: {reason}."
    return f"Baseline {name} is configured and was not found or could not be read; pin its file once it is there."
