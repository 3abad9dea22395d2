"""The results full screen: a list the cursor walks through, and below it what it stands on, in full."""

from __future__ import annotations

from dataclasses import dataclass

from dflash_tui.console.state import ResultsPane
from dflash_tui.records.finding import Finding
from dflash_tui.records.result import METRICS, Score
from dflash_tui.results.caveats import voided
from dflash_tui.results.figures import signed
from dflash_tui.tui import formats
from dflash_tui.tui.actions import BY_ID
from dflash_tui.tui.drawing import Drawing, View, highlighted, limited, rule
from dflash_tui.tui.lines import EMPTY, GLYPHS, WORDS, Line, column, cut, line, wrapped
from dflash_tui.tui.result_rows import (
    MetricRow,
    caveat_line,
    footnote,
    is_void,
    measured,
    metric_rows,
    prompts_of,
    ranked,
    remedy_key,
    verdict_line,
)

DETAIL = 9  # rows of the detail, its rule included; less where that would be more than two fifths
_EXPLAINED = {
    "vanilla top-1": "Mean number of leading drafts that are the reference's token: what a plain chain of drafts wins.",
    "DDTree top-4": "Per-position top-4 oracle: leading slots whose reference token is among the drafter's 4 best. An "
    "upper bound, not a tree of finite size; a real tree stands beside it as DDTree b=64.",
    "DDTree top-8": "Per-position top-8 oracle: leading slots whose reference token is among the drafter's 8 best.",
    "τ = top-1 + 1": "Tokens a verification step yields: the accepted drafts and the one token that the target adds.",
    "full blocks": "The share of blocks whose every draft is right.",
}
_TREE = "Mean accepted drafts when a best-first tree of that many nodes is verified at once."


@dataclass(frozen=True)
class _Item:
    """A line of the list; `detail` is shown while the cursor stands on it, None where it can't stand."""

    content: Line
    detail: tuple[Line, ...] | None = None
    copies: str = ""


