"""Text from elsewhere, made safe for Markdown: file names, log lines and prompt ids are shown, never obeyed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# C0 and C1 controls, line and paragraph separators, marks that reorder what a reader sees, halves of surrogate pairs
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_ACTIVE = re.compile(r"([\\`*\[\]<>|~&]|!(?=\[)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_LEADING = re.compile(r"^(\s*)([#+=-]|\d+[.)](?=\s))")


def visible(text: str) -> str:
    """The text on one line, unseen characters written out (`\\x1b`, `\\u202e`)."""
    return _UNSEEN.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def plain(text: str) -> str:
    """The text as prose: nothing in it is markup. Underscores inside words are left, they are no emphasis there."""
    return _LEADING.sub(r"\1\\\2", _ACTIVE.sub(r"\\\1", visible(text)))


def code(text: str) -> str:
    """The text as a code span, fenced by more backticks than it holds. Not for table cells: a bar would end one."""
    shown = visible(text) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown[0] == "`" or shown[-1] == "`" else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table, first column left, the others right. Cells are Markdown already."""
    ruled = "|".join(["---", *["---:"] * (len(header) - 1)])
    return [f"| {' | '.join(header)} |", f"|{ruled}|", *(f"| {' | '.join(row)} |" for row in rows)]
