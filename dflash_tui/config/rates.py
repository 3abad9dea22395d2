"""A speed as people write it: 200 MB/s, 25 MiB/s, 1 Gbit/s."""

from __future__ import annotations

import re

RATE_PATTERN = r"(?=.*[1-9])[0-9]{1,9}([.][0-9]{1,6})? ?(k|M|G|Ki|Mi|Gi)?(B|bit)/s"
SAID = "a speed such as 200 MB/s, 25 MiB/s or 1 Gbit/s"

_RATE = re.compile(RATE_PATTERN)
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def read_rate(text: str) -> float:
    """Bytes a second. A unit is never guessed, and b is no B: raises ValueError for anything else, or for nothing."""
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"found {text[:40]!r}, expected {SAID}")
    prefix, unit = match[2] or "", match[3]
    number = text[: match.start(2) if match[2] else match.start(3)]
    return float(number) * _FACTORS[prefix] / (8 if unit == "bit" else 1)
