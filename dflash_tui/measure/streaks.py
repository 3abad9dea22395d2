"""Leading correct draft tokens."""

from __future__ import annotations

from typing import Optional, Sequence


def streak(ranks: Sequence[Optional[int]], k: int) -> int:
    """s_k = max{d : rank_i ≤ k for all i ≤ d}; None is a rank beyond what was stored. No bonus token."""
    for position, rank in enumerate(ranks):
        if rank is None or rank > k:
            return position
    return len(ranks)


def survival(ranks: Sequence[Sequence[Optional[int]]], horizon: int) -> "list[float]":
    """P(s_1 ≥ j) for j = 1 … horizon over the given blocks; their sum is the mean streak."""
    lengths = [streak(block, 1) for block in ranks]
    return [sum(length >= j for length in lengths) / len(lengths) for j in range(1, horizon + 1)] if lengths else []
