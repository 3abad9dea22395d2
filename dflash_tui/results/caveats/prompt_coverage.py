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
    sentence = (
        f"{measured} of {asked} prompts were measured{_absent(evaluation)}; the mean says nothing about the others."
    )
    sources = (
        evidence.source(evaluation, "prompts.asked", "prompts asked"),
        evidence.source(evaluation, "prompts.present", "prompts measured"),
    )
    return (Finding("PARTIAL_PROMPT_COVERAGE", "warn", sentence, (f"{measured}/{asked}",), sources, "capture"),)


def _measured(evaluation: Evaluation) -> int | None:
    known = evidence.measured(evaluation)
    return len(known) if known is not None else evaluation.prompt_count


def _absent(evaluation: Evaluation) -> str:
    asked, measured = evidence.asked(evaluation), evidence.measured(evaluation)
    if asked is None or measured is None:
        return ""
    absent = [prompt for prompt in asked if prompt not in measured]
    more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
    return f" (no usable hidden states for {', '.join(absent[:_NAMED])}{more})" if absent else ""
