"""How what a file says is put into a sentence: printable, and of bounded length whatever it is."""

from __future__ import annotations

import reprlib
from typing import Any

_LONGEST = 4000  # characters of a sentence
_ENDING = 1000  # of them at its end, where it says what to do
_MAX_BITS = 1024  # of a whole number that is written out


class _Bounded(reprlib.Repr):
    """Python's own spelling of a value, two levels deep."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 32
        self.maxstring = self.maxother = 200

    def repr_int(self, value: int, _level: int) -> str:
        bits = value.bit_length()
        return str(value) if bits <= _MAX_BITS else f"<a whole number of {bits} bits>"

    def repr_dict(self, value: dict[Any, Any], level: int) -> str:
        if not value or level <= 0:
            return "{...}" if value else "{}"
        items = [
            f"{self.repr1(key, level - 1)}: {self.repr1(item, level - 1)}"
            for key, item, _ in zip(value.keys(), value.values(), range(self.maxdict), strict=False)
        ]
        return f"{{{', '.join(items)}{', ...' if len(value) > len(items) else ''}}}"


_BOUNDED = _Bounded()


def shown(value: Any) -> str:
    """The `repr` of a value that a file gave, cut short where it is long or deep."""
    return shortened(_BOUNDED.repr(value))


def shortened(text: str) -> str:
    """The text, or its beginning and its end where it is longer than a sentence is."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - _ENDING]} … {text[-_ENDING:]}"


def sentence(text: str) -> str:
    """The text as one line that a terminal shows as it is: what isn't printable is escaped, what is endless is cut."""
    short = shortened(text)
    if short.isprintable():
        return short
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "backslashreplace").decode("ascii")
        for sign in short
    )


def is_text(name: str) -> bool:
    """Whether a name can be written out as UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
