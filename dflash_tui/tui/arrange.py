"""How many rows each panel gets at a terminal's size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MINIMUM = (60, 16)
WIDE = 100
FOLDED = 1  # a panel of one row has no border


@dataclass(frozen=True)
class Arrangement:
    """Rows of each panel, border included. `kind`: side by side, stacked, or too small for any."""

    kind: Literal["wide", "stacked", "tiny"]
    training: int = 0
    transfer: int = 0
    evaluation: int = 0
    results: int = 0


def arrange(width: int, height: int) -> Arrangement:
    """Rows for a terminal of that many cells; one row each for the header and the key bar."""
    if width < MINIMUM[0] or height < MINIMUM[1]:
        return Arrangement("tiny")
    body = height - 2
    if width >= WIDE:
        results = min(22, max(7, (body * 53) // 100))
        top = body - results
        transfer = 6 if top >= 14 else 4 if top >= 11 else FOLDED
        return Arrangement("wide", top, transfer, top - transfer, results)
    transfer = 5 if body >= 34 else FOLDED
    rest = body - transfer
    results = max(5, (rest * 43 + 50) // 100)
    evaluation = max(4, (rest * 29 + 50) // 100)
    return Arrangement("stacked", rest - results - evaluation, transfer, evaluation, results)
