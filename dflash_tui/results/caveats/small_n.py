"""SMALL_N: a mean over fewer than ten distinct prompts."""

from __future__ import annotations

from dflash_tui.records.facts import Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence

ENOUGH = 10


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Values (distinct prompts,)."""
    prompts = evidence.measured_count(evaluation)
    if prompts is None or prompts >= ENOUGH:
        return ()
    noun = "prompt" if prompts == 1 else "prompts"
    sentence = f"{prompts} distinct {noun}, fewer than {ENOUGH}: intervals are wide by design."
    sources = (Source("", evaluation.path, "prompts measured"),)
    can = not evidence.by_script(evaluation) and evidence.capturable(evaluation)
    more = can and prompts < (evidence.asked_count(evaluation) or 0)
    remedy = "capture" if more else None
    return (Finding("SMALL_N", "warn", sentence, (prompts,), sources, remedy),)
