"""SAME_STEP_OTHER_RUN: two results share a step number and are of different weights."""

from __future__ import annotations

from dflash_tui.records.facts import Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(current: Evaluation, previous: Evaluation) -> tuple[Finding, ...]:
    """Values (the step,). Weights are told apart by hash, or by the checkpoint's name where a hash is unrecorded."""
    step = evidence.step(current)
    if step is None or step != evidence.step(previous):
        return ()
    if current.weights_id is not None and previous.weights_id is not None:
        key, mine, other = "weights_id", current.weights_id[:12], previous.weights_id[:12]
        differ = current.weights_id != previous.weights_id
    elif current.origin == previous.origin or None in (current.training, previous.training):
        key, mine, other = "checkpoint", current.checkpoint_name or "", previous.checkpoint_name or ""
        differ = mine != other and "" not in (mine, other)
    else:  # a file name in a run directory and one that a person gave are never equal; their trainings may be
        key, mine, other = "training", current.training or "", previous.training or ""
        differ = mine != other
    if not differ:
        return ()
    sentence = f"Both results are of a step {step}, of different weights ({key} {mine}, previous {other})."
    sources = (Source("", current.path, key), Source("", previous.path, key))
    return (Finding("SAME_STEP_OTHER_RUN", "warn", sentence, (step,), sources),)
