"""Leading correct draft tokens."""

from __future__ import annotations

from typing import Optional, Sequence


def streak(ranks: Sequence[Optional[int]], k: int) -> int:
    """s_k = max{d : rank_i ≤ k for all i ≤ d}; None is a rank beyond what was stored. No bonus token."""
    for position, rank in enumerate(ranks):
        if rank is None or rank > k:
            return position
    return len(ranks)
