"""Counts, sizes and times as the sentences of commands say them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """1 block, 1,329 blocks."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def megabytes(size: int) -> str:
    """Bytes as people say them, decimal units."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size} B"


def of_bytes(part: int, whole: int) -> str:
    """3.46 of 15.47 GB; the unit once where it is the same."""
    one, other = megabytes(part).split(), megabytes(whole).split()
    return f"{one[0]} of {' '.join(other)}" if one[1] == other[1] else f"{' '.join(one)} of {' '.join(other)}"


def savings(total: int, original: int, kept: Sequence[str], left: Sequence[tuple[str, int]]) -> str:
    """What moves and what stays, with sizes: "3.46 of 15.47 GB: drafter; optimizer, frozen embed/lm_head left"."""
    if not left:
        return f"{megabytes(total)}, as it is"
    return f"{of_bytes(total, original)}: {', '.join(kept) or 'weights'}; {', '.join(what for what, _ in left)} left"


def ago(seconds: float) -> str:
    """How long ago something was, in its largest unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def time_left(seconds: float) -> str:
    """A time to come, as the app shows it: 2 s, 0:41, 6 h 36, 3 d 4 h."""
    whole = round(seconds)
    if whole < 10:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d}"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d}"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
