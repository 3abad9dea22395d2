"""A row for each prompt of an evaluation, as far as the room reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dflash_tui.console.state import EvaluationPane, PromptLine
from dflash_tui.measure.summary import score
from dflash_tui.records.result import Score
from dflash_tui.tui import formats
from dflash_tui.tui.lines import EMPTY, Line, Role, bar, column, cut, line, wrapped

NARROW = (("top1", "top-1"), ("top4", "top-4"), ("top8", "top-8"))
WIDE = (*NARROW, ("tau", "τ"), ("64", "b=64"))
NAME, LONG_NAME = 20, 32
BLOCKS = 7


@dataclass(frozen=True)
class Table:
    """`lines` fit the height; `note` says what had no room in them: the columns' names, how many prompts are hidden."""

    lines: tuple[Line, ...]
    note: Line = EMPTY


def prompt_table(pane: EvaluationPane, width: int, height: int, *, busy: bool, wide: bool) -> Table:
    """A head, a row for each prompt with hidden states, the pooled row, and the prompts without any.

    Where rows are short, the names of what is absent go first, then the head (the note names the columns then), then
    the pooled row of an evaluation that has ended, else prompts.
    """
    if height < 1:
        return Table(())
    columns = _columns(wide, width)
    shown = [prompt for prompt in pane.prompts if prompt.present or prompt.score is not None]
    absent = [prompt for prompt in pane.prompts if prompt not in shown]
    longest = max((len(prompt.id) for prompt in pane.prompts), default=0)
    name = max(6, min(LONG_NAME if wide else NAME, longest, width - BLOCKS - 2 - sum(map(_cell, columns))))
    head = [_head(name, columns, width)]
    rows = [_row(prompt, pane, name, columns, width) for prompt in shown]
    pooled = [_pooled(pane, name, columns, width)] if pane.blocks and len(shown) > 1 else []
    missing = _missing(absent, pane.captures, width, height - len(head) - len(rows) - len(pooled))

    def over() -> int:
        return len(head) + len(rows) + len(pooled) + len(missing) - height

    for part in (missing, head) if busy else (missing, head, pooled):
        if over() > 0:
            part.clear()
    hidden = max(0, over())
    rows = _around_current(rows, shown, pane, len(rows) - hidden) if hidden else rows
    names = "" if head or not rows + pooled else "blocks · " + " · ".join(label for _, label in columns)
    others = f"+{formats.plural(hidden, 'prompt')} (4)" if hidden else ""
    note = line((" · ".join(part for part in (names, others) if part), "muted"))
    return Table((*head, *rows, *pooled, *missing), note)


def capture_table(pane: EvaluationPane, width: int, height: int) -> Table:
    """Prompts whose hidden states are made: which are done, which one is worked on, which wait."""
    rows = [cut(_captured(index, prompt, pane), width) for index, prompt in enumerate(pane.prompts)]
    hidden = len(rows) - height
    if hidden <= 0:
        return Table(tuple(rows))
    kept = _around_current(rows, pane.prompts, pane, height)
    return Table(tuple(kept), line((f"+{formats.plural(hidden, 'prompt')} (4)", "muted")))


def _captured(index: int, prompt: PromptLine, pane: EvaluationPane) -> Line:
    name = column(prompt.id, LONG_NAME) + line(" ")
    if prompt.present:
        return name + line(("✓ ", "ok"), "captured")
    progress = pane.progress
    if pane.state not in ("planning", "running"):
        return name + line(("not captured", "muted"))
    names = [each.id for each in pane.prompts]
    place = names.index(progress.prompt) if progress is not None and progress.prompt in names else -1
    if progress is None or index > place:
        return name + line(("waiting", "muted"))
    if index < place:
        return name + line("worked on")
    return name + line(("● ", "accent"), f"{progress.prompt_done}", (" tokens", "muted"))


def _missing(absent: Sequence[PromptLine], captures: bool, width: int, spare: int) -> list[Line]:
    """How many prompts are missing, which where there is room, and the key that helps where one does."""
    if not absent:
        return []
    said = line(("▲ ", "warn"), f"{formats.plural(len(absent), 'prompt')} without hidden states")
    said += line(" (", ("c", "key"), " makes them)") if captures else line()
    named = wrapped(said + line((": " + ", ".join(prompt.id for prompt in absent), "muted")), width, 2)
    return named if len(named) <= spare else [cut(said, width)]


def _around_current(rows: list[Line], shown: Sequence[PromptLine], pane: EvaluationPane, room: int) -> list[Line]:
    """As many rows as fit, the one being worked on among them."""
    if room <= 0:
        return []
    running = pane.progress.prompt if pane.progress is not None else ""
    place = next((i for i, prompt in enumerate(shown) if prompt.id == running), 0)
    start = min(max(0, place - room + 1), len(rows) - room)
    return rows[start : start + room]


def _columns(wide: bool, width: int) -> tuple[tuple[str, str], ...]:
    if not wide:
        return NARROW
    return (*WIDE, ("full", "full blocks")) if width >= 90 else WIDE


def _cell(key: tuple[str, str]) -> int:
    return max(8, len(key[1]) + 2)


def _head(name: int, columns: Sequence[tuple[str, str]], width: int) -> Line:
    cells = line((f"{'prompt':<{name}} {'blocks':>{BLOCKS}}", "muted"))
    for each in columns:
        cells += column(each[1], _cell(each), "muted", right=True)
    return cut(cells, width)


def _values(value: Score | None, columns: Sequence[tuple[str, str]], role: Role) -> Line:
    cells = line()
    for each in columns:
        cells += column(_value(value, each[0], 3 if len(columns) > len(NARROW) else 2), _cell(each), role, right=True)
    return cells


def _value(value: Score | None, key: str, decimals: int) -> str:
    if value is None:
        return formats.ABSENT
    if key == "full":
        return formats.ABSENT if value.full_block_rate is None else formats.percent(value.full_block_rate, 1).strip()
    number = value.tau if key == "tau" else value.ddtree.get(key) if key == "64" else value.streak.get(key)
    return formats.ABSENT if number is None else f"{number:.{decimals}f}"


def _row(prompt: PromptLine, pane: EvaluationPane, name: int, columns: Sequence[tuple[str, str]], width: int) -> Line:
    running = pane.state == "running" and pane.progress is not None and pane.progress.prompt == prompt.id
    done = f"{prompt.done}/{prompt.total}"
    cells = column(prompt.id, name, "strong" if running else "") + line(" ")
    cells += column(done, BLOCKS, "" if prompt.done else "muted", right=True)
    cells += _values(prompt.score, columns, "" if prompt.score is not None else "faint")
    room = width - cells.width - 2
    if running and room >= 4 and prompt.done < prompt.total:
        cells += line("  ") + bar(prompt.done, prompt.total, min(room, 20))
    return cut(cells, width)


def _pooled(pane: EvaluationPane, name: int, columns: Sequence[tuple[str, str]], width: int) -> Line:
    total = sum(prompt.total for prompt in pane.prompts if prompt.present)
    cells = column("pooled", name, "muted") + line(" ")
    cells += column(f"{len(pane.blocks)}/{total}", BLOCKS, "muted", right=True)
    return cut(cells + _values(score(pane.blocks), columns, "strong"), width)
