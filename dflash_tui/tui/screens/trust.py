"""The question about a host key that is not known: what to compare it with stands beside it, only y says yes."""

from __future__ import annotations

from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from dflash_tui.hosts.base import KeyOffer
from dflash_tui.hosts.ssh_refusal import own_fingerprint
from dflash_tui.tui.lines import Line, Part, line, wrapped
from dflash_tui.tui.screens.confirm import DEAF
from dflash_tui.tui.widgets.paint import painted_lines

WIDTH = 68  # of the text
GROUP = 4  # letters of a fingerprint that are read together
LABEL = 13


class TrustKey(ModalScreen[bool]):
    """Dismisses with True only for y. The text can be selected, and the fingerprint is whole."""

    DEFAULT_CSS = """
    TrustKey {
        align: center middle;
        background: $role-background 60%;
    }
    TrustKey #dialog {
        border: round $role-focus;
        background: $role-raised;
        color: $role-foreground;
        padding: 1 3;
        width: 76;
        max-width: 100%;
        height: auto;
        max-height: 100%;
        scrollbar-size-vertical: 1;
    }
    TrustKey Static {
        width: auto;
        max-width: 68;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]

    def __init__(self, offer: KeyOffer, deaf: float = DEAF) -> None:
        super().__init__()
        self.offer = offer
        self._opened, self._deaf = monotonic(), deaf

    def compose(self) -> ComposeResult:
        """What was shown, what to compare it with, the two answers."""
        with VerticalScroll(id="dialog"):
            yield Static(painted_lines(question_lines(self.offer, min(WIDTH, self.app.size.width - 8))))

    def action_answer(self, yes: bool) -> None:
        """Answer, unless the question has only just appeared."""
        if yes and monotonic() - self._opened < self._deaf:
            return
        self.dismiss(yes)


def question_lines(offer: KeyOffer, width: int) -> list[Line]:
    """The whole question at that width."""
    way = f" on the way to {offer.name}" if offer.via else ""
    rows: list[tuple[str, Line]] = [
        ("host", line((f" {offer.asked} ", "host"), way)),
        ("address", line(offer.address)),
        ("key type", line(offer.key_type)),
        ("fingerprint", line(*grouped(offer.fingerprint))),
    ]
    lines = wrapped(line(("This host's key is not known. Is it the right host?", "strong")), width)
    lines.append(line())
    for label, value in rows:
        lines += wrapped(line((f"{label:<{LABEL}}", "muted"), value), width, LABEL)
    lines.append(line())
    lines += wrapped(line("Compare it with what this prints on ", (offer.asked, "strong"), " itself:"), width)
    lines += wrapped(line((own_fingerprint(offer.key_type), "accent")), width, 2)
    lines.append(line())
    then = line("Yes adds it to ", (offer.file, "strong"), "; no leaves the host alone in this session.")
    lines += wrapped(then, width)
    lines += [line(), line(("y", "key"), " yes, the same   ", (" n  no ", "cursor"), " ", ("esc", "key"))]
    return lines


def grouped(fingerprint: str) -> list[Part]:
    """The fingerprint in groups that are told apart by weight, so that what is selected has no gaps."""
    head, _, rest = fingerprint.partition(":")
    groups = [rest[at : at + GROUP] for at in range(0, len(rest), GROUP)]
    return [(f"{head}:", "muted"), *((text, "strong" if at % 2 == 0 else "") for at, text in enumerate(groups))]
