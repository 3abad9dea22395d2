"""Streaks and accepted lengths of the reference trees, from this room's ranks and candidates."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from dflash_tui.harness.draft import scan
from dflash_tui.harness.drafter import Drafter
from dflash_tui.measure.ddtree import accepted, prefix_ranks
from dflash_tui.measure.streaks import streak
from tests.cases import case_root
from tests.harness.world import golden

CASES: list[dict[str, Any]] = [
    case for path in sorted((case_root() / "golden").glob("ddtree*.json")) for case in json.loads(path.read_text())
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_every_reference_of_a_case(case: dict[str, Any]) -> None:
    logits = torch.tensor(case["logits"])
    vocabulary = logits.shape[1]
    drafter = Drafter(replace(golden("v1-one-layer-gqa").settings, hidden_size=vocabulary))
    for index, reference in enumerate(case["references"]):
        wanted = torch.tensor(reference)
        found = scan(drafter, logits[: len(reference)], torch.eye(vocabulary), wanted)
        ranks = [int((row == token).nonzero()[0, 0]) + 1 for row, token in zip(found.rows, wanted, strict=True)]
        for k in (1, 4, 8):
            assert streak(ranks, k) == case[f"top{k}_streak"][index]
        tree = prefix_ranks((found.values.double() - found.total[:, None]).tolist(), ranks)
        for budget, expected in case["budgets"].items():
            assert accepted(tree, int(budget)) == expected["accepted"][index]
