"""What a line says, dialect by dialect: one file each, tried in order, pure and never raising."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dflash_tui.watch.parsers import announcements, bars, mappings, pairs
from dflash_tui.watch.prefixes import bare
from dflash_tui.watch.reading import Reading
from dflash_tui.watch.stamps import take_stamp

Dialect = Callable[[str], "Reading | None"]

DIALECTS: tuple[Dialect, ...] = (mappings.read, pairs.read)


def parse(text: str) -> tuple[Reading, ...]:
    """Everything that one record says, in its order: frames of progress bars first cut out, each other piece read by
    the first dialect that knows it. A piece that says nothing gives no reading. Never raises."""
    readings: list[Reading] = []
    for piece in bars.split(bare(text)):
        if isinstance(piece, Reading):
            readings.append(piece)
        elif piece.strip():
            reading = _read(piece)
            if reading is not None:
                readings.append(reading)
    return tuple(readings)


def parse_unfinished(text: str) -> tuple[Reading, ...]:
    """What a record says that has no end yet: only whole frames of bars, for anything else may still go on."""
    return tuple(piece for piece in bars.split(bare(text)) if isinstance(piece, Reading))


def _read(text: str) -> Reading | None:
    stamp, body = take_stamp(text)
    announcement = announcements.read(body)
    reading = next((found for dialect in DIALECTS if (found := dialect(body)) is not None), None)
    if reading is None:
        if announcement is None and stamp is None:
            return None
        reading = Reading()
    if announcement is not None and reading.announcement is None:
        reading = replace(reading, announcement=announcement)
    return replace(reading, logged_at=stamp)
