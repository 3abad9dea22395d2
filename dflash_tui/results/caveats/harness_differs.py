"""HARNESS_DIFFERS: another harness, or another version of it, made the other number."""

from __future__ import annotations

from dflash_tui.records.facts import Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation


def find(current: Evaluation, previous: Evaluation) -> tuple[Finding, ...]:
    """Values (current's harness, previous's); only where both record one."""
    mine, other = current.harness, previous.harness
    if mine is None or other is None or mine == other:
        return ()
    sentence = f"Different harnesses made the two results: {_short(mine)} the current, {_short(other)} the previous."
    sources = (Source("", current.path, "harness"), Source("", previous.path, "harness"))
    return (Finding("HARNESS_DIFFERS", "warn", sentence, (mine, other), sources),)


def _short(harness: str) -> str:
    """As many digits as tell it apart; a script of the user's own says that it is one."""
    kind, colon, digits = harness.rpartition(":")
    return f"{kind}{colon}{digits[:12]}"
