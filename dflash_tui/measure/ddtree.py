"""Which drafts a DDTree of a given node budget would have accepted, without building the tree.

The tree of budget b holds the b most probable prefixes (root not counted), found best first: pop the best path, push
its next sibling and its first child (liranringel/ddtree). Enumerating once to the largest budget and noting when each
prefix of the reference is popped gives the accepted length for every smaller budget.
"""

from __future__ import annotations

import heapq
from typing import List, Optional, Sequence, Tuple


def prefix_ranks(
    logprobs: Sequence[Sequence[float]], reference_ranks: Sequence[Optional[int]], limit: int = 512
) -> Tuple[int, ...]:
    """Pop indices (1 = first) of the reference path's prefixes of length 1, 2, …, ending at the first beyond `limit`.

    `logprobs[i]` are slot i's natural log-probabilities, best candidate first (at most `limit` are ever used);
    `reference_ranks[i]` is the reference token's rank in slot i (1 = best), None when beyond the candidates. A path's
    score is the left-to-right float64 sum of its log-probabilities; equal scores are ordered by rank tuple.
    """
    depth = len(logprobs)
    found: List[int] = []
    if depth == 0 or not logprobs[0] or not reference_ranks:
        return ()
    wanted = reference_ranks[0]
    heap: List[Tuple[float, Tuple[int, ...], float]] = [(-logprobs[0][0], (1,), 0.0)]
    for popped in range(1, limit + 1):
        if not heap or wanted is None:
            break
        negative, path, parent_score = heapq.heappop(heap)
        length, last = len(path), path[-1]
        if length == len(found) + 1 and last == wanted and path[:-1] == tuple(reference_ranks[: length - 1]):
            found.append(popped)
            if length == min(depth, len(reference_ranks)):
                break
            wanted = reference_ranks[length]
        if last < len(logprobs[length - 1]):
            heapq.heappush(heap, (-(parent_score + logprobs[length - 1][last]), (*path[:-1], last + 1), parent_score))
        if length < depth and logprobs[length]:
            heapq.heappush(heap, (-(-negative + logprobs[length][0]), (*path, 1), -negative))
    return tuple(found)


def accepted(tree: Sequence[int], budget: int) -> int:
    """Accepted drafts (no bonus) of a tree with `budget` nodes, from the prefix ranks of a block."""
    return sum(rank <= budget for rank in tree)
