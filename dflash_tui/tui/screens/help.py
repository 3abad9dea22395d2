"""The keys, from the registry, the words that the screen uses, and what it said lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from dflash_tui.console.events import Level, Noticed
from dflash_tui.records.finding import SEVERITIES
from dflash_tui.tui.actions import ACTIONS, GROUPS, shown_key
from dflash_tui.tui.drawing import rule
from dflash_tui.tui.lines import GLYPHS, WORDS, Line, Role, line, wrapped
from dflash_tui.tui.widgets.paint import painted_lines

KEYS = 12
WIDTH = 96
FRAME = 5  # border, padding, scrollbar
WORDS_USED = (
    ("block", "one anchor token and the B−1 slots that the drafter fills at once"),
    ("streak", "how many leading drafts of a block are the reference's token; no bonus token is counted"),
    ("top-k streak", "the same, a slot counting when the reference is among the drafter's k best. "
     "DDTree top-4 and top-8 are such per-position oracles; a real tree of b nodes stands beside them as DDTree b=64"),
    ("τ", "tokens a verification yields: the top-1 streak and the one token that the target adds"),
    ("Δ", "current − previous; withheld as n/c when the two can't be compared; ≈ when it is inside the noise"),
    ("3 of 10", "prompts that have hidden states, of those asked for"),
)  # fmt: skip
SAID = 8  # notices that stay readable after their toast
MEANING = {
    "void": "the value itself can't be believed",
    "block": "both values are true, their difference means nothing",
    "warn": "comparable with care",
    "note": "worth knowing",
}
_MARKS: Mapping[Level, tuple[str, Role]] = {"info": ("● ", "note"), "warn": ("▲ ", "warn"), "error": ("✖ ", "bad")}


class Help(ModalScreen[None]):
    """Scrolls; esc, ? and q close it."""

    DEFAULT_CSS = """
    Help {
        align: center middle;
        background: $role-background 60%;
    }
    Help #dialog {
        border: round $role-focus;
        background: $role-raised;
        color: $role-foreground;
        padding: 0 1;
        width: 96; /* WIDTH */
        max-width: 96%;
        height: auto;
        max-height: 96%;
        scrollbar-color: $role-border;
        scrollbar-color-hover: $role-focus;
        scrollbar-color-active: $role-focus;
        scrollbar-background: $role-raised;
        scrollbar-background-hover: $role-raised;
        scrollbar-background-active: $role-raised;
        scrollbar-size-vertical: 1;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q", "dismiss", "Close")]

    def __init__(self, notices: Sequence[Noticed] = ()) -> None:
        super().__init__()
        self._notices = notices

    def compose(self) -> ComposeResult:
        """One scrolling text."""
        width = max(40, min(WIDTH, self.app.size.width * 96 // 100) - FRAME)
        with VerticalScroll(id="dialog"):
            yield Static(painted_lines(help_lines(width, self._notices)))

    async def action_dismiss(self, result: None = None) -> None:
        """Close."""
        self.dismiss(None)


def help_lines(width: int, notices: Sequence[Noticed] = ()) -> list[Line]:
    """The whole help at that width, and at its end what was said lately, newest first."""
    lines: list[Line] = []
    for group in GROUPS:
        lines.append(rule(width, group))
        for action in (action for action in ACTIONS if action.group == group):
            keys = " ".join(shown_key(key) for key in action.keys) or "palette"
            lines += wrapped(line((f"{keys:<{KEYS}}", "key"), action.description), width, KEYS)
        lines.append(line())
    lines.append(rule(width, "Marks"))
    for level in SEVERITIES:
        mark = line((f"{GLYPHS[level]} {WORDS[level]}", level), " " * (KEYS - 2 - len(WORDS[level])))
        lines += wrapped(mark + line(MEANING[level]), width, KEYS)
    lines += [line(), rule(width, "Words")]
    for word, meaning in WORDS_USED:
        lines += wrapped(line((f"{word:<{KEYS}} ", "strong"), meaning), width, KEYS + 1)
    if notices:
        lines += [line(), rule(width, "Said lately")]
    for notice in reversed(notices[-SAID:]):
        lines += wrapped(line(_MARKS[notice.level], notice.sentence), width, 2)
    return lines
