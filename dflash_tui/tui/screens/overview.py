"""The four panels together, and each of them full screen: one screen, so that nothing is built twice."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Resize
from textual.screen import Screen

from dflash_tui.console.state import State
from dflash_tui.tui.actions import ACTIONS, Action
from dflash_tui.tui.arrange import FOLDED, arrange
from dflash_tui.tui.stopping import RUNNING
from dflash_tui.tui.widgets.evaluation import EvaluationPanel
from dflash_tui.tui.widgets.header import Header
from dflash_tui.tui.widgets.keybar import KeyBar
from dflash_tui.tui.widgets.panel import Panel
from dflash_tui.tui.widgets.results import ResultsPanel
from dflash_tui.tui.widgets.training import TrainingPanel
from dflash_tui.tui.widgets.transfer import TransferPanel

VIEWS = ("overview", "training", "transfer", "evaluation", "results")


class Overview(Screen[None]):
    """Lays panels out by the terminal's size and passes the state to those that are seen."""

    AUTO_FOCUS: ClassVar[str | None] = ""  # the app gives the focus after the first paint, which then comes sooner

    def __init__(self, state: State) -> None:
        super().__init__(id="main")
        self._state = state
        self.shown = "overview"
        self._focused_last = "training"
        self._laid_out = (0, 0, "")
        self._header, self._keybar = Header(), KeyBar()
        self._upper, self._side = Container(id="upper"), Container(id="side")
        self.panels: dict[str, Panel] = {
            "training": TrainingPanel("training"),
            "transfer": TransferPanel("transfer"),
            "evaluation": EvaluationPanel("evaluation"),
            "results": ResultsPanel("results"),
        }

    def compose(self) -> ComposeResult:
        """Header, panels and key bar; sized before they are mounted."""
        self._lay_out(self.app.size.width, self.app.size.height)
        yield self._header
        with Container(id="body"):
            with self._upper:
                yield self.panels["training"]
                with self._side:
                    yield self.panels["transfer"]
                    yield self.panels["evaluation"]
            yield self.panels["results"]
        yield self._keybar

    def on_resize(self, event: Resize) -> None:
        """Lay out again."""
        self._lay_out(event.size.width, event.size.height)
        self.show(self._state)

    def on_descendant_focus(self) -> None:
        """What works depends on the focused panel."""
        if isinstance(self.focused, Panel):
            self._focused_last = self.focused.id or self._focused_last
        self._keybar.show(self.available())

    def show(self, state: State) -> None:
        """Pass a newer state to what is visible."""
        self._state = state
        if not self.is_mounted:
            return
        self._header.show(state, VIEWS.index(self.shown) + 1)
        for panel in self.panels.values():
            if panel.display:
                panel.show(state)
        self._keybar.show(self.available())

    def available(self) -> tuple[Action, ...]:
        """The actions that do something here now, for the key bar."""
        panel = self.focused_panel
        has_log = panel is not None and panel.zoomed and panel.log_of(self._state) is not None
        has_copy = panel is not None and panel.drawing.copies is not None
        runs = any(pane.state in RUNNING for pane in (self._state.transfer, self._state.evaluation))
        pinned = self._state.results.current is None
        hidden = {"follow": not has_log, "copy": not has_copy, "pin": pinned, "stop": not runs}
        return tuple(action for action in ACTIONS if not hidden.get(action.id, False))

    def shown_errors(self) -> tuple[str, ...]:
        """Errors that the visible panels show."""
        errors = {"transfer": self._state.transfer.error, "evaluation": self._state.evaluation.error}
        return tuple(error for name, error in errors.items() if error and self.panels[name].display)

    @property
    def focused_panel(self) -> Panel | None:
        """The panel that has the focus, or the zoomed one."""
        if self.shown != "overview":
            return self.panels[self.shown]
        return self.focused if isinstance(self.focused, Panel) else None

    def view(self, name: str) -> None:
        """Show one panel full screen, or all together ("overview")."""
        if name != self.shown:
            left = self.shown
            self.shown = name
            for panel in self.panels.values():
                panel.zoomed = False
            self._lay_out(self.app.size.width, self.app.size.height)
            for key, panel in self.panels.items():
                panel.zoom(key == name)
            focus = name if name != "overview" else left
            self.panels[focus].focus()
        self.show(self._state)

    def _lay_out(self, width: int, height: int) -> None:
        if self._laid_out == (width, height, self.shown):
            return
        self._laid_out = (width, height, self.shown)
        rows = arrange(width, height)
        tiny, was_tiny = rows.kind == "tiny", self.has_class("-tiny")
        self.set_class(tiny, "-tiny")
        self.set_class(rows.kind == "wide", "-wide")
        zoomed = self.shown != "overview"
        self.set_class(zoomed, "-zoomed")
        given = {
            "training": rows.training,
            "transfer": rows.transfer,
            "evaluation": rows.evaluation,
            "results": rows.results,
        }
        for name, panel in self.panels.items():
            panel.display = not tiny and (not zoomed or name == self.shown)
            panel.styles.height = "1fr" if zoomed else given[name]
            panel.set_class(not zoomed and given[name] == FOLDED, "-folded")
        self._upper.display = self.shown != "results"
        self._side.display = self.shown in ("overview", "transfer", "evaluation")
        upper = rows.training if rows.kind == "wide" else rows.training + rows.transfer + rows.evaluation
        self._upper.styles.height = "1fr" if zoomed else upper
        self._side.styles.height = "1fr" if zoomed else rows.transfer + rows.evaluation
        if was_tiny and not tiny:
            self.panels[self._focused_last].focus()  # what is not displayed loses the focus
