"""Which positions of a reference completion are evaluated."""

from __future__ import annotations

from typing import Dict, Tuple

FULL_ANCHORS = 30
PRESETS: Dict[str, Tuple[int, int]] = {"quick": (3, 15), "full": (10, FULL_ANCHORS)}  # prompts asked, blocks a prompt


def spaced(prompt_length: int, completion_length: int, horizon: int, count: int) -> Tuple[int, ...]:
    """Absolute anchor positions, ascending.

    A completion of n tokens (EOS included) lies at P … P+n−1; an anchor leaves a full horizon L, so m = n − L are
    valid. `full` is a_i = P + ⌊i·m/30⌋ for i = 0 … 29 (all m where m < 30); `count` 15 takes the even i of those, so
    that a run's quick anchors are always among its full ones. Any other count, as of a result that is to be matched,
    is spaced by the formula with it in the place of 30. Raises ValueError for a count below 1.
    """
    if count < 1:
        raise ValueError(f"anchors: found count {count}, expected at least 1")
    valid = completion_length - horizon
    if valid <= 0:
        return ()
    quick = count == FULL_ANCHORS // 2
    whole = FULL_ANCHORS if quick else count
    if valid < whole:
        every = tuple(range(prompt_length, prompt_length + valid))
    else:
        every = tuple(prompt_length + i * valid // whole for i in range(whole))
    return every[::2] if quick else every
