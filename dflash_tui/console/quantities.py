"""Counts, sizes and times as the sentences of commands say them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """1 block, 1,329 blocks."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def megabytes(size: int) -> str:
    """Bytes as people say them, decimal units."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size} B"


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
