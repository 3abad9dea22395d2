"""The training: where it is, how it goes, what it has saved."""

from __future__ import annotations

from collections.abc import Mapping

from dflash_tui.console.state import State, TrainingPane
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.tui import formats
from dflash_tui.tui.chart import rasterise
from dflash_tui.tui.drawing import Drawing, View, limited, rule, title
from dflash_tui.tui.lines import Line, Role, bar, cut, fitting, line, spread, tail, whole_words, wrapped
from dflash_tui.tui.liveness import status
from dflash_tui.tui.log_view import log_lines
from dflash_tui.tui.widgets.panel import Panel
from dflash_tui.watch.progress import Progress, line_age, stalled

TICK = 6
SPARK = 24
LABEL_GAP = 6  # cells between the steps on the axis: marks without a step find room there
PROBLEM = 3  # rows that a sentence about the checkpoints may take


class TrainingPanel(Panel):
    """Panel 2."""

    def draw(self, state: State, view: View) -> Drawing:
        """See `draw_training`."""
        return draw_training(state, view)

    def log_of(self, state: State) -> tuple[str, ...]:
        """The training's log."""
        return state.training.log


def draw_training(state: State, view: View) -> Drawing:
    """Step, rates, loss and its curve, the newest checkpoint; zoomed also the checkpoints and the log."""
    pane, progress, width = state.training, state.training.progress, view.width
    head = title(2, "Training", pane.name)
    copies = (view.held or pane.log or ("",))[-1 - min(view.back, max(0, len(view.held or pane.log) - 1))] or None
    trouble = _trouble(state)
    if progress is None:
        said = trouble or line(("waiting for ", "muted"), (pane.host or "the training host", "strong"))
        hint = line(("its log, checkpoints and speed appear here", "muted"))
        lines = (*wrapped(said, width, 2), hint, *(_saved(state, width) if pane.listed else ()))
        return limited(Drawing(lines, head, copies=copies), view)
    loss = _loss(progress, state, width, sparkline=view.height < 8)
    top = [_step(progress, width), _rates(progress, state.now, width), loss]
    bottom = _saved(state, width)
    warnings = wrapped(trouble, width, 2)[:2] if trouble else []
    if trouble and view.height < len(top) + len(warnings) + len(bottom):
        top, warnings = [top[0], top[2]], [cut(trouble, width)]  # old rates say least
    if view.zoomed:
        bottom += _machine(pane, width, whole=True)
        return limited(_zoomed(state, view, progress, top + warnings, bottom, head, copies), view)
    room = view.height - len(top) - len(warnings) - len(bottom)
    if room >= 12 and (machine := _machine(pane, width, whole=False)):
        bottom += machine
        room -= 1
    if room >= (11 if pane.machine else 12) and pane.log:
        bottom = [*bottom, whole_words(line((pane.log[-1], "muted")), width)]
        room -= 1
    curve = _curve(pane, progress, width, room) if room >= 3 else []
    if view.height < 4:
        top = top[: max(1, view.height - len(bottom))]
    return limited(Drawing((*top, *warnings, *curve, *bottom), head, copies=copies), view)


