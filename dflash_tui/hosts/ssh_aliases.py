"""The hosts that a person has named in ~/.ssh/config: what can be offered. What an alias means, ssh's own rules say."""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

_DEEPEST = 16  # files that include each other, as in ssh


def ssh_aliases(config: Path | None = None) -> tuple[str, ...]:
    """The names of `Host` lines in their order, those of included files too, without patterns. A file that can't be
    read names none. `config`: instead of the user's own file."""
    path = config or Path("~/.ssh/config").expanduser()
    return tuple(dict.fromkeys(_names(path, path.parent, 0)))


def _names(path: Path, folder: Path, depth: int) -> Iterator[str]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        keyword, values = _words(line)
        if keyword == "host":
            yield from (name for name in values if not name.startswith("-") and not set(name) & set("*?!,"))
        elif keyword == "include" and depth < _DEEPEST:
            for value in values:
                for found in sorted(glob.glob(os.path.join(folder, os.path.expanduser(value)))):
                    yield from _names(Path(found), folder, depth + 1)


def _words(line: str) -> tuple[str, list[str]]:
    """A line's keyword in lower case and its values; ssh allows `Host=a`, too."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return "", []
    if not words:
        return "", []
    keyword, equals, value = words[0].partition("=")
    values = [value, *words[1:]] if equals else words[1:]
    if not equals and values and values[0].startswith("="):
        values[0] = values[0][1:]
    return keyword.lower(), [value for value in values if value]
