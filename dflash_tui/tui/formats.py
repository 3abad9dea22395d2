"""Numbers for people: streaks, counts, bytes, rates, ages, times to come; of a fixed width where columns need it."""

from __future__ import annotations

import math

from dflash_tui.console.quantities import time_left

ABSENT = "—"
_SI = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"))


def step_name(step: int | None) -> str:
    """A checkpoint's step as folders spell it: step 4000. Counts have separators, names don't."""
    return ABSENT if step is None else f"step {step}"


def count(value: int | None) -> str:
    """A whole number with thousands separated: 5,329."""
    return ABSENT if value is None else f"{value:,}"


def _three(value: float) -> str:
    """Three significant digits without an exponent, for 0 ≤ value < 1000."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def scaled(value: float) -> tuple[str, str]:
    """Three significant digits and the SI prefix that goes with them: (19.5, K)."""
    if not math.isfinite(value):
        return ABSENT, ""
    size = abs(value)
    for factor, prefix in _SI:
        if size >= factor * 0.9995:
            return ("-" if value < 0 else "") + _three(size / factor), prefix
    return ("-" if value < 0 else "") + _three(size), ""


def byte_size(value: float | None) -> str:
    """Bytes in decimal units, as disks and networks are sold: 15.5 GB."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if abs(value) < 1000:
        return f"{value:.0f} B"
    number, prefix = scaled(value)
    return f"{number} {prefix.replace('K', 'k')}B"


def speed(value: float | None) -> str:
    """Bytes a second: 412 MB/s."""
    return ABSENT if value is None or not math.isfinite(value) else f"{byte_size(value)}/s"


def throughput(value: float | None, unit: str) -> str:
    """A training rate in its own unit: 19.5 Ktok/s."""
    if value is None or not math.isfinite(value):
        return ABSENT
    number, prefix = scaled(value)
    return f"{number} {prefix}{unit}"


def per_step(seconds: float | None) -> str:
    """Seconds a step, or steps a second when steps are quick."""
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        return ABSENT
    return f"{_three(seconds)} s/step" if seconds >= 0.1 else f"{scaled(1 / seconds)[0]} steps/s"


def left(seconds: float | None) -> str:
    """A time to come: 2 s, 0:41, 6 h 36, 3 d 4 h."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return ABSENT
    return time_left(seconds)


def took(seconds: float) -> str:
    """How long something took: tenths of a second while that says more than 0 s."""
    if seconds < 0.1:
        return "< 0.1 s"
    return f"{seconds:.1f} s" if seconds < 10 else left(seconds)


def age(seconds: float | None) -> str:
    """How old a value is: 2 s, 36 min, 5 h, 3 d. A clock that is ahead counts as 0 s."""
    if seconds is None or not math.isfinite(seconds):
        return ABSENT
    whole = max(0, int(seconds))
    if whole < 100:
        return f"{whole} s"
    if whole < 100 * 60:
        return f"{whole // 60} min"
    if whole < 48 * 3600:
        return f"{whole // 3600} h"
    return f"{whole // 86400} d"


def percent(part: float, whole: float) -> str:
    """A share in a column of five: " 74 %". 100 % only when it is all there."""
    if whole <= 0:
        return f"{ABSENT:>5}"
    share = part / whole
    return f"{100 if share >= 1 else min(99, round(share * 100)):3d} %"


def streak(value: float | None) -> str:
    """A mean streak or τ with three decimals."""
    return ABSENT if value is None else f"{value:.3f}"


def interval(bounds: tuple[float, float] | None) -> str:
    """A 95 % interval: 2.40–4.26, and −1.77 … 2.97 where a bound is negative; fourteen cells at most below 1000."""
    if bounds is None:
        return ""
    low, high = (f"{bound:.2f}".replace("-", "−") for bound in bounds)
    return f"{low}–{high}" if bounds[0] >= 0 else f"{low} … {high}"


def small(value: float | None) -> str:
    """A loss: four significant digits, exponent only where it must be."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value == 0 or 0.01 <= abs(value) < 10:
        return f"{value:.4f}"
    return f"{value:.4g}"


def learning_rate(value: float | None) -> str:
    """A learning rate as people write it: 2.9e-4."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def tick(value: float, width: int) -> str:
    """An axis label of exactly `width` cells (at least 5): plain where that is exact enough, else SI."""
    size = abs(value)
    if value and (size >= 10_000 or size < 0.001):
        number, prefix = scaled(value) if size >= 1 else (f"{value:.0e}".replace("e-0", "e-"), "")
        text = f"{number}{prefix}"
    else:
        decimals = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
        text = f"{value:.{decimals}f}"
    return f"{text[:width]:>{width}}"


def short_hash(digest: str | None) -> str:
    """The first eight digits of a hash, and a sign that there is more."""
    return f"{digest[:8]}…" if digest else ABSENT


def plural(number: int, noun: str) -> str:
    """1 prompt, 3 prompts."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
