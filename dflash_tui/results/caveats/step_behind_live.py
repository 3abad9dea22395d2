"""STEP_BEHIND_LIVE: the training was already further than the evaluated checkpoint when the evaluation was planned."""

from __future__ import annotations

from typing import Any

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Values (evaluated step, live step, lag in steps)."""
    step, recorded = evidence.step(evaluation), evidence.value(evaluation, "train.live")
    live = evidence.whole(recorded.get("step")) if isinstance(recorded, dict) else None
    if step is None or live is None or live <= step:
        return ()
    newest = evidence.whole(evidence.value(evaluation, "train.newest_saved"))
    saved = f"; the newest saved step was {newest}" if newest is not None and newest != step else ""
    behind = f"{live - step} step{'s' if live - step > 1 else ''}"
    lag = f"{behind}{_minutes(evaluation, recorded)} behind"
    sentence = f"Evaluated step {step}, live step {live} at plan time: {lag}{saved}."
    sources = (evidence.source(evaluation, "checkpoint.step", "step"), evidence.source(evaluation, "train.live"))
    return (Finding("STEP_BEHIND_LIVE", "note", sentence, (step, live, live - step), sources),)


def _minutes(evaluation: Evaluation, live: dict[str, Any]) -> str:
    """Time between the checkpoint's write and the live line, where both are known with their zones and it is time that
    counts: half a minute at least."""
    file = evidence.value(evaluation, "checkpoint.file")
    saved = evidence.moment(file.get("mtime")) if isinstance(file, dict) else None
    line = evidence.moment(live.get("at"))
    if saved is None or line is None or line < saved:
        return ""
    minutes = round((line - saved).total_seconds() / 60)
    return f" and {minutes} minute{'s' if minutes > 1 else ''}" if minutes else ""
