"""Bytes of a growing log, cut anywhere, into records. A record ends at LF, or at CR, where a bar draws over itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

LINE_LIMIT = 64 * 1024  # bytes of one record that are kept; the rest of it is dropped as it comes

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, erase
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS, SOS, PM, APC: titles, links
    r"|\x1b[ -/]*[0-~]?"  # two-character sequences, and a lone ESC at the end
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True)
class Line:
    """A record: `text` without colour codes and control characters. `number` is the 1-based line in the file (None
    when the reading began in its middle); `offset` the byte where it begins. `cut`: longer than LINE_LIMIT. `at`: when
    it came, POSIX seconds of this machine, None when it was there before anybody looked."""

    text: str
    number: int | None
    offset: int
    cut: bool = False
    at: float | None = None

    @property
    def where(self) -> str:
        """The place in the file, in words."""
        return f"line {self.number}" if self.number is not None else f"byte {self.offset}"


def plain(text: str) -> str:
    """Text that is safe to show: no escape sequences, no control or direction-changing characters."""
    return _UNSAFE.sub("", _ANSI.sub("", text).replace("\t", "    "))


class LineSplitter:
    """Cuts bytes into records, in bounded memory. `offset` is the first byte's place in the file and `number` its line
    (None: not counted). With `partial_head` the reading began inside a line: everything up to the first line end
    belongs to a line whose beginning nobody saw, and is dropped."""

    def __init__(self, offset: int = 0, number: int | None = 1, *, partial_head: bool = False) -> None:
        self._number = number
        self._begin = offset  # of the record that is being collected
        self._next = offset  # of the next byte to come
        self._kept = bytearray()
        self._dropped = False
        self._headless = partial_head

    def feed(self, data: bytes, at: float | None = None) -> list[Line]:
        """The records that these bytes complete, in order. Blank ones are left out (their line numbers count)."""
        lines: list[Line] = []
        start = 0
        while start < len(data):
            end = _first_break(data, start)
            if end < 0:
                self._keep(data, start, len(data))
                break
            self._keep(data, start, end)
            line = self._finish(at)
            if line is not None:
                lines.append(line)
            self._headless = False
            if data[end] == 0x0A and self._number is not None:
                self._number += 1
            self._begin = self._next + end + 1
            start = end + 1
        self._next += len(data)
        return lines

    @property
    def pending(self) -> Line | None:
        """The unfinished record at the end: true for a bar that was never ended, half a line otherwise."""
        if self._headless or not self._kept or self._dropped:
            return None
        return Line(plain(bytes(self._kept).decode("utf-8", "replace")), self._number, self._begin)

    def close(self, at: float | None = None) -> Line | None:
        """The unfinished record at the end of a file that nobody writes to any more."""
        return self._finish(at)

    def _keep(self, data: bytes, start: int, end: int) -> None:
        room = LINE_LIMIT - len(self._kept)
        self._kept += data[start : min(end, start + room)]
        self._dropped = self._dropped or end - start > room

    def _finish(self, at: float | None) -> Line | None:
        raw, cut = bytes(self._kept), self._dropped
        self._kept.clear()
        self._dropped = False
        if self._headless:
            return None
        text = plain(raw.decode("utf-8", "replace"))
        return Line(text, self._number, self._begin, cut, at) if text.strip() else None


def _first_break(data: bytes, start: int) -> int:
    line_feed = data.find(b"\n", start)
    carriage_return = data.find(b"\r", start, line_feed if line_feed >= 0 else len(data))
    return carriage_return if carriage_return >= 0 else line_feed
