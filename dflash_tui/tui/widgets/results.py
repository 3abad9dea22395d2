"""The results: the newest beside its baseline, whether the difference means something, and every caveat."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_tui.console.state import ResultsPane, State
from dflash_tui.tui import formats
from dflash_tui.tui.drawing import Drawing, View, limited, rule, title
from dflash_tui.tui.lines import GLYPHS, Line, Role, column, cut, fitting, line, wrapped
from dflash_tui.tui.result_rows import (
    MetricRow,
    caveat_line,
    footnote,
    measured,
    metric_rows,
    ranked,
    strongest,
    verdict_line,
    verdict_lines,
    what,
)
from dflash_tui.tui.widgets.panel import Panel

LABEL, VALUE, INTERVAL, PREVIOUS, DELTA, COUNT = 14, 8, 16, 10, 10, 9


class ResultsPanel(Panel):
    """Panel 5."""

    def draw(self, state: State, view: View) -> Drawing:
        """See `draw_results`."""
        return draw_results(state, view)


def draw_results(state: State, view: View) -> Drawing:
    """The table, the verdict beside or below it, the caveats; zoomed every metric, prompt and caveat with a cursor."""
    pane = state.results
    head = results_title(pane)
    if pane.current is None:
        return limited(Drawing(tuple(_nothing(pane, view)), head), view)
    if view.zoomed:
        from dflash_tui.tui.result_zoom import draw_zoomed  # not before somebody zooms: the first paint comes sooner

        return draw_zoomed(pane, view, head)
    width, height = view.width, view.height
    rows = metric_rows(pane)
    beside = width >= 96
    if not beside and height < 9:
        rows = [row for row in rows if not row.label.startswith("DDTree b")]
    table = [_head(pane, width), *(_row(pane, row, width) for row in rows)]
    verdict = verdict_lines(pane.comparison)
    table = _with_verdict(table, verdict, width) if beside else table[: max(1, height)]
    used = list(table)
    note = line((footnote(pane), "muted"))
    if pane.comparison is not None and not beside:
        if len(used) < height:
            used.append(cut(line(("verdict ", "muted"), verdict_line(pane.comparison)), width))
        else:
            note = fitting([verdict[0], note], width - 4, " · ")
    if beside and used[-1].width + note.width + 2 <= width:
        used[-1] += line("  ", note)
        note = line()
    caveats = _caveats(pane, width, height - len(used))
    return limited(Drawing((*used, *caveats), head, note, copies=as_markdown(pane)), view)


def results_title(pane: ResultsPane) -> Line:
    """5 Results · step 4000 · full · 90 blocks · against previous 7f3a0c12…; "common parts" where no more is shown."""
    if pane.current is None:
        return title(5, "Results")
    against = None
    if pane.previous is not None:
        against = line(("against ", "muted"), (pane.previous.name, "strong"))
        against += line((f" {formats.short_hash(pane.previous.sha256)}", "muted")) if pane.previous.sha256 else line()
    blocks = formats.plural(pane.current.pooled.blocks, "block") if pane.current.pooled.blocks else None
    common = line(("common parts", "note")) if pane.common else None
    return title(5, "Results", line((what(pane.current), "strong")), common, blocks, against)


def _nothing(pane: ResultsPane, view: View) -> list[Line]:
    lines = [line(("no result yet: ", "muted"), "an evaluation's streaks appear here beside a baseline")]
    if pane.pins:
        lines.append(line(("pinned: ", "muted"), ", ".join(pane.pins)))
    return [part for each in lines for part in wrapped(each, view.width)]


def _head(pane: ResultsPane, width: int) -> Line:
    cells = line((f"  {'metric':<{LABEL}}{'current':>{VALUE}}", "muted"))
    if width >= 76:
        cells += line((f"{'95 %':>{INTERVAL}}", "muted"))
    cells += line((f"{'previous':>{PREVIOUS}}{'Δ':>{DELTA}}  ", "muted"))
    if width >= 70:
        cells += column("prompts", COUNT, "muted")
    return cut(cells, width)


def _row(pane: ResultsPane, row: MetricRow, width: int) -> Line:
    level = strongest(pane)
    mark = line((GLYPHS[level], level), " ") if level is not None else line("  ")
    void: Role = "void" if row.current == "void" else "strong"
    cells = mark + column(row.label, LABEL) + column(row.current, VALUE, void, right=True)
    if width >= 76:
        cells += column(row.interval, INTERVAL, "muted", right=True)
    cells += column(row.previous, PREVIOUS, "", right=True)
    cells += delta_cell(row)
    if width >= 70 and pane.current is not None:
        cells += column(measured(pane.current), COUNT, "muted")
    return cut(cells, width)


def delta_cell(row: MetricRow) -> Line:
    """Δ in its column, with the mark that a footnote explains; only the text is styled, not the space before it."""
    gap = " " * max(0, DELTA - len(row.delta))
    return line(gap, (row.delta, row.role or ("strong" if row.delta else "")), "¹ " if row.mark else "  ")


def _with_verdict(table: list[Line], verdict: Sequence[Line], width: int) -> list[Line]:
    """The verdict in the room at the right of the table, under a head of its own."""
    edge = max(content.width for content in table) + 2
    room = width - edge
    texts = [line(("verdict", "muted"))] + [part for each in verdict for part in wrapped(each, room)]
    if not verdict:
        return table
    result: list[Line] = []
    for index, content in enumerate(table):
        beside = texts[index] if index < len(texts) else None
        if index == len(table) - 1 and len(texts) > len(table):
            beside = cut(line(texts[index], " …"), room)
        result.append(content if beside is None else content + line(" " * (edge - content.width)) + cut(beside, room))
    return result


def _caveats(pane: ResultsPane, width: int, height: int) -> list[Line]:
    """One a line where they fit, else as many as fit with a count of the others."""
    found = ranked(pane)
    if height < 1 or not found:
        return []
    lines = [caveat_line(finding) for finding in found]
    if height >= len(lines):
        head = [rule(width, formats.plural(len(lines), "caveat"))] if height > len(lines) else []
        return [*head, *wrapped_to(lines, width, height - len(head))]
    shown = [cut(each, width) for each in lines[: height - 1]]
    hidden = len(lines) - len(shown)
    return [*shown, cut(lines[height - 1], max(1, width - 18)) + line((f"  +{hidden - 1} more (5)", "muted"))
            if hidden > 1 else cut(lines[height - 1], width)]  # fmt: skip


def wrapped_to(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """Each line whole over several rows as far as the rows suffice for all of them, cut to one row from there on."""
    spare = height - len(lines)
    result: list[Line] = []
    for each in lines:
        rows = wrapped(each, width, 2)
        if len(rows) - 1 <= spare:
            spare -= len(rows) - 1
            result += rows
        else:
            result.append(cut(each, width))
    return result


def as_markdown(pane: ResultsPane) -> str | None:
    """The table as Markdown, for copying."""
    if pane.current is None:
        return None
    previous = pane.previous.name if pane.previous is not None else ""
    lines = [f"| metric | {what(pane.current)} | {previous} | Δ |", "|---|---|---|---|"]
    lines += [
        f"| {row.label} | {row.current} | {row.previous} | {row.delta}{'¹' if row.mark else ''} |"
        for row in metric_rows(pane)
    ]
    if pane.comparison is not None:
        lines += ["", f"{pane.comparison.verdict}: {'; '.join(pane.comparison.why)}"]
    if note := footnote(pane):
        lines += ["", note]
    lines += ["", *(f"- {finding.severity}: {finding.sentence}" for finding in ranked(pane))]
    return "\n".join(lines)
