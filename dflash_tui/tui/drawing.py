"""What a panel's pure drawing gets and gives."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dflash_tui.tui.lines import EMPTY, Line, Role, cut, line


@dataclass(frozen=True)
class View:
    """How a panel is looked at. `cursor` is the selected item of a zoomed panel, `back` how many log lines the view
    stands above the newest, `held` the log as it was when following stopped (None = following)."""

    width: int
    height: int
    zoomed: bool = False
    focused: bool = False
    cursor: int = 0
    back: int = 0
    held: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Drawing:
    """Lines of at most the view's width and height; `title` goes into the top border, `note` into the bottom one.
    `items` is how many things the cursor can stand on, `copies` the text that copying takes (None: nothing here)."""

    lines: tuple[Line, ...]
    title: Line = EMPTY
    note: Line = EMPTY
    items: int = 0
    copies: str | None = None


def rule(width: int, *words: str) -> Line:
    """A thin line across with a word on it."""
    text = f"─ {' · '.join(word for word in words if word)} " if words else ""
    return line((text, "muted"), ("─" * max(0, width - len(text)), "faint"))


def title(number: int, name: str, *details: Line | str | None) -> Line:
    """A panel's title: the key that zooms it, its name, what it shows now."""
    head = line((f"{number}", "key"), " ", (name, "strong"))
    for detail in details:
        if detail:
            head += line((" · ", "faint"), detail if isinstance(detail, Line) else line((detail, "muted")))
    return head


def highlighted(content: Line, width: int) -> Line:
    """A line under the cursor, across the whole width."""
    role: Role = "cursor"
    gap = max(0, width - content.width)
    return line((content.plain + " " * gap, role))


def limited(drawing: Drawing, view: View) -> Drawing:
    """The drawing inside its view: panels set their lines for the width they get, and where even the narrowest form of
    a line is too wide, this keeps it from running over."""
    return replace(drawing, lines=tuple(cut(each, view.width) for each in drawing.lines[: view.height]))
