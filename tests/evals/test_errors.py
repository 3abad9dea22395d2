"""How an ended run is told."""

from __future__ import annotations

import pytest

from dflash_tui.evals.errors import RunEnded
from dflash_tui.records.process import RunState


@pytest.mark.parametrize(
    ("state", "reason", "sentence"),
    [
        ("stopped", "stopped by SIGTERM", "r1: stopped by SIGTERM"),
        ("stopped", None, "r1: stopped: no reason was recorded; see its log"),
        ("failed", "the drafter has no fc.weight", "r1: failed: the drafter has no fc.weight"),
        ("lost", "it never began", "r1: lost: it never began"),
    ],
)
def test_an_end_is_said_once(state: RunState, reason: str | None, sentence: str) -> None:
    assert str(RunEnded("r1", state, reason)) == sentence
