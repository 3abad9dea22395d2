"""How far a mean over prompts can be believed: Student t intervals, and the exact sign-flip test.

Blocks of one prompt resemble each other, so n is the number of prompts, never of blocks (Miller 2024,
arXiv 2411.00640); with few prompts a t interval over prompt means keeps its coverage where bootstraps lose it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

SIGN_FLIP_FROM = 6  # prompts; with 5 the smallest two-sided p is .0625
_SIGN_FLIP_TO = 40  # 2^20 sums a half: beyond it the t interval is all that is needed


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean, correctly rounded sums. Raises ValueError without values."""
    if not values:
        raise ValueError("no values to average")
    return math.fsum(values) / len(values)


def within(t: float, df: int) -> float:
    """P(|T| ≤ t) for Student's t with `df` degrees of freedom (Abramowitz & Stegun 26.7.3, 26.7.4)."""
    theta = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(theta), math.cos(theta)
    if df % 2:
        term, total = cosine, 0.0
        for k in range(1, df - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        return 2 / math.pi * (theta + sine * total)
    term, total = 1.0, 0.0
    for k in range(0, df - 1, 2):
        total += term
        term *= cosine * cosine * (k + 1) / (k + 2)
    return sine * total


def t_quantile(probability: float, df: int) -> float:
    """t with P(T ≤ t) = `probability`, for 0.5 ≤ probability < 1 and df ≥ 1. Raises ValueError outside."""
    if not 0.5 <= probability < 1 or df < 1:
        raise ValueError(f"t quantile: found p {probability}, df {df}, expected 0.5 ≤ p < 1, df ≥ 1")
    central = 2 * probability - 1
    low, high = 0.0, math.pi / 2  # bisect the angle: its range is bounded, t's is not
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return math.sqrt(df) * math.tan(middle)
        if within(math.sqrt(df) * math.tan(middle), df) < central:
            low = middle
        else:
            high = middle


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Student t interval of the mean, df = n − 1; None without a spread: under 2 values, and of equal ones, which would
    give an interval of no width, as if nothing were uncertain."""
    count = len(values)
    if count < 2 or equal(values):
        return None
    centre = mean(values)
    spread = math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (count - 1) / count)
    half = t_quantile((1 + confidence) / 2, count - 1) * spread
    return centre - half, centre + half


def equal(values: Sequence[float]) -> bool:
    """Whether all are one number, but for rounding in the last places."""
    return bool(values) and max(values) - min(values) <= 1e-12 * max(map(abs, values))


def sign_flip(differences: Sequence[float]) -> float | None:
    """Exact two-sided p of the paired differences: the share of the 2^n sign patterns whose sum is as far from 0.

    None under 6 differences, where it can't reach .05, and above 40.
    """
    count = len(differences)
    if not SIGN_FLIP_FROM <= count <= _SIGN_FLIP_TO:
        return None
    sizes = [abs(d) for d in differences]
    observed = abs(math.fsum(differences)) - 1e-12 * math.fsum(sizes)  # sums that are equal on paper count as equal
    left, right = _sums(sizes[: count // 2]), sorted(_sums(sizes[count // 2 :]))
    extreme = 0
    for part in left:
        upper = bisect_left(right, observed - part)
        lower = min(bisect_right(right, -observed - part), upper)  # nothing is counted twice where observed is 0
        extreme += len(right) - upper + lower
    return float(extreme / 2**count)


def _sums(sizes: Sequence[float]) -> list[float]:
    sums = [0.0]
    for size in sizes:
        sums = [total + sign * size for total in sums for sign in (1, -1)]
    return sums
