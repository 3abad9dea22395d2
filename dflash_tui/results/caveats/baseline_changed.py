"""BASELINE_CHANGED: the file that a pin was made from has other content now. The pin itself stays usable."""

from __future__ import annotations

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Values (hash when pinned, hash now). A file that is gone can't contradict its pin: nothing is raised."""
    origin = evidence.fact(evaluation, "pin.origin")
    if origin is None or not isinstance(origin.value, dict):
        return ()
    pinned, now = origin.value.get("pinned"), origin.value.get("found")
    if not isinstance(pinned, str) or not isinstance(now, str) or pinned == now:
        return ()
    sentence = (
        f"{origin.value.get('path')} changed since it was pinned (sha256 {pinned[:12]}… then, {now[:12]}… now); the "
        "pinned content is what is compared."
    )
    return (Finding("BASELINE_CHANGED", "warn", sentence, (pinned, now), (origin.source,), "pin"),)
