"""The top line: what is watched, whether it lives, how old that is, what to believe, which panel is zoomed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from textual.widget import Widget

from dflash_tui.console.state import State
from dflash_tui.records.finding import SEVERITIES
from dflash_tui.tui.arrange import MINIMUM, arrange
from dflash_tui.tui.lines import EMPTY, GLYPHS, Line, column, cut, fit, fitting, line, wrapped
from dflash_tui.tui.liveness import data_age, status, trip
from dflash_tui.tui.widgets.paint import painted, painted_lines

if TYPE_CHECKING:
    from textual.app import RenderResult


class Header(Widget):
    """One row, or the whole of a terminal that is too small; repaints when its text changed, once a second at least
    while ages grow."""

    def __init__(self) -> None:
        super().__init__(id="header")
        self._state, self._view, self._line = State(), 1, EMPTY

    def show(self, state: State, view: int) -> None:
        """Take a newer state and the number of the zoomed panel (1 = together)."""
        self._state, self._view = state, view

        if draw_header(state, view, self.size.width) != self._line:
            self.refresh()

    def render(self) -> RenderResult:
        """The line."""
        width, height = self.app.size
        if arrange(width, height).kind == "tiny":
            return painted_lines(wrapped(too_small(width, height), max(1, width))[:height])
        self._line = draw_header(self._state, self._view, self.size.width)
        return painted(self._line)


def too_small(width: int, height: int) -> Line:
    """What is said instead of panels that would have no room."""
    return line(f"terminal is {width}x{height}; need {MINIMUM[0]}x{MINIMUM[1]} · q quit · headless: dflash-tui status")


def draw_header(state: State, view: int, width: int) -> Line:
    """Name ▸ target at the left, the status, its age; at the right the caveats and the views."""
    views = EMPTY
    for number in range(1, 6):
        views += line((f"[{number}]", "accent")) if number == view else line((f" {number} ", "muted"))
    counts = _counts(state)
    right = line(counts, "   " if counts.pieces else "", views, " ")
    name = state.training.name or "no training"
    target = _target(state)
    who = line((name, "strong"), (" ▸ ", "faint") if target else "", (target, "strong"))
    alive = [status(state), trip(state), data_age(state)]
    brand = line(" ", ("dflash-tui", "accent"), "  ")
    room = width - right.width
    for head in (brand + who, line(" ") + who, line(" ", (name, "strong"))):
        rest = room - head.width - 3
        if rest >= min(40, sum(part.width + 3 for part in alive if part is not None)):
            break
    else:
        return cut(
            fit(fitting([line(" ", status(state)), trip(state), data_age(state)], room, " · "), room) + right, width
        )
    names = fit(head, max(head.width, min(44, room - 44))) if width >= 100 else head
    said = fitting(alive, room - names.width - 3, " · ")
    return cut(fit(names + line("   ") + said, room) + right, width)


def _counts(state: State) -> Line:
    counted = Counter(finding.severity for finding in state.results.caveats)
    parts = [line((f"{GLYPHS[level]} {counted[level]}", level)) for level in SEVERITIES if counted[level]]
    return fitting(parts, 40, " ")


def _target(state: State) -> str:
    """The evaluation's target by name, as the shown result recorded it."""
    for result in (state.results.current, state.results.previous):
        for fact in result.facts if result is not None else ():
            if fact.kind == "target.identity" and isinstance(fact.value, dict):
                return column(str(fact.value.get("name", "")), 24).plain.strip()
    return ""
