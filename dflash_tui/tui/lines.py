"""Lines of a fixed number of cells, made of pieces that carry a role (what a piece means, never a colour).

Everything that is shown passes through here, so this is where text from logs, file names and hosts loses its control
characters. No Textual: panels are drawn and tested as plain data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len, set_cell_size

from dflash_tui.records.finding import Severity

Role = Literal[
    "", "strong", "muted", "faint", "accent", "better", "worse", "void", "block", "warn", "note",
    "ok", "bad", "bar", "track", "curve", "mark", "key", "cursor", "host",
]  # fmt: skip

GLYPHS: dict[Severity, str] = {"void": "⊘", "block": "✖", "warn": "▲", "note": "●"}
WORDS: dict[Severity, str] = {"void": "void", "block": "n/c", "warn": "warn", "note": "note"}

_INVISIBLE = dict.fromkeys((0xFE0E, 0xFE0F, 0x034F, 0x115F, 0x1160, 0x3164, 0xFFA0))


def clean(text: str) -> str:
    """Text that can't move a cursor, ring, reorder or hide: controls become visible pictures, the rest `�`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(letter) for letter in text.translate(_INVISIBLE))


def _visible(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    if code == 9 or (letter.isspace() and code > 0x20):
        return " "
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "�"


@dataclass(frozen=True)
class Line:
    """One line; `pieces` are (text, role). Texts are clean; make lines with `line`."""

    pieces: tuple[tuple[str, Role], ...] = ()

    def __iter__(self) -> Iterator[tuple[str, Role]]:
        return iter(self.pieces)

    def __add__(self, other: Line) -> Line:
        return Line(self.pieces + other.pieces)

    @property
    def width(self) -> int:
        """Cells that it takes."""
        return sum(cell_len(text) for text, _ in self.pieces)

    @property
    def plain(self) -> str:
        """Its text alone."""
        return "".join(text for text, _ in self.pieces)


EMPTY = Line()
Part = str | tuple[str, Role] | Line


def line(*parts: Part) -> Line:
    """A line of strings, (text, role) pairs and other lines, cleaned."""
    pieces: list[tuple[str, Role]] = []
    for part in parts:
        if isinstance(part, Line):
            pieces.extend(part.pieces)
        else:
            piece: tuple[str, Role] = (part, "") if isinstance(part, str) else part
            if piece[0]:
                pieces.append((clean(piece[0]), piece[1]))
    return Line(tuple(pieces))


def cut(content: Line, width: int) -> Line:
    """At most `width` cells, with … where something is missing."""
    if content.width <= width:
        return content
    if width <= 0:
        return EMPTY
    pieces: list[tuple[str, Role]] = []
    room = width - 1
    for text, role in content:
        size = cell_len(text)
        if size > room:
            pieces.append((_first_cells(text, room) + "…", role))
            return Line(tuple(pieces))
        pieces.append((text, role))
        room -= size
    return Line(tuple(pieces))


def tail(text: str, width: int) -> str:
    """The end of a text that says most there, as paths do: at most `width` cells, … for the head that is missing."""
    text = clean(text)
    if cell_len(text) <= width:
        return text
    if width < 1:
        return ""
    kept = text[len(text) - width + 1 :]
    while cell_len(kept) > width - 1:
        kept = kept[1:]
    return f"…{kept}"


def fit(content: Line, width: int) -> Line:
    """Exactly `width` cells: cut or filled up with spaces."""
    content = cut(content, width)
    gap = width - content.width
    return content + Line(((" " * gap, ""),)) if gap > 0 else content


def column(text: str, width: int, role: Role = "", right: bool = False) -> Line:
    """A cell of a table: exactly `width` cells."""
    text = cut(line(text), width).plain
    gap = " " * (width - cell_len(text))
    return line((gap + text if right else text + gap, role))


def spread(first: Line, last: Line, width: int) -> Line:
    """`first` at the left edge and `last` at the right one; `first` gives way."""
    room = width - last.width - 1
    if room < 1:
        return fit(first if last.width > width else last, width)
    return fit(first, room + 1) + last


def fitting(parts: Iterable[Line | None], width: int, gap: str = "  ") -> Line:
    """The parts in order, most important first, as far as they fit whole: a number is left out rather than clipped."""
    result = EMPTY
    for part in parts:
        if part is None or not part.pieces:
            continue
        longer = part if not result.pieces else result + Line(((gap, ""),)) + part
        if longer.width > width:
            return result if result.pieces else cut(part, width)
        result = longer
    return result


def wrapped(content: Line, width: int, indent: int = 0) -> list[Line]:
    """The line over as many lines as it needs, broken at spaces; later ones are indented. Words that are longer than a
    line are broken, where their role changes first."""
    if width <= indent:
        return [cut(content, width)]
    lines: list[Line] = []
    pieces: list[tuple[str, Role]] = []
    room = width
    for whole in _words(content):
        size = sum(cell_len(text) for text, _ in whole)
        if room < size <= width - indent and pieces and whole[0][0].strip():
            lines.append(_trimmed(pieces))
            pieces = [(" " * indent, "")] if indent else []
            room = width - indent
        for word, role in whole:
            size = cell_len(word)
            if size > room and pieces and word.strip():
                lines.append(_trimmed(pieces))
                pieces = [(" " * indent, "")] if indent else []
                room = width - indent
            while size > room and word.strip():
                head = _first_cells(word, room)
                if not head:
                    break
                lines.append(Line((*pieces, (head, role))))
                pieces = [(" " * indent, "")] if indent else []
                word, room = word[len(head) :], width - indent
                size = cell_len(word)
            if size > room or not word:
                room = room if word.strip() else 0  # a gap that falls on the edge breaks the line there
                continue
            pieces.append((word, role))
            room -= size
    if pieces and (not lines or "".join(text for text, _ in pieces).strip()):
        lines.append(_trimmed(pieces))
    return lines or [EMPTY]


def whole_words(content: Line, width: int) -> Line:
    """As many whole words as fit, and … where some are missing: a number is never read as a shorter one."""
    return content if content.width <= width else wrapped(content, max(1, width - 2))[0] + line((" …", "faint"))


def bar(done: float, total: float, width: int, before: float = 0) -> Line:
    """A progress bar: heavy where done, light where not; half cells count. `before`: what of it was there before this
    began, in another shade and broken, so that it can be told without colours too."""
    if width <= 0:
        return EMPTY
    share = min(1.0, max(0.0, done / total)) if total > 0 else 0.0
    halves = int(share * width * 2)
    full, half = divmod(halves, 2)
    head = "━" * full + ("╸" if half else "")
    old = min(full, int(min(1.0, max(0.0, before / total)) * width) if total > 0 else 0)
    return line(("╍" * old, "muted"), (head[old:], "bar"), ("─" * (width - len(head)), "track"))


def _first_cells(text: str, room: int) -> str:
    """The longest head of `text` that takes at most `room` cells."""
    return "" if room <= 0 else set_cell_size(text, room).rstrip(" ") if cell_len(text) > room else text


def _words(content: Line) -> Iterator[list[tuple[str, Role]]]:
    """Words and the runs of spaces between them; a word of several roles has several pieces."""
    word: list[tuple[str, Role]] = []
    for text, role in content:
        start = 0
        for index in range(1, len(text) + 1):
            if index == len(text) or (text[index] == " ") != (text[index - 1] == " "):
                if word and (word[-1][0][-1] == " ") != (text[start] == " "):
                    yield word
                    word = []
                word.append((text[start:index], role))
                start = index
    if word:
        yield word


def _trimmed(pieces: list[tuple[str, Role]]) -> Line:
    kept = list(pieces)
    while kept and not kept[-1][0].strip():
        kept.pop()
    return Line(tuple(kept))
