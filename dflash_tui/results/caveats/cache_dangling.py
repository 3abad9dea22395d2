"""CACHE_DANGLING: hidden states that are there and hold nothing usable."""

from __future__ import annotations

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """One finding a prompt, `void` for that prompt alone; values (prompt, reason)."""
    refused = evidence.value(evaluation, "cache.refused")
    reasons = refused if isinstance(refused, dict) else dict.fromkeys(evidence.names(refused) or (), "unreadable")
    return tuple(
        Finding(
            "CACHE_DANGLING",
            "void",
            f"Hidden states of {prompt} can't be used: {reason}.",
            (prompt, str(reason)),
            (evidence.source(evaluation, "cache.refused"),),
            "capture",
            prompt,
        )
        for prompt, reason in reasons.items()
    )
