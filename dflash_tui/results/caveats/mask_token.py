"""MASK_TOKEN_SUSPECT: a drafter evaluated with another mask token than it was trained with."""

from __future__ import annotations

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Values (evaluated, trained)."""
    here, trained = (evidence.fact(evaluation, f"{of}.mask_token_id") for of in ("eval", "train"))
    if here is None or trained is None or here.value == trained.value:
        return ()
    said = here.source.where or str(here.source)
    sentence = (
        f"Evaluated with mask token {here.value} ({said}), trained with {trained.value} ({trained.source}): every slot "
        "is given a token that the drafter has not learnt to fill."
    )
    values = (here.value, trained.value)
    return (Finding("MASK_TOKEN_SUSPECT", "warn", sentence, values, (here.source, trained.source)),)
