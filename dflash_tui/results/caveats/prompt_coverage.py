"""PARTIAL_PROMPT_COVERAGE: fewer prompts were measured than asked for."""

from __future__ import annotations

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence

_NAMED = 8  # absent prompts that the sentence names


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Values ("measured/asked",)."""
    asked, measured = evidence.asked_count(evaluation), _measured(evaluation)
    if asked is None or measured is None or measured >= asked:
        return ()
    absent, short = _left_out(evaluation)
    script = evidence.by_script(evaluation)
    why_absent = "left out by the script:" if script else "no usable hidden states for"
    reasons = [
        f"{why} {_listed(prompts)}"
        for why, prompts in ((why_absent, absent), ("too short a completion for a block:", short))
        if prompts
    ]
    because = f" ({'; '.join(reasons)})" if reasons else ""
    sentence = f"{measured} of {asked} prompts were measured{because}; the mean says nothing about the others."
    sources = (
        evidence.source(evaluation, "prompts.asked", "prompts asked"),
        evidence.source(evaluation, "prompts.present", "prompts measured"),
    )
    can = not script and evidence.capturable(evaluation)
    remedy = "capture" if can and (absent or not short) else None  # what is captured again is as short
    return (Finding("PARTIAL_PROMPT_COVERAGE", "warn", sentence, (f"{measured}/{asked}",), sources, remedy),)


def _measured(evaluation: Evaluation) -> int | None:
    known = evidence.measured(evaluation)
    return len(known) if known is not None else evaluation.prompt_count


def _left_out(evaluation: Evaluation) -> tuple[list[str], list[str]]:
    """Prompts that were asked for and not measured: without usable hidden states, and with too short a completion."""
    asked, measured = evidence.asked(evaluation), evidence.measured(evaluation)
    if asked is None or measured is None:
        return [], []
    values = [fact.value for fact in evidence.facts(evaluation, "prompts.short")]
    short = {value.get("prompt") for value in values if isinstance(value, dict)}
    absent = [prompt for prompt in asked if prompt not in measured]
    return [p for p in absent if p not in short], [p for p in absent if p in short]


def _listed(prompts: list[str]) -> str:
    more = f" and {len(prompts) - _NAMED} more" if len(prompts) > _NAMED else ""
    return f"{', '.join(prompts[:_NAMED])}{more}"
