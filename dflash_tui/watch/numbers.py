"""Numbers and durations as people's trainings print them. Every function answers None where the text is not one."""

from __future__ import annotations

import math
import re

SCALES = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}

_PLAIN = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_INTEGER = re.compile(r"\d{1,18}|\d{1,3}(?:[,_]\d{3}){1,5}")
_TENSOR = re.compile(r"tensor\(\s*([^\s,()\[\]]{1,40})\s*[,)]")
_NAN = re.compile(r"[-+]?nan(?:\((?:ind|snan|[0-9a-fx]*)\))?|[-+]?1\.#(?:q?nan|s?nan|ind)0*", re.IGNORECASE)
_INFINITE = re.compile(r"([-+]?)(?:inf(?:inity)?|1\.#inf0*)", re.IGNORECASE)
_CLOCK = re.compile(r"(?:(\d{1,6}) days?,? +)?(?:(\d{1,6}):)?(\d{1,6}):(\d{2}(?:\.\d+)?)")
_PARTS = re.compile(
    r"(\d+(?:\.\d+)?)\s*(days?|d|hours?|hrs?|h|minutes?|mins?|min|m|seconds?|secs?|sec|ms|us|s)(?![a-z])"
)
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}


def number(text: str) -> float | None:
    """The value of ``19.5K``, ``526,442``, ``8_606_215``, ``1.8e-4``, ``88.1%`` (a fraction), ``tensor(0.41, …)``, or
    of nan and infinity in any of their spellings. ``n/a``, ``null`` and everything else: None."""
    text = text.strip().strip("'\"")
    if not text or len(text) > 80:
        return None
    if wrapped := _TENSOR.match(text):
        text = wrapped[1]
    if _NAN.fullmatch(text):
        return math.nan
    if endless := _INFINITE.fullmatch(text):
        return -math.inf if endless[1] == "-" else math.inf
    scale = 1.0
    if text.endswith("%"):
        text, scale = text[:-1].rstrip(), 0.01
    elif text[-1].lower() in SCALES:
        scale = SCALES[text[-1].lower()]
        text = text[:-1]
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    elif not _PLAIN.fullmatch(text):
        return None
    value = float(text.replace("_", "").rstrip("."))
    # Rounding to what was printed: 88.1 % is 0.881, not 0.8809999…
    return value if scale == 1.0 else float(f"{value * scale:.15g}")


def integer(text: str) -> int | None:
    """A count: digits only, zero-padded or grouped by commas or underscores. ``3.2e+4`` is rounded, so it is none."""
    text = text.strip().strip("'\"")
    return int(text.replace(",", "").replace("_", "")) if _INTEGER.fullmatch(text) else None


def counted(value: float | None) -> int | None:
    """A whole, finite, non-negative float as an int."""
    if value is None or not math.isfinite(value) or value < 0 or value >= 1e15 or value != int(value):
        return None
    return int(value)


def duration(text: str) -> float | None:
    """Seconds of ``57:12``, ``94:39:17``, ``7 days, 15:55:58``, ``4h 16m 28s``, ``3h12m``, ``764.8min``, ``9.5ms``."""
    text = text.strip().strip("'\"")
    if not text or len(text) > 80:
        return None
    if clock := _CLOCK.fullmatch(text):
        days, hours, minutes, seconds = clock.groups()
        return float(days or 0) * 86400 + float(hours or 0) * 3600 + float(minutes) * 60 + float(seconds)
    total, end = 0.0, 0
    for part in _PARTS.finditer(text.lower()):
        if text[end : part.start()].strip(" ,"):
            return None
        unit = part[2]
        seconds_each = 1e-3 if unit == "ms" else 1e-6 if unit == "us" else _SECONDS[unit[0]]
        total, end = total + float(part[1]) * seconds_each, part.end()
    if not end or text[end:].strip():
        return None
    return float(f"{total:.12g}")
