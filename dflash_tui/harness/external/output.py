"""What a script prints: lines for the log, and how far it is, from its progress bars or by the user's own pattern."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

LONGEST_LINE = 4000  # characters
MOST_KEPT = 32 << 20  # bytes of output: a script that prints without end must not fill the disk

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
)
_BAR = re.compile(r"\d{1,3}%\|[^|]*\|\s*(?P<done>[\d.]+[kMGT]?)/(?P<total>[\d.]+[kMGT]?)\s*\[")
_UNITS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SILENT_SECONDS = 10.0  # after which a bar that has not moved gives way to another one


@dataclass(frozen=True)
class Mark:
    """`done` of `total`, as the bar called `name` says."""

    done: int
    total: int
    name: str = ""


class Stream:
    """One of the script's two streams. `line` hears every finished line; `mark` every sign of progress.

    What a carriage return overwrites (a bar's earlier states) is read for progress and kept out of the log.
    """

    def __init__(self, pattern: str, line: Callable[[str], None], mark: Callable[[Mark], None]) -> None:
        self._pattern = re.compile(pattern) if pattern else None
        self._line, self._mark = line, mark
        self._pending = b""
        self.last = ""

    def feed(self, data: bytes) -> None:
        """Bytes as they arrive; an unfinished line is looked at for progress, too: a bar ends with the next one."""
        *whole, self._pending = (self._pending + data).split(b"\n")
        for text in whole:
            self._finished(text)
        *overwritten, current = self._pending.split(b"\r")
        for text in (*overwritten, current):
            self._look(_clean(text))
        self._pending = current[-4 * LONGEST_LINE :]

    def close(self) -> None:
        """The end of the stream: a line without its newline is one, too."""
        if self._pending:
            self._finished(self._pending)
            self._pending = b""

    def _finished(self, data: bytes) -> None:
        parts = [_clean(part) for part in data.rstrip(b"\r").split(b"\r")]
        for part in parts:
            self._look(part)
        text = parts[-1].rstrip()
        if not text:
            return
        if not _BAR.search(text):
            self.last = text
        self._line(text)

    def _look(self, text: str) -> None:
        found = self._pattern.search(text) if self._pattern is not None else _BAR.search(text)
        if found is None:
            return
        done, total = _number(found["done"]), _number(found["total"])
        if done is not None and total:
            name = "" if self._pattern is not None else text[: found.start()].strip(" :")
            self._mark(Mark(min(done, total), total, name))


class Bars:
    """Which of several bars tells how far the whole is: one that counts the blocks asked for, else the first that is
    not at its end; one that stands still gives way."""

    def __init__(self, asked: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._asked, self._clock = asked, clock
        self._current: Mark | None = None
        self._moved = 0.0

    def take(self, mark: Mark) -> Mark | None:
        """The mark, if it says how far the whole is and something new."""
        now, shown = self._clock(), self._current
        if shown is None or (mark.name, mark.total) == (shown.name, shown.total):
            wanted = True
        elif shown.total == self._asked:
            wanted = mark.total == self._asked
        else:
            over = shown.done >= shown.total or now - self._moved > _SILENT_SECONDS
            wanted = over or mark.total == self._asked
        if not wanted or mark == shown:
            return None
        self._current, self._moved = mark, now
        return mark


def _number(text: str | None) -> int | None:
    if not text:
        return None
    try:
        return round(float(text[:-1]) * _UNITS[text[-1]]) if text[-1] in _UNITS else round(float(text))
    except (ValueError, OverflowError):
        return None


def _clean(data: bytes) -> str:
    return _ESCAPES.sub("", data.decode("utf-8", "replace"))[:LONGEST_LINE]
