"""The harness ranks as a straightforward evaluation does, and costs no more of the processor."""

from __future__ import annotations

import pytest

from tests.bench.evaluation import measure, table


def test_drafting_ranks_like_a_straightforward_evaluation_and_costs_less(capsys: pytest.CaptureFixture[str]) -> None:
    naive, harness = measure(hidden=256, vocabulary=8000)
    with capsys.disabled():
        print(f"\n{table([naive, harness])}")
    assert harness.blocks == 3 * naive.blocks
    assert harness.seconds / harness.blocks < naive.seconds / naive.blocks
