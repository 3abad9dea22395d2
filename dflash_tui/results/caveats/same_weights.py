"""SAME_WEIGHTS_OTHER_FILE: a request that was answered by a run of the same weights under another file or step."""

from __future__ import annotations

from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Values: what was asked for, what was evaluated (paths)."""
    asked = evidence.fact(evaluation, "eval.asked")
    if asked is None or not isinstance(asked.value, dict):
        return ()
    wanted, step = str(asked.value.get("path", "")), evidence.whole(asked.value.get("step"))
    done = evaluation.checkpoint_path or evaluation.checkpoint_name or ""
    if (wanted, step) == (done, evidence.step(evaluation)):
        return ()
    of = f" of {evaluation.training}" if evaluation.training else ""
    mine = evidence.step(evaluation)
    same = f"step {mine}{of} ({done})" if mine is not None else done
    sentence = (
        f"{f'Step {step} ({wanted})' if step is not None else wanted} holds the same weights as {same}, which was "
        f"evaluated as {evaluation.name}: the values are those, and what is said of the training is of then."
    )
    sources = (asked.source, evidence.source(evaluation, "checkpoint.file"))
    return (Finding("SAME_WEIGHTS_OTHER_FILE", "note", sentence, (wanted, done), sources),)
