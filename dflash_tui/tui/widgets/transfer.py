"""The transfer: what moves and what stays, each hop with its own bar, then the proof; one line where room is short."""

from __future__ import annotations

from itertools import pairwise

from dflash_tui.console.state import State, TransferPane
from dflash_tui.tui import formats
from dflash_tui.tui.drawing import Drawing, View, limited, rule, title
from dflash_tui.tui.lines import Line, bar, column, cut, fitting, line, spread, tail, wrapped
from dflash_tui.tui.widgets.panel import Panel

HOP = 22
_SHORT = {"relay": "relay", "joined": "joined ssh", "direct": "direct", "same host": "one host", "": ""}
_LONG = {
    "relay": "through this machine, nothing staged in between",
    "joined": "through this machine by two ssh and one pipe, nothing staged in between",
    "direct": "from host to host",
    "same host": "on one host",
    "": "",
}


class TransferPanel(Panel):
    """Panel 3."""

    def draw(self, state: State, view: View) -> Drawing:
        """See `draw_transfer`."""
        return draw_transfer(state, view)


def draw_transfer(state: State, view: View) -> Drawing:
    """What moves, hop by hop, with bytes, speed and time to come; folded to one line when the view has one."""
    pane, width = state.transfer, view.width
    head = title(3, "Transfer", f"{_name(pane)}{_beside(state)}" if pane.job else None)
    copies = pane.path or pane.error or None
    if view.height == 1:
        return limited(Drawing((_folded(state, width),), head, copies=copies), view)
    if pane.state == "idle":
        return limited(Drawing(tuple(_idle(state, width)), head), view)
    if pane.error is not None:
        lines = [_what(pane, width), *wrapped(line(("✖ ", "bad"), pane.error), width, 2)]
        return limited(Drawing(tuple(lines), head, copies=copies), view)
    if pane.already_there:
        lines = [
            _what(pane, width),
            line(("✓ ", "ok"), "already there with the same bytes: nothing moved"),
            *_where(pane, width),
        ]
        return limited(Drawing(tuple(lines), head, copies=copies), view)
    hops = _hops(pane, width)
    if view.zoomed:
        lines = [*_about(pane, width), rule(width, "hops"), *hops, _verify(pane, width), rule(width, "destination")]
        lines += _where(pane, width) or [line(("the final name appears when size and hash agree", "muted"))]
        return limited(Drawing(tuple(lines), head, copies=copies), view)
    if view.height < 2 + len(hops):
        hops = hops[1 - view.height :]
        return limited(Drawing((_what(pane, width), *hops), head, copies=copies), view)
    lines = [_what(pane, width), *hops, _verify(pane, width)]
    if len(lines) < view.height and (stays := _stays(pane, width)):
        lines.insert(1, stays)
    return limited(Drawing(tuple(lines), head, copies=copies), view)


def _name(pane: TransferPane) -> str:
    return formats.step_name(pane.step) if pane.step is not None else pane.name


def _beside(state: State) -> str:
    """How many more there are, so that none goes on, or waits, unseen."""
    moving = sum(pane.planned for pane in state.beside)
    waiting = len(state.beside) - moving
    return "".join(
        f" · {count} more {word}{'s' if count == 1 else ''}"
        for count, word in ((moving, "run"), (waiting, "wait"))
        if count
    )


def _idle(state: State, width: int) -> list[Line]:
    newest = state.training.newest
    if newest is None:
        return [line(("nothing to move yet", "muted"))]
    what = formats.step_name(newest.step) if newest.step is not None else newest.path.rsplit("/", 1)[-1]
    return [
        line(("nothing moves", "muted")),
        fitting(
            [line(("t", "key"), f" fetches {what}"), line((formats.byte_size(newest.size), "muted"))], width, " · "
        ),
    ]


def _total(pane: TransferPane) -> int:
    return (pane.progress.total if pane.progress is not None else 0) or pane.total


def _share(pane: TransferPane, total: int) -> str:
    """How much of the checkpoint moves at all: its weights of its bytes."""
    whole = max(pane.original, total)
    if not pane.left or whole <= total:
        return formats.byte_size(total)
    one, other = formats.byte_size(total), formats.byte_size(whole)
    return f"{one.split()[0] if one.split()[-1] == other.split()[-1] else one} of {other}"


