"""The visible part of a log: its newest lines, or where somebody stopped to read."""

from __future__ import annotations

from dflash_tui.tui.drawing import View, rule
from dflash_tui.tui.formats import plural
from dflash_tui.tui.lines import Line, cut, line


def log_lines(name: str, log: tuple[str, ...], view: View, height: int) -> list[Line]:
    """A rule that says whether the log is followed, then as many lines as fit. At most `height` lines in all."""
    if height < 2:
        return []
    shown = log if view.held is None else view.held
    room = height - 1
    back = min(view.back, max(0, len(shown) - room))
    end = len(shown) - back
    if view.held is None:
        state = "following (f holds)"
    else:
        arrived = _arrived(log, shown)
        state = f"held (f follows) · {plural(arrived, 'new line')}" if arrived else "held (f follows)"
        if back:
            state += f" · {plural(back, 'line')} below"
    visible = shown[max(0, end - room) : end]
    texts: list[Line] = [cut(line((text, "muted")), view.width) for text in visible]
    if not texts:
        texts = [line(("no line yet", "faint"))]
    return [rule(view.width, name, state), *texts]


def _arrived(log: tuple[str, ...], held: tuple[str, ...]) -> int:
    """Lines of `log` after the newest held one; the whole log when that has rotated out."""
    if not held:
        return len(log)
    for index in range(len(log) - 1, -1, -1):
        if log[index] is held[-1]:
            return len(log) - 1 - index
    return len(log)
