from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_tui.measure.ddtree import accepted, prefix_ranks
from dflash_tui.measure.streaks import streak
from dflash_tui.measure.summary import cut
from dflash_tui.records.block import BlockRecord
from tests.cases import known

CASES: list[dict[str, Any]] = json.loads(known("golden/ddtree.json").read_text())


def log_softmax(logits: list[float]) -> list[float]:
    top = max(logits)
    total = math.log(math.fsum(math.exp(value - top) for value in logits))
    return [value - top - total for value in logits]


def best_first(logits: list[float]) -> list[int]:
    """Token ids, best first; of equal logits the lower id."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))


def ranked(case: dict[str, Any]) -> tuple[list[list[int]], list[list[float]]]:
    """Tokens by rank, and their log-probabilities, for each slot."""
    orders = [best_first(row) for row in case["logits"]]
    logprobs = [log_softmax(row) for row in case["logits"]]
    return orders, [[lp[token] for token in order] for order, lp in zip(orders, logprobs, strict=True)]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_accepts_what_the_reference_tree_accepts_at_every_budget(number: int) -> None:
    case = CASES[number]
    orders, logprobs = ranked(case)
    for index, reference in enumerate(case["references"]):
        ranks = [orders[slot].index(token) + 1 for slot, token in enumerate(reference)]
        assert streak(ranks, 1) == case["top1_streak"][index]
        assert streak(ranks, 4) == case["top4_streak"][index]
        assert streak(ranks, 8) == case["top8_streak"][index]
        tree = prefix_ranks(logprobs, ranks)
        for budget, expected in case["budgets"].items():
            assert accepted(tree, int(budget)) == expected["accepted"][index], (index, budget)


def test_a_chain_can_be_displaced_by_wide_alternatives() -> None:
    slots = [(0.55, 0.30, 0.15), (0.60, 0.25, 0.15), (0.50, 0.35, 0.15)]
    logprobs = [[math.log(p) for p in slot] for slot in slots]
    tree = prefix_ranks(logprobs, (1, 1, 1))
    assert tree == (1, 2, 5)
    assert accepted(tree, 4) == 2 < streak((1, 1, 1), 1)


ROWS = st.lists(st.lists(st.floats(-6, 0), min_size=3, max_size=3), min_size=1, max_size=4)


@given(ROWS, st.data())
def test_prefix_ranks_agree_with_sorting_every_path(rows: list[list[float]], data: st.DataObject) -> None:
    logprobs = [sorted(row, reverse=True) for row in rows]
    ranks = [data.draw(st.integers(1, 3)) for _ in rows]
    paths = [path for depth in range(1, len(rows) + 1) for path in itertools.product((1, 2, 3), repeat=depth)]

    def score(path: tuple[int, ...]) -> float:
        total = 0.0
        for slot, rank in enumerate(path):
            total += logprobs[slot][rank - 1]
        return total

    order = sorted(paths, key=lambda path: (-score(path), path))
    expected = [order.index(tuple(ranks[: depth + 1])) + 1 for depth in range(len(ranks))]
    assert prefix_ranks(logprobs, ranks) == tuple(expected)


@given(ROWS, st.data())
def test_a_cut_tree_accepts_no_more_than_the_tree_of_the_shorter_block(
    rows: list[list[float]], data: st.DataObject
) -> None:
    logprobs = [sorted(row, reverse=True) for row in rows]
    ranks = tuple(data.draw(st.integers(1, 3)) for _ in rows)
    horizon = data.draw(st.integers(1, len(rows)))
    long = BlockRecord("p", 9, len(rows), ranks, (None,) * len(rows), prefix_ranks(logprobs, ranks))
    (short,) = cut([long], horizon)
    own = prefix_ranks(logprobs[:horizon], ranks[:horizon])
    for budget in (1, 2, 4, 8, 16, 32, 64, 128):
        assert accepted(short.tree, budget) <= accepted(own, budget)


@given(ROWS, st.lists(st.one_of(st.none(), st.integers(1, 3)), min_size=4, max_size=4))
def test_a_rank_that_was_not_kept_ends_the_accepted_path(rows: list[list[float]], ranks: list[int | None]) -> None:
    logprobs = [sorted(row, reverse=True) for row in rows]
    tree = prefix_ranks(logprobs, ranks[: len(rows)])
    known = next((i for i, rank in enumerate(ranks[: len(rows)]) if rank is None), len(rows))
    assert len(tree) <= known
    assert list(tree) == sorted(set(tree))


def test_nothing_is_accepted_without_slots() -> None:
    assert prefix_ranks([], []) == ()
    assert prefix_ranks([[]], [1]) == ()