def _what(pane: TransferPane, width: int) -> Line:
    total, progress = _total(pane), pane.progress
    parts = [line((_name(pane), "strong"))]
    if pane.state == "done":
        parts.append(line(_share(pane, pane.total or total)))
        if pane.left:
            parts.append(line(("without what no evaluation reads", "muted")))
        if pane.seconds > 0 and pane.bytes > 0:
            took = line((f"{formats.took(pane.seconds)} · {formats.speed(pane.bytes / pane.seconds)}", "muted"))
            return spread(fitting(parts, width - took.width - 2, " · "), took, width)
        return fitting(parts, width, " · ")
    if progress is None and pane.state == "running":
        parts += [line(_share(pane, pane.total)), line(("looks at what has to move", "muted"))]
        return fitting(parts, width, " · ")
    route = _SHORT[progress.route if progress is not None else ""]
    if pane.left:
        parts.append(line(f"{'weights' if not pane.kept else ', '.join(pane.kept)} {_share(pane, pane.total)}"))
    else:
        moved = progress.written if progress is not None else 0
        parts.append(line(f"{formats.byte_size(moved)} of {formats.byte_size(total)}"))
    if progress is not None and progress.resumed:
        parts.append(line((f"╍ {formats.byte_size(progress.resumed)} resumed", "muted")))
    parts.append(line((route or "nothing staged in between", "muted")))
    return fitting(parts, width, " · ")


def _stays(pane: TransferPane, width: int) -> Line | None:
    """What a slim copy leaves behind, or why it leaves nothing."""
    if pane.left:
        size = formats.byte_size(sum(size for _, size in pane.left))
        return cut(line(("left      ", "muted"), f"{size}: {', '.join(what for what, _ in pane.left)}"), width)
    return cut(line(("▲ ", "warn"), (pane.why, "muted")), width) if pane.why else None


def _route(pane: TransferPane) -> tuple[str, ...]:
    """The hops as they are: this machine has no part in what goes from host to host."""
    straight = pane.progress is not None and pane.progress.route in ("direct", "same host")
    return (pane.route[0], pane.route[-1]) if straight and len(pane.route) > 2 else pane.route


