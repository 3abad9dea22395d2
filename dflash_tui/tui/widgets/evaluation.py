"""The evaluation: what was asked, how far it is, what each prompt's streaks are so far."""

from __future__ import annotations

from datetime import datetime

from dflash_tui.console.state import EvaluationPane, State
from dflash_tui.tui import formats
from dflash_tui.tui.drawing import Drawing, View, limited, rule, title
from dflash_tui.tui.lines import EMPTY, Line, Role, bar, cut, fitting, line, spread, tail, wrapped
from dflash_tui.tui.log_view import log_lines
from dflash_tui.tui.prompt_table import Table, capture_table, prompt_table
from dflash_tui.tui.widgets.panel import Panel

BUSY = ("planning", "running")
CAPTURE, QUEUED = "capture", "queued"
ROOMY = 90  # cells from which the table has the zoom's columns


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
    step = None if pane.step is None else formats.step_name(pane.step)
    head = title(4, "Evaluation", pane.preset or None, pane.subject or step, _queue(state))
    if pane.state == "idle":
        return limited(Drawing(tuple(_nothing(state, width)), head), view)
    top = [_headline(state, width), *_failure(pane, width)]
    if pane.existing and not pane.blocks:
        top += wrapped(line(("nothing was started: ", "muted"), pane.run_id, (" has answered it", "muted")), width, 2)
    copies = pane.run_dir or pane.run_id or None
    if view.zoomed:
        return limited(Drawing(tuple(_zoomed(pane, view, top)), head, copies=copies), view)
    top = top[: max(1, view.height)]
    room = view.height - len(top)
    if not pane.prompts:
        return limited(Drawing((*top, *_without_prompts(pane, width, room)), head, copies=copies), view)
    table = _table(pane, width, 1 << 16)
    bottom = [_progress(pane, width)] if pane.state in BUSY and room > len(table.lines) else []
    warned = _warnings(pane, width) if pane.state in BUSY else []
    if len(table.lines) + len(bottom) + len(warned) <= room:
        bottom = [*warned, *bottom]
    table = _table(pane, width, room - len(bottom))
    return limited(Drawing((*top, *table.lines, *bottom), head, table.note, copies=copies), view)


