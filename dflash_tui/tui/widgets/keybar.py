"""The bottom line: the keys that work here, from the registry, as many as fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.events import Click
from textual.widget import Widget

from dflash_tui.tui.actions import Action, shown_key
from dflash_tui.tui.lines import EMPTY, Line, line
from dflash_tui.tui.widgets.paint import painted

if TYPE_CHECKING:
    from textual.app import RenderResult


class KeyBar(Widget):
    """One row. A click on an entry does what its key does."""

    def __init__(self) -> None:
        super().__init__(id="keybar")
        self._actions: tuple[Action, ...] = ()
        self._places: list[tuple[int, int, Action]] = []

    def show(self, actions: tuple[Action, ...]) -> None:
        """The actions that work now."""
        if actions != self._actions:
            self._actions = actions
            self.refresh()

    async def on_click(self, event: Click) -> None:
        """Do what was clicked."""
        for start, end, action in self._places:
            if start <= event.x < end:
                await self.app.run_action(f"app.do('{action.id}')")

    def render(self) -> RenderResult:
        """The entries that fit, in the registry's order."""
        drawn, self._places = draw_keys(self._actions, self.size.width)
        return painted(drawn)


def draw_keys(actions: tuple[Action, ...], width: int) -> tuple[Line, list[tuple[int, int, Action]]]:
    """The line, and where each entry stands. When room is short the entries of highest rank number go first, but help
    and quit stay."""
    ranked = sorted((action for action in actions if action.footer is not None), key=lambda action: action.footer or 0)
    kept = list(ranked)
    while kept and sum(_entry(action).width + 2 for action in kept) > width - 1:
        last = next((action for action in reversed(kept) if action.id not in ("help", "quit")), kept[-1])
        kept.remove(last)
    drawn, places = line(" ") if kept else EMPTY, []
    for action in kept:
        start = drawn.width
        drawn += _entry(action) + line("  ")
        places.append((start, drawn.width - 2, action))
    return drawn, places


def _entry(action: Action) -> Line:
    return line((shown_key(action.keys[0]), "key"), " ", (action.label, "muted"))
