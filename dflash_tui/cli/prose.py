"""Sentences on a terminal: broken at spaces, with commands in `backticks` left whole, so that they can be copied."""

from __future__ import annotations

import re
import textwrap

_GLUE = "\x00"  # stands for a space inside a command; what is shown holds no control characters
NARROWEST = 40


def folded(text: str, width: int) -> str:
    """Each line over as many as it needs; later ones are indented two cells deeper than the first. A word that is
    longer than a line is left to the terminal."""
    return "\n".join(_folded(line, max(NARROWEST, width)) for line in text.split("\n"))


def _folded(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip(" ")) + 2)
    glued = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", _GLUE), line)
    lines = textwrap.wrap(
        glued, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, expand_tabs=False
    )
    return "\n".join(lines).replace(_GLUE, " ")