def _without_prompts(pane: EvaluationPane, width: int, room: int) -> list[Line]:
    """The plan; of a script of the user's own, which tells no prompts, what it prints, and how far it is."""
    plan = [part for text in pane.plan for part in wrapped(line((text, "muted")), width, 2)]
    if not pane.log and pane.progress is None:
        return plan
    bottom = [_progress(pane, width)] if pane.state in BUSY and room else []
    plan = plan[: max(0, (room - len(bottom)) // 2)]
    space = room - len(bottom) - len(plan)
    last = pane.log[-space:] if space > 0 else ()
    return [*plan, *(cut(line(text), width) for text in last), *bottom]


def _table(pane: EvaluationPane, width: int, height: int, *, wide: bool = False) -> Table:
    if not pane.prompts or (not pane.blocks and (pane.error or pane.existing)):
        return Table(())  # not planned yet, failed before it began, or not started at all
    if pane.preset == CAPTURE:
        return capture_table(pane, width, height)
    return prompt_table(pane, width, height, busy=pane.state in BUSY, wide=wide or width >= ROOMY)


def _zoomed(pane: EvaluationPane, view: View, top: list[Line]) -> list[Line]:
    width = view.width
    place = f"{pane.host}:{pane.run_dir}" if pane.run_dir else pane.run_id or "not started yet"
    label = line(("run   ", "muted"))
    lines = [*top, label + line(tail(place, width - label.width))]
    if pane.plan or pane.warnings:
        lines.append(rule(width, "plan"))
        for text in pane.plan:
            lines.extend(wrapped(line(text), width, 2))
        lines.extend(_warnings(pane, width))
    table = _table(pane, width, 1 << 16, wide=True)
    if table.lines:
        present = f"{sum(p.present for p in pane.prompts)} of {len(pane.prompts)} have hidden states"
        lines += [rule(width, "prompts", present), *table.lines]
    if pane.state in BUSY:
        lines.append(_progress(pane, width))
    lines = lines[: max(0, view.height - 4)]
    return [*lines, *log_lines("log", pane.log, view, view.height - len(lines))]


def _queue(state: State) -> Line | None:
    """The jobs that wait for this one to end."""
    if not state.queue:
        return None
    return line((f"then {', '.join(waiting.preset for waiting in state.queue)}", "accent"))


def _nothing(state: State, width: int) -> list[Line]:
    newest = state.training.newest
    idle = "nothing evaluated yet" if state.results.current is None else "nothing is being evaluated"
    lines = [line((idle, "muted"))]
    if newest is not None:
        what = formats.step_name(newest.step) if newest.step is not None else newest.path.rsplit("/", 1)[-1]
        lines.append(fitting([line(("e", "key"), f" evaluates {what}: 3 prompts × 15 blocks"),
                              line(("E", "key"), " up to 10 × 30")], width, "   "))  # fmt: skip
    else:
        lines += wrapped(line(("e", "key"), " evaluates the newest checkpoint, once one is saved"), width, 2)
    return lines


def _headline(state: State, width: int) -> Line:
    pane = state.evaluation
    words: dict[str, tuple[str, Role]] = {
        "planning": ("◌ planning", "accent"),
        "running": ("● capturing" if pane.preset == CAPTURE else "● running", "accent"),
        "done": ("✓ done", "strong"),
        "failed": ("✖ failed", "bad"),
        "stopped": ("■ stopped", "warn"),
        "lost": ("○ lost", "bad"),
    }
    word = line(words.get(pane.state, (pane.state, "")))
    moved = state.transfer
    if pane.state == "planning" and moved.state == "running" and moved.job == pane.job:
        word = line(("◌ waits for the transfer", "accent"))
    if pane.state == "running" and pane.progress is not None and pane.progress.phase == QUEUED:
        word = line(("◌ queued", "accent"))
    count = _count(state)
    room = width - count.width - 2 if count.width else width
    parts = [word, *_asked(pane), line(("on ", "muted"), pane.host) if pane.host else None]
    return spread(fitting(parts, room, " · "), count, width) if count.width else fitting(parts, room, " · ")


def _asked(pane: EvaluationPane) -> list[Line]:
    asked, present = len(pane.prompts), sum(prompt.present for prompt in pane.prompts)
    if pane.existing and not pane.blocks:
        return [line(("same request as before", "note"))]
    if not asked:
        return [line(pane.label)]
    if pane.preset == CAPTURE:
        made = f"{present} of {asked} prompts captured" if pane.state == "done" else formats.plural(asked, "prompt")
        return [line(made)]
    short = line(("▲ ", "warn"), f"{present} of {asked} prompts")
    whole = line((f"{asked} of {asked} prompts", "muted"))
    return [line(f"{asked} × {pane.prompts[0].total}"), short if present < asked else whole]


def _count(state: State) -> Line:
    """How far a running job is, and when it will be done."""
    pane = state.evaluation
    if pane.state != "running" or pane.progress is None or not pane.progress.total:
        return EMPTY
    count = line((f"{pane.progress.done}/{pane.progress.total}", "muted"))
    seconds = _seconds_left(pane)
    return count if seconds is None else count + line(("  ETA ", "muted"), (formats.left(seconds), "strong"))


def _seconds_left(pane: EvaluationPane) -> float | None:
    """From the blocks drafted while this was looking on, by the evaluation host's own clock; None before the first."""
    first, last = pane.first_progress, pane.progress
    if first is None or last is None or last.done <= first.done or last.phase not in ("drafting", "script"):
        return None
    try:
        spent = (datetime.fromisoformat(last.at) - datetime.fromisoformat(first.at)).total_seconds()
    except (ValueError, TypeError):  # a host that writes other times
        return None
    return spent / (last.done - first.done) * (last.total - last.done) if spent > 0 else None


def _failure(pane: EvaluationPane, width: int) -> list[Line]:
    if not pane.error:
        return []
    return wrapped(line(("✖ ", "bad") if pane.state != "stopped" else "", pane.error), width, 2)


def _warnings(pane: EvaluationPane, width: int) -> list[Line]:
    return [part for text in pane.warnings for part in wrapped(line(("▲ ", "warn"), text), width, 2)]


def _progress(pane: EvaluationPane, width: int) -> Line:
    progress = pane.progress
    if progress is None:
        return line(("planned" if pane.state == "planning" else "starting", "muted"))
    if progress.phase == QUEUED:
        return fitting([line(("queued behind ", "muted"), progress.behind or "another run")], width)
    label = line((f"{progress.phase:<9}", "muted"))
    numbers = line(" ", (formats.percent(progress.done, progress.total), "strong"))
    return label + bar(progress.done, progress.total, max(0, width - label.width - numbers.width)) + numbers
