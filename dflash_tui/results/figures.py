"""Differences as sentences and tables spell them: always signed, with a minus as wide as the plus."""

from __future__ import annotations

SHORT = {"top1": "top-1", "top4": "top-4", "top8": "top-8"}
"""Metrics as sentences call them."""


def signed(value: float, digits: int = 3) -> str:
    """+2.400, −0.120; what rounds to nothing is +0.000."""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")


def bounds(interval: tuple[float, float], digits: int = 3) -> str:
    """The two ends of an interval: [−0.120, +2.400]."""
    return f"[{signed(interval[0], digits)}, {signed(interval[1], digits)}]"
