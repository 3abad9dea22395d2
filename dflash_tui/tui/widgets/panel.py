"""The one kind of widget that panels are: it keeps a pure drawing of the state and repaints only when that changed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from dflash_tui.console.state import State
from dflash_tui.tui.drawing import Drawing, View
from dflash_tui.tui.lines import EMPTY
from dflash_tui.tui.widgets.paint import painted, painted_lines

if TYPE_CHECKING:
    from textual.app import RenderResult


class Panel(Widget, can_focus=True):
    """A bordered panel. Subclasses say what it shows (`draw`) and, where there is one, which log it follows."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.zoomed = False
        self._state = State()
        self._drawing = Drawing(())
        self._view = View(0, 0)

    def draw(self, state: State, view: View) -> Drawing:
        """The panel's content at that size: pure, so that it can be tested without a terminal."""
        raise NotImplementedError

    def log_of(self, state: State) -> tuple[str, ...] | None:
        """The log that this panel follows when zoomed, None when it has none."""
        return None

    @property
    def drawing(self) -> Drawing:
        """What is shown now."""
        return self._drawing

    @property
    def view(self) -> View:
        """How it is looked at now."""
        return self._view

    def show(self, state: State) -> None:
        """Take a newer state; nothing is repainted unless something visible changed."""
        self._state = state
        self._redraw()

    def zoom(self, zoomed: bool) -> None:
        """Full screen or not; leaving puts cursor and log back to where they start."""
        self.zoomed = zoomed
        self._view = View(0, 0)
        self._redraw()

    def move(self, by: int) -> None:
        """Move the cursor, or read upwards in the log; ±1 is a line, larger a page, beyond the ends stops there."""
        log = self.log_of(self._state)
        if self._drawing.items:
            last = self._drawing.items - 1
            self._view = replace(self._view, cursor=min(last, max(0, self._view.cursor + by)))
        elif log is not None and self.zoomed:
            held = log if self._view.held is None else self._view.held
            back = min(max(0, len(held) - 1), max(0, self._view.back - by))
            self._view = replace(self._view, back=back, held=held)
        self._redraw()

    def follow(self) -> bool | None:
        """Hold the log or follow it again; returns whether it is followed now, None when there is no log here."""
        log = self.log_of(self._state)
        if log is None or not self.zoomed:
            return None
        held = log if self._view.held is None else None
        self._view = replace(self._view, held=held, back=0)
        self._redraw()
        return held is None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Draw for the size that the layout has just given, so that the first paint already shows it."""
        self._draw()
        return super().render_lines(crop)

    def on_mouse_scroll_up(self) -> None:
        """Three lines up."""
        self.move(-3)

    def on_mouse_scroll_down(self) -> None:
        """Three lines down."""
        self.move(3)

    def on_focus(self) -> None:
        """A zoomed panel shows its cursor only while it has the focus."""
        self._redraw()

    def on_blur(self) -> None:
        """See on_focus."""
        self._redraw()

    def _redraw(self) -> None:
        if self.is_mounted and self.display and self._draw():
            self.refresh()

    def _draw(self) -> bool:
        """Bring the drawing up to date; returns whether it changed."""
        size = self.content_size
        if size.width < 1 or size.height < 1:
            return False
        self._view = replace(
            self._view, width=size.width, height=size.height, zoomed=self.zoomed, focused=self.has_focus
        )
        drawing = self.draw(self._state, self._view)
        if drawing.items and self._view.cursor >= drawing.items:
            self._view = replace(self._view, cursor=drawing.items - 1)
            drawing = self.draw(self._state, self._view)
        if drawing == self._drawing:
            return False
        if drawing.title != self._drawing.title:
            self._border_title = painted(drawing.title)
        if drawing.note != self._drawing.note:
            self._border_subtitle = painted(drawing.note) if drawing.note != EMPTY else None
        self._drawing = drawing
        return True

    def render(self) -> RenderResult:
        """The drawing as Textual content."""
        return painted_lines(self._drawing.lines) if self._drawing.lines else Content("")
