"""A speed as people write it: 200 MB/s, 25 MiB/s, 1 Gbit/s."""

from __future__ import annotations

import re

RATE_PATTERN = r"(?=.*[1-9])[0-9]{1,9}([.][0-9]{1,6})? ?([kKmMgG][iI]?)?([bB]|[bB][iI][tT])/[sS]"
SAID = "a speed such as 200 MB/s, 25 MiB/s or 1 Gbit/s"

_RATE = re.compile(RATE_PATTERN)
_NUMBER = re.compile(r"([-+]?)([0-9]+(?:[.][0-9]*)?|[.][0-9]+)(.*)", re.DOTALL)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


def read_rate(text: str) -> float:
    """Bytes a second. Capitals do not matter: KB, kB and kb are 1000 bytes, and bits are bit. Raises ValueError, with
    what is wrong, for anything else: nothing, no unit (none is guessed), zero, less."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"found {text[:40]!r}{_wrong(text)}, expected {SAID}")
    prefix, unit = (match[2] or "").lower(), match[3].lower()
    number = text[: match.start(2) if match[2] else match.start(3)]
    return float(number) * _FACTORS[prefix] / (8 if unit == "bit" else 1)


def _wrong(text: str) -> str:
    """What is wrong with it, where that can be told."""
    number = _NUMBER.fullmatch(text.strip())
    if number is None:
        return ""
    if number[1] == "-":
        return ", which is less than nothing"
    if not number[3].strip():
        return " without a unit"
    return ", at which nothing would move" if float(number[2]) == 0 else ""
