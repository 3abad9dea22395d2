"""Records printed as a JSON object or a Python dict (HF Trainer, SpecForge, JSONL files), maybe after ``step 120:``."""

from __future__ import annotations

import re

from dflash_tui.watch.parsers.keys import collect
from dflash_tui.watch.reading import Reading

_DEPTH = 6
_ITEMS = 512
_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<mark>[{}\[\](),:])|(?P<word>[^\s{}\[\](),:'"]+))"""
)
_BEFORE = re.compile(
    r"(?:^|[\s|])(?:global[_ ])?(?:step|iter|iteration)[ :=#]{1,3}(\d{1,15})(?:\s?/\s?(\d{1,15}))?\W*$", re.I
)


class _NotAMapping(Exception):
    """The text does not go on as a mapping does."""


def read(text: str) -> Reading | None:
    """The reading of the first mapping in the text, None when there is none."""
    start = text.find("{")
    if start < 0:
        return None
    try:
        items = _Reader(text, start).mapping()
    except _NotAMapping:
        return None
    before = _BEFORE.search(text[:start][-200:])
    if before is not None:
        items = [("step", f"{before[1]}/{before[2]}" if before[2] else before[1]), *items]
    return collect(items)


class _Reader:
    """A tolerant reader of literals: quotes of both kinds, nan and inf in any spelling, ``tensor(…)``. Nothing is ever
    evaluated. Nested values are flattened: a list says nothing, an inner mapping's keys get the outer key as path."""

    def __init__(self, text: str, position: int) -> None:
        self._text = text
        self._position = position

    def mapping(self, prefix: str = "", depth: int = 0) -> list[tuple[str, str]]:
        """The items from ``{`` to its ``}``. Raises _NotAMapping."""
        self._expect("{")
        items: list[tuple[str, str]] = []
        if depth > _DEPTH:
            raise _NotAMapping
        while True:
            kind, word = self._next()
            if word == "}" and kind == "mark":
                return items
            if kind == "mark" or len(items) > _ITEMS:
                raise _NotAMapping
            key = f"{prefix}/{word}" if prefix else word
            self._expect(":")
            items += self._value(key, depth)
            kind, word = self._next()
            if kind != "mark" or word not in ",}":
                raise _NotAMapping
            if word == "}":
                return items

    def _value(self, key: str, depth: int) -> list[tuple[str, str]]:
        before = self._position
        kind, word = self._next()
        if kind == "mark" and word == "{":
            self._position = before
            return self.mapping(key, depth + 1)
        if kind == "mark" and word in "[(":
            self._skip()
            return []
        if kind == "mark":
            raise _NotAMapping
        begin = self._position - len(word)
        if kind == "word" and self._text[self._position : self._position + 1] == "(":
            self._next()
            self._skip()
            return [(key, self._text[begin : self._position][:80])]
        return [(key, word)]

    def _skip(self) -> None:
        depth = 1
        while depth:
            kind, word = self._next()
            if kind == "mark":
                depth += 1 if word in "{[(" else -1 if word in "}])" else 0

    def _expect(self, mark: str) -> None:
        if self._next() != ("mark", mark):
            raise _NotAMapping

    def _next(self) -> tuple[str, str]:
        token = _TOKEN.match(self._text, self._position)
        if token is None:
            raise _NotAMapping
        self._position = token.end()
        if token["string"] is not None:
            return "string", token["string"][1:-1]
        return ("mark", token["mark"]) if token["mark"] is not None else ("word", token["word"])
