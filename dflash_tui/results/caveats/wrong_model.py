"""WRONG_MODEL: the harness loaded other weights than those that were asked for."""

from __future__ import annotations

from dflash_tui.records.facts import Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Values (weights asked for, weights loaded)."""
    asked, loaded = evaluation.weights_id, evidence.value(evaluation, "weights.id")
    if asked is None or not isinstance(loaded, str) or loaded == asked:
        return ()
    sentence = (
        f"The evaluation loaded weights {loaded[:12]}…, asked for were {asked[:12]}…: the values are another model's."
    )
    sources = (Source("", evaluation.path, "checkpoint.weights_id"), evidence.source(evaluation, "weights.id"))
    return (Finding("WRONG_MODEL", "void", sentence, (asked, loaded), sources),)
