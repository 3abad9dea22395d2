"""The evaluation: what was asked, how far it is, what each prompt's streaks are so far."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_tui.console.state import EvaluationPane, PromptLine, State
from dflash_tui.measure.summary import score
from dflash_tui.records.result import Score
from dflash_tui.tui import formats
from dflash_tui.tui.drawing import Drawing, View, limited, rule, title
from dflash_tui.tui.lines import Line, Role, bar, column, cut, fitting, line, spread, wrapped
from dflash_tui.tui.log_view import log_lines
from dflash_tui.tui.widgets.panel import Panel

BUSY = ("planning", "running", "capturing")
NARROW = (("top1", "top-1"), ("top4", "top-4"), ("top8", "top-8"))
NAME = 20


class EvaluationPanel(Panel):
    """Panel 4."""

    def draw(self, state: State, view: View) -> Drawing:
        """See `draw_evaluation`."""
        return draw_evaluation(state, view)

    def log_of(self, state: State) -> tuple[str, ...]:
        """The evaluation's log."""
        return state.evaluation.log


def draw_evaluation(state: State, view: View) -> Drawing:
    """What is evaluated where, its progress, a row a prompt; zoomed also the plan and the log."""
    pane, width = state.evaluation, view.width
    head = title(4, "Evaluation", pane.preset or None, _step(pane))
    if pane.state == "idle":
        lines = _nothing(state, width)
        return limited(Drawing(tuple(lines), head), view)
    top = [_headline(state, width)]
    failure = _failure(pane, width) if pane.error else []
    copies = pane.run_dir or None
    if view.zoomed:
        return limited(Drawing(tuple(_zoomed(pane, view, top + failure)), head, copies=copies), view)
    room = view.height - len(top)
    if failure:
        failure = failure[: max(1, min(len(failure), room))]
        room -= len(failure)
    if not pane.prompts:
        plan = [cut(line((text, "muted")), width) for text in pane.plan[: max(0, room)]]
        return limited(Drawing((*top, *failure, *plan), head, copies=copies), view)
    rows = sum(prompt.present for prompt in pane.prompts)
    bottom = [_progress(pane, width)] if pane.state in BUSY and room > rows + 1 else []
    begun = pane.state in BUSY or bool(pane.blocks) or not failure  # a plan that failed has no rows to show
    table = _prompt_table(pane, width, room - len(bottom), wide=False) if begun else []
    return limited(Drawing((*top, *failure, *table, *bottom), head, copies=copies), view)


def _zoomed(pane: EvaluationPane, view: View, top: list[Line]) -> list[Line]:
    width = view.width
    place = line(("run   ", "muted"), pane.run_dir or pane.run_id or "not started yet")
    if pane.host:
        place += line((" on ", "muted"), (pane.host, "strong"))
    lines = [*top, cut(place, width)]
    if pane.plan:
        lines.append(rule(width, "plan"))
        for text in pane.plan:
            lines.extend(wrapped(line(text), width, 2))
    if pane.prompts:
        lines.append(
            rule(width, "prompts", f"{sum(p.present for p in pane.prompts)} of {len(pane.prompts)} have hidden states")
        )
        lines.extend(_prompt_table(pane, width, len(pane.prompts) + 3, wide=True))
    if pane.state in BUSY:
        lines.append(_progress(pane, width))
    lines = lines[: max(0, view.height - 4)]
    return [*lines, *log_lines("log", pane.log, view, view.height - len(lines))]


def _step(pane: EvaluationPane) -> str | None:
    return None if pane.step is None else formats.step_name(pane.step)


def _nothing(state: State, width: int) -> list[Line]:
    newest = state.training.newest
    lines = [line(("nothing evaluated yet", "muted"))]
    if newest is not None:
        what = formats.step_name(newest.step) if newest.step is not None else newest.path.rsplit("/", 1)[-1]
        lines.append(fitting([line(("e", "key"), f" evaluates {what}: 3 prompts × 15 blocks"),
                              line(("E", "key"), " 10 × 30")], width, "   "))  # fmt: skip
    else:
        lines.append(fitting([line(("e", "key"), " evaluates the newest checkpoint, as soon as there is one")], width))
    return lines


def _headline(state: State, width: int) -> Line:
    pane = state.evaluation
    words: dict[str, tuple[str, Role]] = {
        "planning": ("◌ planning", "accent"),
        "running": ("● running", "accent"),
        "capturing": ("● capturing", "accent"),
        "done": ("✓ done", "strong"),
        "failed": ("✖ failed", "bad"),
        "stopped": ("■ stopped", "warn"),
        "lost": ("○ lost", "bad"),
    }
    parts: list[Line | None] = [line(words.get(pane.state, (pane.state, "")))]
    asked, present = len(pane.prompts), sum(prompt.present for prompt in pane.prompts)
    if pane.existing:
        parts.append(line(("same request: the existing result", "note")))
    if asked:
        parts.append(line(f"{asked} × {pane.prompts[0].total}"))
        if present < asked:
            parts.append(line(("▲ ", "warn"), f"{present} of {asked} prompts"))
        else:
            parts.append(line((f"{asked} of {asked} prompts", "muted")))
    elif pane.label:
        parts.append(line(pane.label))
    if pane.host:
        parts.append(line(("on ", "muted"), pane.host))
    left = fitting(parts, width, " · ")
    progress, eta = pane.progress, _eta(state)
    if pane.state not in BUSY or progress is None or not progress.total:
        return left
    count = line((f"{progress.done}/{progress.total}", "muted"))
    return spread(left, count + line(("  ETA ", "muted"), (eta, "strong")) if eta else count, width)


