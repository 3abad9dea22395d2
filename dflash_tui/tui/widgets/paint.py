"""Roles become styles here, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from textual.content import Content, Span

from dflash_tui.tui.lines import Line, Role

STYLES: Mapping[Role, str] = {
    "strong": "bold",
    "muted": "$role-muted",
    "faint": "$role-faint",
    "accent": "bold $role-accent",
    "better": "bold $role-better",
    "worse": "bold $role-worse",
    "void": "reverse $role-void",
    "block": "bold reverse $role-block",
    "warn": "bold $role-warn",
    "note": "$role-note",
    "ok": "bold $role-better",
    "bad": "bold $role-bad",
    "bar": "$role-bar",
    "track": "$role-track",
    "curve": "$role-curve",
    "mark": "bold $role-mark",
    "key": "bold $role-accent",
    "cursor": "bold reverse",
    "host": "bold reverse",
}


def painted(content: Line) -> Content:
    """One line as Textual content."""
    return painted_lines((content,))


def painted_lines(lines: Iterable[Line]) -> Content:
    """Lines as one Textual content; texts are data, never markup."""
    texts: list[str] = []
    spans: list[Span] = []
    place = 0
    for number, content in enumerate(lines):
        if number:
            texts.append("\n")
            place += 1
        for text, role in content:
            end = place + len(text)
            if role:
                spans.append(Span(place, end, STYLES[role]))
            texts.append(text)
            place = end
    return Content("".join(texts), spans)