def draw_zoomed(pane: ResultsPane, view: View, head: Line) -> Drawing:
    """Every metric, every prompt of both sides, every caveat with its evidence and the key that removes it."""
    width = view.width
    items = [*_metrics(pane, width), *_prompts(pane, width), *_caveats(pane, width)]
    places = [index for index, item in enumerate(items) if item.detail is not None]
    chosen = places[min(view.cursor, len(places) - 1)] if places else 0
    detail = items[chosen].detail or () if items else ()
    explained = [part for each in detail for part in wrapped(each, width, 2)]
    room = min(max(DETAIL, view.height // 4), view.height * 2 // 5, len(explained) + 1)
    listed = view.height - room
    start = min(max(0, chosen - listed // 2), max(0, len(items) - listed))
    lines = [
        highlighted(cut(item.content, width), width) if index == chosen and view.focused else cut(item.content, width)
        for index, item in enumerate(items[start : start + listed], start)
    ]
    lines += [EMPTY] * (listed - len(lines))
    if room > 0:
        lines += [rule(width, "detail"), *explained[: room - 1]]
    hidden = len(items) - start - listed
    note = line((f"{formats.plural(hidden, 'line')} below", "muted")) if hidden > 0 else EMPTY
    drawing = Drawing(tuple(lines), head, note, len(places), items[chosen].copies if items else None)
    return limited(drawing, view)


def _metrics(pane: ResultsPane, width: int) -> list[_Item]:
    if pane.current is None:
        return []
    wide = width >= 90
    head = line((f"  {'metric':<16}{'current':>9}{'95 %':>16}{'previous':>10}{'Δ':>10}  ", "muted"))
    head += line((f"{'95 % of Δ':<16}", "muted")) if wide else EMPTY
    head += line(("prompts", "muted"))
    items = [_Item(head)]
    compared = {row.metric: row for row in pane.comparison.rows} if pane.comparison else {}
    bounds = [_signed_interval(compared[metric].delta_interval) if metric in compared else "" for metric in METRICS]
    for index, row in enumerate(metric_rows(pane, everything=True)):
        cells = line("  ") + column(row.label, 16)
        cells += column(row.current, 9, "void" if row.current == WORDS["void"] else "strong", right=True)
        cells += column(row.interval, 16, "muted", right=True) + column(row.previous, 10, right=True)
        cells += line(" " * max(0, 10 - len(row.delta)), (row.delta, row.role or "strong"), "¹ " if row.mark else "  ")
        cells += column(bounds[index] if index < len(bounds) else "", 16, "muted") if wide else EMPTY
        cells += line((measured(pane.current), "muted"))
        items.append(_Item(cells, _about_metric(pane, row), f"{row.label}\t{row.current}\t{row.previous}\t{row.delta}"))
    note = footnote(pane)
    if pane.comparison is not None:
        whole = line(("  verdict ", "muted"), verdict_line(pane.comparison))
        items += [_Item(each) for each in wrapped(whole, width, 4)]
    if note:
        items.append(_Item(line((f"  {note}", "muted"))))
    return items


def _signed_interval(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else f"{signed(bounds[0], 2)} … {signed(bounds[1], 2)}"


def _about_metric(pane: ResultsPane, row: MetricRow) -> tuple[Line, ...]:
    about = _EXPLAINED.get(row.label, _TREE if row.label.startswith("DDTree b") else "")
    lines = [line((row.label, "strong"), ("  " + about, ""))]
    if row.current == WORDS["void"] and pane.current is not None:
        raw = ", ".join(f"{metric} {value:.3f}" for metric, value in pane.current.pooled.streak.items())
        lines.append(line(("raw, not to be believed: ", "muted"), raw))
    if pane.comparison is not None and row.delta == WORDS["block"]:
        lines.append(line(("Δ withheld: ", "muted"), "; ".join(pane.comparison.why)))
    elif pane.comparison is not None and row.delta:
        paired = {
            "anchors": "block by block",
            "prompts": "prompt by prompt",
            "none": "by nothing: a difference of two means",
        }
        lines.append(
            line(
                ("paired ", "muted"),
                paired[pane.comparison.pairing],
                (f"; {footnote(pane).lstrip('¹ ')}" if row.mark else "", ""),
            )
        )
    if row.interval == formats.ABSENT:
        lines.append(line(("95 % ", "muted"), "— all prompts have the same value, so nothing tells how it would vary"))
    elif row.interval:
        lines.append(line(("95 % ", "muted"), "Student t over prompt means: n is the number of prompts, not of blocks"))
    for side, result in (("current", pane.current), ("previous", pane.previous)):
        if result is not None:
            where = result.run_dir or result.path
            lines.append(line((f"{side:<9}", "muted"), where, (f"  {result.checkpoint_name or ''}", "muted")))
    return tuple(lines)


def _prompts(pane: ResultsPane, width: int) -> list[_Item]:
    rows = prompts_of(pane)
    if not rows:
        return []
    name = max(6, min(28, max(len(prompt) for prompt, _, _ in rows), width - 55))
    both = any(other is not None for _, _, other in rows) and width >= name + 77
    head = f"  {'prompt':<{name}}{'blocks':>8}{'top-1':>9}{'top-4':>9}{'top-8':>9}{'τ':>9}"
    head += f"{'prev top-1':>13}{'top-4':>9}{'top-8':>9}" if both else f"{'b=64':>9}" if width >= name + 55 else ""
    items = [_Item(rule(width, "per prompt")), _Item(line((head, "muted")))]
    other_void = pane.previous is not None and bool(voided(pane.previous))
    for prompt, mine, other in rows:
        void = is_void(pane, prompt)
        mark = line((GLYPHS["void"], "void"), " ") if void else line("  ")
        cells = (
            mark + column(prompt, name) + column(f"{mine.blocks}" if mine else formats.ABSENT, 8, "muted", right=True)
        )
        for metric in METRICS:
            cells += column("void" if void and mine else _streak(mine, metric), 9, right=True)
        cells += column("void" if void and mine else formats.streak(mine.tau if mine else None), 9, right=True)
        if both:
            for index, metric in enumerate(METRICS):
                cells += column(
                    "void" if other_void and other else _streak(other, metric),
                    13 if index == 0 else 9,
                    "muted",
                    right=True,
                )
        elif width >= name + 55:
            tree = formats.streak(mine.ddtree.get("64") if mine else None)
            cells += column("void" if void and mine else tree, 9, right=True)
        items.append(
            _Item(cells, _about_prompt(prompt, mine, other), "\t".join([prompt, *(_streak(mine, m) for m in METRICS)]))
        )
    return items


def _streak(score: Score | None, metric: str) -> str:
    return formats.streak(score.streak.get(metric) if score is not None else None)


def _about_prompt(prompt: str, mine: Score | None, other: Score | None) -> tuple[Line, ...]:
    lines = [line((prompt, "strong"))]
    for side, score in (("current", mine), ("previous", other)):
        if score is None:
            lines.append(line((f"{side:<9}", "muted"), ("keeps no value of this prompt", "muted")))
            continue
        trees = "  ".join(f"b={budget} {value:.3f}" for budget, value in score.ddtree.items())
        streaks = "  ".join(f"top-{metric[3:]} {_streak(score, metric)}" for metric in METRICS)
        lines.append(
            line((f"{side:<9}", "muted"), f"{streaks}  τ {score.tau:.3f}  {formats.plural(score.blocks, 'block')}")
        )
        if trees:
            lines.append(line((f"{'':<9}DDTree ", "muted"), trees))
    return tuple(lines)


def _caveats(pane: ResultsPane, width: int) -> list[_Item]:
    found = ranked(pane)
    if not found:
        return []
    items = [_Item(rule(width, formats.plural(len(found), "caveat")))]
    return items + [_Item(caveat_line(each), _about_caveat(each), f"{each.code}: {each.sentence}") for each in found]


def _about_caveat(finding: Finding) -> tuple[Line, ...]:
    lines = [
        line(
            (f"{GLYPHS[finding.severity]} {WORDS[finding.severity]}", finding.severity), "  ", (finding.code, "strong")
        ),
        line(finding.sentence),
        line(("values    ", "muted"), ", ".join(str(value) for value in finding.values)),
    ]
    lines += [line(("evidence  ", "muted"), str(source)) for source in finding.evidence]
    key = remedy_key(finding)
    if key:
        lines.append(line(("remedy    ", "muted"), (key, "key"), f" {BY_ID[finding.remedy or ''].description}"))
    elif finding.remedy:
        lines.append(line(("remedy    ", "muted"), finding.remedy))
    return tuple(lines)
