"""The transfer: each hop with its own bar, then the hashes; one line of it where room is short."""

from __future__ import annotations

from itertools import pairwise

from dflash_tui.console.state import State, TransferPane
from dflash_tui.tui import formats
from dflash_tui.tui.drawing import Drawing, View, limited, rule, title
from dflash_tui.tui.lines import Line, bar, column, cut, fitting, line, spread, tail, wrapped
from dflash_tui.tui.widgets.panel import Panel

HOP = 22


class TransferPanel(Panel):
    """Panel 3."""

    def draw(self, state: State, view: View) -> Drawing:
        """See `draw_transfer`."""
        return draw_transfer(state, view)


def draw_transfer(state: State, view: View) -> Drawing:
    """What moves, hop by hop, with bytes, speed and time to come; folded to one line when the view has one."""
    pane, width = state.transfer, view.width
    head = title(3, "Transfer", _name(pane) if pane.job else None)
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
    return limited(Drawing((_what(pane, width), *hops, _verify(pane, width)), head, copies=copies), view)


def _name(pane: TransferPane) -> str:
    return formats.step_name(pane.step) if pane.step is not None else pane.name


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


def _what(pane: TransferPane, width: int) -> Line:
    moved, total = (pane.progress.written if pane.progress is not None else 0), _total(pane)
    parts = [line((_name(pane), "strong"))]
    if pane.state == "done":
        parts.append(line(formats.byte_size(total)))
        if pane.seconds > 0 and pane.bytes > 0:
            took = line((f"{formats.took(pane.seconds)} · {formats.speed(pane.bytes / pane.seconds)}", "muted"))
            return spread(fitting(parts, width - took.width - 2, " · "), took, width)
    else:
        parts.append(line(f"{formats.byte_size(moved)} of {formats.byte_size(total)}"))
        parts.append(line(("nothing staged in between", "muted")))
    return fitting(parts, width, " · ")


def _hops(pane: TransferPane, width: int) -> list[Line]:
    """One line a hop: what was read from the source, what was written at the destination."""
    route, progress, total = pane.route, pane.progress, _total(pane)
    done = (0, 0) if progress is None else (progress.read, progress.written)
    if pane.state == "done":
        done = (total, total)
    name = min(HOP, max(12, width // 3), max((len(f"{a} ▸ {b}") for a, b in pairwise(route)), default=12))
    lines: list[Line] = []
    for index, (one, other) in enumerate(pairwise(route)):
        moved = done[min(index, 1)] if len(route) > 2 else done[1]
        running = pane.state == "running" and progress is not None and moved < total
        speed = formats.speed(progress.rate) if running and progress is not None else ""
        left = formats.left(progress.eta) if running and progress is not None and index == len(route) - 2 else ""
        tail = column(speed, 10, "muted", right=True) + column(
            "✓" if moved >= total > 0 else left, 7, "ok" if not running else "", right=True
        )
        head = column(f"{one} ▸ {other}", name) + line(" ")
        share = line((formats.percent(moved, total), "strong"))
        room = width - head.width - share.width - tail.width - 1
        if room < 6:
            tail, room = line(), width - head.width - share.width - 1
        lines.append(cut(head + bar(moved, total, max(0, room)) + line(" ") + share + tail, width))
    return lines


def _verify(pane: TransferPane, width: int) -> Line:
    if pane.state == "done" and pane.sha256:
        return fitting([line(("verified  ", "muted"), ("✓ ", "ok"), "sha256 equal at both ends"),
                        line((formats.short_hash(pane.sha256), "muted"))], width)  # fmt: skip
    if pane.state == "done":
        return line(("verified  ", "muted"), ("✓", "ok"))
    if pane.progress is not None and pane.progress.problem:
        again = line(("▲ ", "warn"), f"attempt {pane.progress.attempt} after: {pane.progress.problem}")
        return cut(again, width)
    phase = pane.progress.phase if pane.progress is not None else "planning"
    waiting = phase in ("planning", "moving")
    said = "waiting · sha256 at both ends" if waiting else f"{phase} · sha256 at both ends"
    return cut(line(("verify    ", "muted"), (said, "muted" if waiting else "accent")), width)


def _about(pane: TransferPane, width: int) -> list[Line]:
    lines = [_what(pane, width), line(("route  ", "muted"), " ▸ ".join(pane.route))]
    if pane.progress is not None and pane.progress.file:
        lines.append(line(("file   ", "muted"), tail(pane.progress.file, width - 7)))
    lines.append(line(("bytes  ", "muted"), f"{_total(pane):,}"))
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
    pane = state.transfer
    head = line(("3", "key"), " ", ("Transfer", "strong"), " ")
    if pane.state == "idle":
        rest = _idle(state, width - head.width)
        return cut(head + (rest[1] if len(rest) > 1 else rest[0]), width)
    head += line((_name(pane), ""), " ")
    if pane.error is not None:
        return cut(head + line(("✖ ", "bad"), pane.error), width)
    if pane.state == "done":
        said = "already there" if pane.already_there else f"{formats.byte_size(_total(pane))} moved"
        return fitting(
            [head + line(("✓ ", "ok"), said), line(("sha256 ", "muted"), formats.short_hash(pane.sha256))], width
        )
    moved, total = (pane.progress.written if pane.progress is not None else 0), _total(pane)
    tail = line(" ", (formats.percent(moved, total), "strong"))
    if pane.progress is not None:
        tail += line((f"  {formats.speed(pane.progress.rate)}  {formats.left(pane.progress.eta)}", "muted"))
    route = line((" ▸ ".join(pane.route), "muted"), " ")
    room = width - head.width - route.width - tail.width
    if room < 8:
        route, room = line(), width - head.width - tail.width
    return cut(head + route + bar(moved, total, max(0, room)) + tail, width)
