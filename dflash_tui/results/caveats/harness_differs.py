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
    sentence = f"Different harnesses made the two results: {mine[:12]} the current, {other[:12]} the previous."
    sources = (Source("", current.path, "harness"), Source("", previous.path, "harness"))
    return (Finding("HARNESS_DIFFERS", "warn", sentence, (mine, other), sources),)