def _eta(state: State) -> str:
    """From the blocks drafted since the start; nothing until one is done."""
    pane = state.evaluation
    progress = pane.progress
    if pane.state != "running" or progress is None or pane.started_at is None or progress.phase != "drafting":
        return ""
    spent = state.now - pane.started_at
    if progress.done <= 0 or progress.total <= 0 or spent <= 0:
        return ""
    return formats.left(spent / progress.done * (progress.total - progress.done))


def _failure(pane: EvaluationPane, width: int) -> list[Line]:
    role: Role = "" if pane.state == "stopped" else "bad"
    return wrapped(line(("✖ ", role) if role else "", pane.error or ""), width, 2)


def _progress(pane: EvaluationPane, width: int) -> Line:
    progress = pane.progress
    if progress is None:
        return line(("planning" if pane.state == "planning" else "starting", "muted"))
    label = line((f"{progress.phase:<9}", "muted"))
    numbers = line(" ", (formats.percent(progress.done, progress.total), "strong"))
    return label + bar(progress.done, progress.total, max(0, width - label.width - numbers.width)) + numbers


def _prompt_table(pane: EvaluationPane, width: int, height: int, wide: bool) -> list[Line]:
    """A head, a row for each prompt with hidden states, the pooled row, and the absent ones in one line."""
    shown = [prompt for prompt in pane.prompts if prompt.present or prompt.score is not None]
    absent = [prompt for prompt in pane.prompts if prompt not in shown]
    name = max(
        6, min(NAME if width < 90 else 32, max((len(prompt.id) for prompt in pane.prompts), default=6), width - 36)
    )
    rows = [_row(prompt, pane, name, width, wide) for prompt in shown]
    pooled = [_pooled(pane, name, wide, width)] if pane.blocks and len(shown) > 1 else []
    missing = _absent(absent, width) if absent else []
    head = [_head(name, wide, width)]
    spare = height - len(head) - len(rows) - len(pooled)
    missing = missing[: max(1, spare)] if len(missing) <= max(1, spare) else [cut(_without(absent), width)]
    for part in (head, pooled, missing):
        if len(head) + len(rows) + len(pooled) + len(missing) > height:
            part.clear()
    over = len(rows) + len(head) + len(pooled) + len(missing) - height
    if over > 0:
        rows = _around_current(rows, shown, pane, len(rows) - over)
    return [*head, *rows, *pooled, *missing]


def _around_current(rows: list[Line], shown: Sequence[PromptLine], pane: EvaluationPane, room: int) -> list[Line]:
    """As many rows as fit, the one being drafted among them."""
    if room <= 0:
        return []
    running = pane.progress.prompt if pane.progress is not None else ""
    place = next((i for i, prompt in enumerate(shown) if prompt.id == running), 0)
    start = min(max(0, place - room + 1), len(rows) - room)
    return rows[start : start + room]


def _columns(wide: bool, width: int) -> tuple[tuple[str, str], ...]:
    if not wide:
        return NARROW
    more = (("tau", "τ"), ("64", "b=64"), ("full", "full blocks"))
    return (*NARROW, *more) if width >= 90 else (*NARROW, *more[:2])


def _head(name: int, wide: bool, width: int) -> Line:
    cells = line((f"{'prompt':<{name}} {'blocks':>7}", "muted"))
    for key, label in _columns(wide, width):
        cells += column(label, _cell(key), "muted", right=True)
    return cut(cells, width)


def _cell(key: str) -> int:
    return 13 if key == "full" else 8


def _values(value: Score | None, wide: bool, width: int, role: Role) -> Line:
    cells = line()
    for key, _ in _columns(wide, width):
        cells += column(_value(value, key, wide), _cell(key), role, right=True)
    return cells


def _value(value: Score | None, key: str, wide: bool) -> str:
    if value is None:
        return formats.ABSENT
    if key == "full":
        return formats.ABSENT if value.full_block_rate is None else formats.percent(value.full_block_rate, 1).strip()
    number = value.tau if key == "tau" else value.ddtree.get(key) if key == "64" else value.streak.get(key)
    if number is None:
        return formats.ABSENT
    return f"{number:.3f}" if wide else f"{number:.2f}"


def _row(prompt: PromptLine, pane: EvaluationPane, name: int, width: int, wide: bool) -> Line:
    running = pane.state == "running" and pane.progress is not None and pane.progress.prompt == prompt.id
    done = f"{prompt.done}/{prompt.total}"
    cells = column(prompt.id, name, "strong" if running else "") + line(" ")
    cells += column(done, 7, "" if prompt.done else "muted", right=True)
    cells += _values(prompt.score, wide, width, "" if prompt.score is not None else "faint")
    room = width - cells.width - 2
    if running and room >= 4 and prompt.done < prompt.total:
        cells += line("  ") + bar(prompt.done, prompt.total, min(room, 20))
    return cut(cells, width)


def _pooled(pane: EvaluationPane, name: int, wide: bool, width: int) -> Line:
    total = sum(prompt.total for prompt in pane.prompts if prompt.present)
    cells = column("pooled", name, "muted") + line(" ") + column(f"{len(pane.blocks)}/{total}", 7, "muted", right=True)
    return cut(cells + _values(score(pane.blocks), wide, width, "strong"), width)


def _without(absent: Sequence[PromptLine]) -> Line:
    return line(
        ("▲ ", "warn"), f"{formats.plural(len(absent), 'prompt')} without hidden states (", ("c", "key"), " makes them)"
    )


def _absent(absent: Sequence[PromptLine], width: int) -> list[Line]:
    """How many are missing, and which where there is room."""
    return wrapped(_without(absent) + line((": " + ", ".join(prompt.id for prompt in absent), "muted")), width, 2)