def _zoomed(
    state: State, view: View, progress: Progress, top: list[Line], bottom: list[Line], head: Line, copies: str | None
) -> Drawing:
    pane, width = state.training, view.width
    room = view.height - len(top) - len(bottom)
    saved = [_checkpoint(item, state.now, width) for item in reversed(pane.checkpoints)][: max(0, min(6, room // 6))]
    checkpoints = [rule(width, "checkpoints", f"{len(pane.checkpoints)} found"), *saved] if saved else []
    room -= len(checkpoints)
    log_room = max(2, min(room // 2, 14)) if room >= 8 else max(0, room)
    curve = _curve(pane, progress, width, room - log_room) if room - log_room >= 4 else []
    log = log_lines("log", pane.log, view, room - len(curve))
    return Drawing((*top, *curve, *bottom, *checkpoints, *log), head, copies=copies)


def _step(progress: Progress, width: int) -> Line:
    number = line(("step ", "muted"), (formats.count(progress.step), "strong"))
    if progress.total:
        number += line((f"/{progress.total:,}", "muted"))
    if progress.epoch_scope and progress.epoch is not None:
        number += line((f" of epoch {progress.epoch:g}", "muted"))
    share = progress.fraction
    if share is None or progress.total is None or progress.step is None:
        return fitting([number, line((progress.phase, "muted"))], width)
    percent = line((formats.percent(progress.step, progress.total), "strong"))
    room = width - number.width - percent.width - 3
    if room < 6:
        return spread(number, percent, width)
    return number + line("  ") + bar(progress.step, progress.total, room) + line(" ") + percent


def _rates(progress: Progress, now: float, width: int) -> Line:
    """Speed and the time to come; of a training that stands still no time to come is known."""
    moves = progress.phase not in ("finished", "failed") and not stalled(progress, now)
    parts: list[Line | None] = []
    speed = progress.throughput
    if speed is not None:
        scope = (
            "" if speed.scope == "global" else {"per_gpu": " per GPU", "rank0": " rank 0"}.get(speed.scope, " scope?")
        )
        parts.append(line((formats.throughput(speed.value, speed.unit), "strong"), (scope, "muted")))
    if progress.eta_seconds is not None and moves:
        parts.append(line(("ETA ", "muted"), formats.left(progress.eta_seconds)))
    if progress.rate is not None:
        parts.append(line(formats.per_step(progress.rate.seconds_per_step)))
    if progress.lr is not None:
        parts.append(line(("lr ", "muted"), formats.learning_rate(progress.lr)))
    if progress.block_size is not None:
        parts.append(line(("block ", "muted"), str(progress.block_size)))
    if progress.grad_norm is not None:
        parts.append(line(("grad ", "muted"), formats.small(progress.grad_norm)))
    return fitting(parts, width)


def _loss(progress: Progress, state: State, width: int, sparkline: bool) -> Line:
    if progress.nan:
        loss = line(("✖ loss is not a number", "bad"))
        if progress.nan_since is not None:
            loss += line((f" since step {progress.nan_since:,}", "bad"))
    elif progress.finite_loss is None:
        loss = line(("no loss said yet", "muted"))
    else:
        loss = line(("loss ", "muted"), (formats.small(progress.finite_loss), "strong"), f" {_trend(progress)}")
    seconds = line_age(progress, state.now)
    old = None if seconds is None else line((f"last line {formats.age(seconds)} ago", "muted"))
    resumed = (
        line((f"went back {progress.went_back_from:,} → {progress.resumed_from:,}", "muted"))
        if progress.went_back_from is not None and progress.resumed_from is not None
        else None
    )
    shape = None
    if sparkline and len(progress.history) > 1:
        steps, values = zip(*progress.history, strict=True)
        shape = line((rasterise(values, SPARK, 1, steps).rows[0], "curve"))
    return fitting([loss, shape, old, resumed], width, "   ")


def _trend(progress: Progress) -> str:
    """Whether the last tenth of the shown losses (three at least) is lower or higher than as many before them."""
    losses = [value for _, value in progress.history if value == value]
    part = max(3, len(losses) // 10)
    if len(losses) < 2 * part:
        return ""
    before, after = losses[-2 * part : -part], losses[-part:]
    change = sum(after) / len(after) - sum(before) / len(before)
    if abs(change) <= 0.001 * abs(sum(before) / len(before)):
        return "→"
    return "↓" if change < 0 else "↑"


def _curve(pane: TrainingPane, progress: Progress, width: int, height: int) -> list[Line]:
    """The loss over steps, and below it an axis with the saved checkpoints' marks."""
    steps = [float(step) for step, _ in progress.history]
    if len(steps) < 2:
        return []
    marks = {float(item.step): f"{item.step}" for item in pane.checkpoints if item.step is not None}
    plot = width - TICK - 1
    drawn = rasterise([value for _, value in progress.history], plot, height - 1, steps, marks, TICK)
    rows = [
        line((label, "muted"), ("┤" if label.strip() else "│", "faint"), (row, "curve"))
        for label, row in zip(drawn.ticks, drawn.rows, strict=True)
    ]
    return [*rows, _axis(drawn.marks, int(drawn.first), int(drawn.last), plot)]


def _axis(marks: Mapping[int, str], first: int, last: int, plot: int) -> Line:
    """The step axis: its ends, and ◆ where a checkpoint was saved, with its step as far as there is room for that."""
    cells: list[tuple[str, Role]] = [("─", "faint")] * plot
    taken: list[tuple[int, int]] = []

    def put(start: int, text: str, role: Role, gap: int = 1) -> None:
        end = start + len(text)
        if start >= 0 and end <= plot and not any(start < b + gap and a < end + gap for a, b in taken):
            cells[start:end] = [(letter, role) for letter in text]
            taken.append((start, end))

    newest_first = sorted(marks.items(), reverse=True)
    for place, label in newest_first:
        put(place, f"◆{label}", "mark", LABEL_GAP)
    for place, _ in newest_first:
        put(place, "◆", "mark")
    put(plot - len(str(last)), str(last), "muted")
    put(0, str(first), "muted")
    return line(("step".rjust(TICK), "muted"), ("└", "faint"), *cells)


def _saved(state: State, width: int) -> list[Line]:
    pane = state.training
    newest, saving = pane.newest, pane.saving
    if pane.checkpoints_problem:
        return wrapped(line(("▲ ", "warn"), pane.checkpoints_problem), width, 2)[:PROBLEM]
    if newest is None and not pane.listed:
        return [line(("looking for checkpoints", "muted"))]
    if newest is None:
        parts = [line(("no complete checkpoint yet", "muted"))]
    else:
        name = str(newest.step) if newest.step is not None else newest.path.rsplit("/", 1)[-1]
        parts = [
            line(("saved ", "muted"), ("◆", "mark"), (name, "strong")),
            line((f"{formats.age(state.now - newest.mtime)} ago", "muted")),
        ]
        if (behind := pane.steps_behind) is not None and behind > 0:
            parts.append(line((f"{behind:,} steps behind live", "muted")))
        if behind is not None and behind < 0:
            before = pane.progress is not None and pane.progress.went_back_from is not None
            parts.append(line(("of before the log went back" if before else "ahead of the log", "muted")))
        parts.append(line((formats.byte_size(newest.size), "muted")))
    if saving is not None:
        parts.insert(1, line(("saving ", "note"), (str(saving.step), "note")))
    return [fitting(parts, width, " · ")]


def _machine(pane: TrainingPane, width: int, whole: bool) -> list[Line]:
    """GPUs, and whether the next save fits; `whole` also says why no GPU is seen."""
    machine, newest = pane.machine, pane.newest
    if machine is None:
        return []
    parts: list[Line | None] = []
    if machine.gpus is not None and (machine.gpu or whole):
        parts.append(line((machine.gpus, "" if machine.gpu else "muted")))
    if machine.free is not None:
        parts.append(line(("disk ", "muted"), formats.byte_size(machine.free), (" free", "muted")))
        if newest is not None and machine.free < newest.size:
            parts.append(line(("▲ ", "warn"), f"the next save needs {formats.byte_size(newest.size)}"))
        elif newest is not None:
            parts.append(line(("next save fits", "muted")))
    return [fitting(parts, width, " · ")] if parts else []


def _checkpoint(item: SavedCheckpoint, now: float, width: int) -> Line:
    mark = line(("◆", "mark")) if item.completeness == "complete" else line(("◇", "muted"))
    state = line((item.completeness, "muted" if item.completeness == "complete" else "warn"))
    left = mark + line(
        " ",
        (f"{item.step if item.step is not None else formats.ABSENT:>9}", "strong"),
        f"  {formats.byte_size(item.size):>8}  ",
    )
    left += line((f"{formats.age(now - item.mtime):>6} ago  ", "muted")) + state
    if item.reason:
        return cut(left + line((f": {item.reason}", "muted")), width)
    return left + line("  ", (tail(item.path, width - left.width - 2), "muted"))


def _trouble(state: State) -> Line | None:
    """The sentence that belongs to a status which is not plain live."""
    host = state.hosts.get(state.training.host)
    if host is not None and host.link == "lost":
        until = None if host.retry_at is None else host.retry_at - state.now
        again = "" if until is None else f", again in {formats.left(until)}" if until > 0 else ", trying now"
        reason = f": {host.reason}" if host.reason else ""
        return status(state) + line((f"{again} (", "muted"), ("R", "key"), (" now)", "muted"), reason)
    progress = state.training.progress
    if progress is not None and progress.waiting:
        return line(("▲ ", "warn"), progress.waiting, ("; it is looked for again and again", "muted"))
    if progress is not None and progress.error:
        return line(("✖ ", "bad"), progress.error)
    if progress is not None and (word := status(state)).plain[:1] in "◐✖":
        return word + line((f": no new step for longer than {formats.age(progress.stall_after)}", "muted"))
    return None
