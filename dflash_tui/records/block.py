"""One evaluated block: the ranks that every streak is derived from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

RANK_LIMIT = 64
TREE_LIMIT = 512


@dataclass(frozen=True)
class BlockRecord:
    """A line of ``blocks.jsonl``.

    `anchor` is the absolute position of the anchor token; slot j (1 … horizon) predicts position anchor + j.
    `ranks[j-1]`: rank of the reference token in slot j, 1 = best, None beyond RANK_LIMIT.
    `logprobs[j-1]`: its natural log-probability (null where not finite).
    `tree`: DDTree prefix ranks: `tree[d-1]` is the pop index (1 = first) of the reference path's prefix of length d in
    the best-first enumeration, up to TREE_LIMIT; the tuple ends at the first prefix beyond it.
    `margin`: smallest |logit gap| between the reference and its neighbours in rank over the leading slots that decide
    a streak; None when not measured.
    """

    prompt: str
    anchor: int
    horizon: int
    ranks: Tuple[Optional[int], ...]
    logprobs: Tuple[Optional[float], ...]
    tree: Tuple[int, ...]
    margin: Optional[float] = None
