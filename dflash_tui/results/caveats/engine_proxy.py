"""ENGINE_PROXY: what our own evaluation stands for, and what it is not."""

from __future__ import annotations

from dflash_tui.records.facts import Source
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import Evaluation
from dflash_tui.results import evidence


def find(evaluation: Evaluation) -> tuple[Finding, ...]:
    """On every run of our own harness; the engine of an imported number, or of a user's own script, is not known."""
    if evaluation.origin != "run" or evidence.by_script(evaluation):
        return ()
    sentence = (
        "Measured on CPU in float32, teacher-forced on the target's own greedy text: a proxy for acceptance in a "
        "serving engine, which also has its own dtype, kernels and sampling."
    )
    values = ("CPU", "float32", "teacher-forced")
    return (Finding("ENGINE_PROXY", "note", sentence, values, (Source("", evaluation.path, "harness"),)),)
