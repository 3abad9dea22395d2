"""CACHE_DANGLING: hidden states that are there and hold nothing usable."""

from __future__ import annotations

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """One finding a prompt, `void` for that prompt alone; values (prompt, reason). Sound states of something else are
    no damage: STALE_CACHE tells of them."""
    facts = (fact for fact in evidence.facts(evaluation, "cache.refused") if isinstance(fact.value, dict))
    refused = (fact for fact in facts if fact.value.get("foreign") is not True)
    return tuple(
        Finding(
            "CACHE_DANGLING",
            "void",
            f"Hidden states of {fact.value['prompt']} can't be used: {fact.value.get('reason', 'refused')}; no file is "
            "ever overwritten, so move it away before capturing again.",
            (fact.value["prompt"], fact.value.get("reason", "refused")),
            (fact.source,),
            scope=fact.value["prompt"],
        )
        for fact in refused
        if isinstance(fact.value.get("prompt"), str)
    )