def _hops(pane: TransferPane, width: int) -> list[Line]:
    """One line a hop: what was read from the source, what was written at the destination."""
    route, progress, total = _route(pane), pane.progress, _total(pane)
    done = (0, 0) if progress is None else (progress.read, progress.written)
    speeds = (0.0, 0.0) if progress is None else (progress.read_rate or progress.rate, progress.rate)
    resumed = progress.resumed if progress is not None else 0
    if pane.state == "done":
        done = (total, total)
    name = min(HOP, max(12, width // 3), max((len(f"{a} ▸ {b}") for a, b in pairwise(route)), default=12))
    lines: list[Line] = []
    for index, (one, other) in enumerate(pairwise(route)):
        side = min(index, 1) if len(route) > 2 else 1
        moved = done[side]
        running = pane.state == "running" and progress is not None and moved < total
        speed = formats.speed(speeds[side]) if running else ""
        left = formats.left(progress.eta) if running and progress is not None and index == len(route) - 2 else ""
        tail = column(speed, 10, "muted", right=True) + column(
            "✓" if moved >= total > 0 else left, 7, "ok" if not running else "", right=True
        )
        head = column(f"{one} ▸ {other}", name) + line(" ")
        lines.append(_barred(head, moved, total, resumed, tail, width))
    return lines


def _barred(head: Line, done: int, total: int, before: int, tail: Line, width: int) -> Line:
    """A bar between its name and its numbers; what is less needed gives way where room is short."""
    share = line((formats.percent(done, total), "strong"))
    room = width - head.width - share.width - tail.width - 1
    if room < 6:
        tail, room = line(), width - head.width - share.width - 1
    return cut(head + bar(done, total, max(0, room), before) + line(" ") + share + tail, width)


def _verify(pane: TransferPane, width: int) -> Line:
    progress = pane.progress
    if pane.state == "done" and pane.sha256:
        return fitting([line(("verified  ", "muted"), ("✓ ", "ok"), "sha256 equal at both ends"),
                        line((formats.short_hash(pane.sha256), "muted"))], width)  # fmt: skip
    if pane.state == "done":
        return line(("verified  ", "muted"), ("✓", "ok"))
    if progress is not None and progress.waits_for:
        return cut(line(("waits     ", "muted"), ("for ", "accent"), progress.waits_for), width)
    if progress is not None and progress.problem:
        again = line(("▲ ", "warn"), f"attempt {progress.attempt} after: {progress.problem}")
        return cut(again, width)
    phase = progress.phase if progress is not None else "planning"
    if progress is not None and phase == "verifying" and progress.to_verify > 0:
        tail = column(formats.speed(progress.rate) if progress.rate else "", 10, "muted", right=True)
        tail += column(formats.left(progress.eta), 7, "", right=True)
        head = line(("verify    ", "accent"))
        return _barred(head, progress.verified, progress.to_verify, 0, tail, width)
    waiting = phase in ("planning", "moving")
    said = "waiting · sha256 at both ends" if waiting else f"{phase} · sha256 at both ends"
    return cut(line(("verify    ", "muted"), (said, "muted" if waiting else "accent")), width)


def _about(pane: TransferPane, width: int) -> list[Line]:
    progress = pane.progress
    way = _LONG[progress.route if progress is not None else ""]
    route = line(("route  ", "muted"), " ▸ ".join(_route(pane)), (f"  {way}", "muted"))
    lines = [_what(pane, width), cut(route, width)]
    if progress is not None and progress.file:
        lines.append(line(("file   ", "muted"), tail(progress.file, width - 7)))
    of = f" of {pane.original:,}" if pane.original > _total(pane) else ""
    lines.append(line(("bytes  ", "muted"), f"{_total(pane):,}{of}"))
    if pane.kept and pane.left:
        lines += wrapped(line(("kept   ", "muted"), ", ".join(pane.kept)), width, 7)
    for what, size in pane.left:
        lines.append(cut(line(("left   ", "muted"), what, (f"  {formats.byte_size(size)}", "muted")), width))
    if pane.why:
        lines += wrapped(line(("▲ ", "warn"), pane.why), width, 2)
    if progress is not None and progress.resumed:
        again = f"╍ {progress.resumed:,} bytes lay there from an earlier attempt"
        lines.append(cut(line(("before ", "muted"), again), width))
    return lines


def _where(pane: TransferPane, width: int) -> list[Line]:
    lines: list[Line] = []
    if pane.path:
        host = pane.route[-1] if pane.route else ""
        at = line(("at     ", "muted"))
        lines.append(at + line(tail(f"{host}:{pane.path}" if host else pane.path, width - at.width)))
    if pane.sha256:
        lines.append(cut(line(("sha256 ", "muted"), pane.sha256), width))
    return lines


def _folded(state: State, width: int) -> Line:
    """Everything in one row, for small terminals."""
    pane, progress = state.transfer, state.transfer.progress
    head = line(("3", "key"), " ", ("Transfer", "strong"), " ")
    if pane.state == "idle":
        rest = _idle(state, width - head.width)
        return cut(head + (rest[1] if len(rest) > 1 else rest[0]), width)
    head += line((_name(pane), ""), (_beside(state), "muted"), " ")
    if pane.error is not None:
        return cut(head + line(("✖ ", "bad"), pane.error), width)
    if pane.state == "done":
        said = "already there" if pane.already_there else f"{_share(pane, pane.total or _total(pane))} moved"
        return fitting(
            [head + line(("✓ ", "ok"), said), line(("sha256 ", "muted"), formats.short_hash(pane.sha256))], width
        )
    if progress is not None and progress.waits_for:
        return cut(head + line(("waits for ", "accent"), progress.waits_for), width)
    proving = progress is not None and progress.phase == "verifying" and progress.to_verify > 0
    done, total, before = 0, _total(pane), 0
    if progress is not None:
        done, total = (progress.verified, progress.to_verify) if proving else (progress.written, total)
        before = 0 if proving else progress.resumed
    tail = line(" ", (formats.percent(done, total), "strong"))
    if progress is not None:
        tail += line((f"  {formats.speed(progress.rate)}  {formats.left(progress.eta)}", "muted"))
    words = "verify" if proving else " ▸ ".join(_route(pane))
    route = line((words, "accent" if proving else "muted"), " ")
    room = width - head.width - route.width - tail.width
    if room < 8:
        route, room = line(), width - head.width - tail.width
    return cut(head + route + bar(done, total, max(0, room), before) + tail, width)
