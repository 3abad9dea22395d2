"""TARGET_LAYERS_MISMATCH: a drafter evaluated on other layers of the target than it was trained on."""

from __future__ import annotations

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Values (evaluated, trained), each a list of layer ids; their order counts."""
    here, trained = evidence.fact(evaluation, "eval.taps"), evidence.fact(evaluation, "train.taps")
    if here is None or trained is None or here.value == trained.value:
        return ()
    if not isinstance(here.value, list) or not isinstance(trained.value, list):
        return ()
    mine, other = (" ".join(map(str, fact.value)) for fact in (here, trained))
    sentence = (
        f"Evaluated on the target's layers {mine} ({here.source.where or here.source}), trained on {other} "
        f"({trained.source}): the drafter reads other states than it was trained on."
    )
    values = (here.value, trained.value)
    return (Finding("TARGET_LAYERS_MISMATCH", "warn", sentence, values, (here.source, trained.source)),)
