"""A braille line chart as plain rows of text. Spikes survive decimation; what is not a number is a gap."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dflash_tui.tui.formats import tick

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # braille bits by dot column, then dot row from the top


@dataclass(frozen=True)
class Chart:
    """`rows` are curve rows from top to bottom; `ticks` the labels beside them, all equally wide (blank where none);
    `marks` maps a column to the label of what happened there; `broken` columns held a value that is no number."""

    rows: tuple[str, ...]
    ticks: tuple[str, ...]
    marks: Mapping[int, str]
    broken: tuple[int, ...]
    first: float
    last: float


def rasterise(
    values: Sequence[float],
    width: int,
    height: int,
    positions: Sequence[float] | None = None,
    marks: Mapping[float, str] | None = None,
    tick_width: int = 5,
) -> Chart:
    """Draw `values` at ascending `positions` (default 0, 1, 2 …) into width × height cells of 2 × 4 dots.

    Each dot column draws the line from its least to its greatest value and joins the next, so a spike of one point
    is seen however many points share a column. nan and ±inf are gaps. Never raises for a size of at least 1 × 1.
    """
    width, height = max(1, width), max(1, height)
    places = list(positions) if positions is not None else [float(i) for i in range(len(values))]
    blank = " " * tick_width
    if not values:
        return Chart((" " * width,) * height, (blank,) * height, {}, (), 0.0, 0.0)
    first, last = places[0], places[-1]
    span = last - first
    scale = (width * 2 - 1) / span if span > 0 else 0.0
    low, high, finite = _range(values)
    columns: list[tuple[float, float, float, float] | None] = [None] * (width * 2)
    gaps: set[int] = set()
    for place, value in zip(places, values, strict=True):
        x = min(width * 2 - 1, max(0, round((place - first) * scale)))
        if not math.isfinite(value):
            gaps.add(x)
            continue
        known = columns[x]
        columns[x] = (
            (value, value, value, value)
            if known is None
            else (known[0], value, min(known[2], value), max(known[3], value))
        )
    bits = [[0] * width for _ in range(height)]
    _plot(bits, columns, gaps, low, high)
    rows = tuple("".join(chr(0x2800 + cell) if cell else " " for cell in row) for row in bits)
    return Chart(
        rows=rows,
        ticks=_ticks(low, high, height, tick_width) if finite else (blank,) * height,
        marks=_columns(marks or {}, first, last, scale),
        broken=tuple(sorted({x // 2 for x in gaps})),
        first=first,
        last=last,
    )


def _range(values: Sequence[float]) -> tuple[float, float, bool]:
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return 0.0, 1.0, False
    low, high = min(known), max(known)
    if high - low <= abs(high) * 1e-9:
        margin = abs(high) * 0.05 or 1.0
        low, high = max(low - margin, -sys.float_info.max), min(high + margin, sys.float_info.max)
    return low, high, True


def _plot(
    bits: list[list[int]],
    columns: Sequence[tuple[float, float, float, float] | None],
    gaps: set[int],
    low: float,
    high: float,
) -> None:
    """`columns` hold (first, last, least, greatest) of a dot column."""
    dots = len(bits) * 4

    def y(value: float) -> int:
        share = (high / 2 - value / 2) / (high / 2 - low / 2)  # halves: the difference of two floats may overflow
        return min(dots - 1, max(0, round(share * (dots - 1))))

    def column(x: int, top: int, bottom: int) -> None:
        for row in range(min(top, bottom), max(top, bottom) + 1):
            bits[row // 4][x // 2] |= _DOTS[x % 2][row % 4]

    before: tuple[int, int] | None = None  # column and height of the newest point
    for x, item in enumerate(columns):
        if x in gaps:
            before = None
        if item is None:
            continue
        start, end, least, greatest = item
        if before is not None:
            _join(column, before, (x, y(start)))
        column(x, y(greatest), y(least))
        before = None if x in gaps else (x, y(end))


def _join(column: Callable[[int, int, int], None], one: tuple[int, int], other: tuple[int, int]) -> None:
    (x0, y0), (x1, y1) = one, other
    previous = y0
    for x in range(x0 + 1, x1 + 1):
        here = round(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
        step = 1 if here > previous else -1
        column(x, previous + step if here != previous else here, here)
        previous = here


def _ticks(low: float, high: float, height: int, width: int) -> tuple[str, ...]:
    labels = [" " * width] * height
    labels[0] = tick(high, width)
    if height > 1:
        labels[-1] = tick(low, width)
    if height >= 7 and height % 2:
        labels[height // 2] = tick(low / 2 + high / 2, width)
    return tuple(labels)


def _columns(marks: Mapping[float, str], first: float, last: float, scale: float) -> dict[int, str]:
    inside = {place: label for place, label in marks.items() if first <= place <= last}
    return {round((place - first) * scale) // 2: label for place, label in sorted(inside.items())}
