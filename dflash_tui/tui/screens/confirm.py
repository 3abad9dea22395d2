"""The question before something is stopped or left: the host stands out, Cancel has the focus, only y says yes."""

from __future__ import annotations

from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen
from textual.widgets import Static

from dflash_tui.tui.lines import Line, line
from dflash_tui.tui.widgets.paint import painted_lines

DEAF = 0.3  # seconds in which the key that opened the question, still repeating, can't answer it


class Confirm(ModalScreen[bool]):
    """Dismisses with True only for y."""

    DEFAULT_CSS = """
    Confirm {
        align: center middle;
        background: $role-background 60%;
    }
    Confirm #dialog {
        border: round $role-focus;
        background: $role-raised;
        color: $role-foreground;
        padding: 1 3;
        width: auto;
        max-width: 76;
        height: auto;
    }
    Confirm Static {
        width: auto;
        max-width: 68;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,enter,q", "answer(False)", "Cancel"),
    ]

    def __init__(self, question: str, lines: tuple[Line, ...] = (), host: str = "", deaf: float = DEAF) -> None:
        super().__init__()
        self._question, self._lines, self._host = question, lines, host
        self._opened, self._deaf = monotonic(), deaf

    def compose(self) -> ComposeResult:
        """The question, what it means, the two answers."""
        asked = line(
            (self._question, "strong"), "  " if self._host else "", (f" {self._host} " if self._host else "", "host")
        )
        answers = line(("y", "key"), " yes     ", (" esc  Cancel ", "cursor"))
        with Container(id="dialog"):
            yield Static(painted_lines((asked, line(), *self._lines, *((line(),) if self._lines else ()), answers)))

    def action_answer(self, yes: bool) -> None:
        """Answer, unless the question has only just appeared."""
        if yes and monotonic() - self._opened < self._deaf:
            return
        self.dismiss(yes)
