"""Rows of the result tables: a metric or a prompt with both sides, ready to be set in columns."""

from __future__ import annotations

from dataclasses import dataclass

from dflash_tui.console.state import ResultsPane
from dflash_tui.records.finding import SEVERITIES, Comparison, Finding, Severity
from dflash_tui.records.result import BUDGETS, METRICS, Evaluation, Score
from dflash_tui.results import evidence
from dflash_tui.results.caveats import voided
from dflash_tui.results.figures import signed
from dflash_tui.results.spread import Figure, level, spread, streak_of
from dflash_tui.tui import formats
from dflash_tui.tui.actions import BY_ID, shown_key
from dflash_tui.tui.lines import EMPTY, GLYPHS, WORDS, Line, Role, line

LABELS = {"top1": "vanilla top-1", "top4": "DDTree top-4", "top8": "DDTree top-8", "tau": "τ = top-1 + 1"}
TREE = 64  # the budget that stands in the overview
FIRST = ("BLOCK_SIZE_MISMATCH", "PARTIAL_PROMPT_COVERAGE", "SAME_STEP_OTHER_RUN", "BASELINE_MISSING", "INSIDE_NOISE")
PREVIOUS = "Previous result:"  # how comparisons begin a sentence about the other side


@dataclass(frozen=True)
class MetricRow:
    """`delta` is ready to show: a signed number, ≈ before one inside the noise, "n/c" where withheld, "" where nothing
    is to be said. `mark` is set where Δ was taken from fewer blocks than the values beside it."""

    label: str
    current: str
    interval: str
    previous: str
    delta: str
    role: Role
    mark: bool = False


def metric_rows(pane: ResultsPane, everything: bool = False) -> list[MetricRow]:
    """Top-1, top-4, top-8, τ and DDTree at a budget of 64; `everything` adds the other budgets and full blocks."""
    if pane.current is None:
        return []
    figures: list[tuple[str, Figure]] = [(LABELS[metric], streak_of(metric)) for metric in METRICS]
    figures.append((LABELS["tau"], _tau))
    figures += [(f"DDTree b={budget}", _tree(budget)) for budget in (BUDGETS if everything else (TREE,))]
    rows = [_row(pane, label, of, METRICS[i] if i < len(METRICS) else None) for i, (label, of) in enumerate(figures)]
    rows = [
        row for row in rows if not row.label.startswith("DDTree b") or {row.current, row.previous} != {formats.ABSENT}
    ]
    if everything and pane.current.pooled.full_block_rate is not None:
        other = _share(pane.previous, pane.previous is not None and bool(voided(pane.previous)))
        rows.append(MetricRow("full blocks", _share(pane.current, is_void(pane)), "", other, "", ""))
    return rows


def _row(pane: ResultsPane, label: str, of: Figure, metric: str | None) -> MetricRow:
    current, previous, void = pane.current, pane.previous, is_void(pane)
    other_void = previous is not None and bool(voided(previous))
    one = of(current.pooled) if current is not None else None
    other = of(previous.pooled) if previous is not None else None
    delta, role = _delta(pane, metric, one, other)
    # Of the value beside it: the shown result's, which may be another than the compared part of it.
    within = "" if void or current is None else _within(current, of)
    marked = bool(delta) and delta != WORDS["block"] and _other_blocks(pane)
    return MetricRow(label, _shown(one, void), within, _shown(other, other_void), delta, role, marked)


def _within(current: Evaluation, of: Figure) -> str:
    """The interval of a figure; "—" where all prompts are equal, so that none can be told."""
    bounds = spread(current, of, 1.0 if of is _tau else 0.0)
    return formats.ABSENT if bounds is None and level(current, of) else formats.interval(bounds)


def _tree(budget: int) -> Figure:
    return lambda score: score.ddtree.get(str(budget))


def _tau(score: Score) -> float | None:
    return score.tau


def _share(side: Evaluation | None, void: bool = False) -> str:
    rate = side.pooled.full_block_rate if side is not None else None
    return formats.ABSENT if rate is None else WORDS["void"] if void else formats.percent(rate, 1).strip()


def _shown(value: float | None, void: bool = False) -> str:
    return WORDS["void"] if void and value is not None else formats.streak(value)


def _delta(pane: ResultsPane, metric: str | None, one: float | None, other: float | None) -> tuple[str, Role]:
    """What stands under Δ, and its role: hue only for a verdict that is believed."""
    comparison = pane.comparison
    row = next((each for each in comparison.rows if each.metric == metric), None) if comparison is not None else None
    if comparison is None or row is None or one is None or other is None:
        return "", ""
    if row.delta is None:
        return WORDS["block"], "block"
    if comparison.verdict == "inside noise":
        return f"≈ {signed(row.delta)}", ""
    believed = comparison.verdict in ("better", "worse")
    return signed(row.delta), ("better" if row.delta > 0 else "worse") if believed and row.delta else ""


def _other_blocks(pane: ResultsPane) -> bool:
    """Whether Δ is between other numbers of blocks than the values that stand beside it."""
    counted = pane.comparison.blocks if pane.comparison is not None else None
    return counted is not None and pane.current is not None and counted[0] != pane.current.pooled.blocks


def footnote(pane: ResultsPane) -> str:
    """What the mark at Δ means, "" where none is set."""
    counted = pane.comparison.blocks if pane.comparison is not None else None
    return f"¹ Δ at {counted[0]} against {counted[1]} blocks" if counted is not None and _other_blocks(pane) else ""


def is_void(pane: ResultsPane, prompt: str = "") -> bool:
    """Whether the current value (of one prompt) can't be believed."""
    return any(
        finding.severity == "void" and finding.scope in ("", prompt) and not finding.sentence.startswith(PREVIOUS)
        for finding in pane.caveats
    )


def ranked(pane: ResultsPane) -> list[Finding]:
    """The caveats, strongest first; then those of the current result before those of the other side, and what says most
    about a number before what says less, because a small screen shows only the first."""
    return sorted(pane.caveats, key=_rank)


def _rank(finding: Finding) -> tuple[int, bool, int]:
    place = FIRST.index(finding.code) if finding.code in FIRST else len(FIRST)
    return SEVERITIES.index(finding.severity), finding.sentence.startswith(PREVIOUS), place


def strongest(pane: ResultsPane) -> Severity | None:
    """The severity that marks every row of the whole result."""
    return next((finding.severity for finding in ranked(pane) if not finding.scope), None)


def remedy_key(finding: Finding) -> str:
    """The key that would remove the caveat, "" where none does."""
    action = BY_ID.get(finding.remedy or "")
    return shown_key(action.keys[0]) if action is not None and action.keys else ""


def caveat_line(finding: Finding, word: bool = False) -> Line:
    """Glyph, sentence, and the key that helps."""
    key = remedy_key(finding)
    return line(
        (GLYPHS[finding.severity], finding.severity),
        " ",
        (f"{WORDS[finding.severity]} ", finding.severity) if word else "",
        (f"{finding.scope}: ", "strong") if finding.scope else "",
        finding.sentence.rstrip("."),
        line(" (", (key, "key"), ")") if key else EMPTY,
    )


def verdict_lines(comparison: Comparison | None) -> list[Line]:
    """The verdict and its reasons, one a line."""
    if comparison is None:
        return []
    role: Role = {"better": "better", "worse": "worse", "not comparable": "block"}.get(comparison.verdict, "strong")  # type: ignore[assignment]
    return [line((comparison.verdict, role)), *(line((reason.rstrip("."), "muted")) for reason in comparison.why)]


def verdict_line(comparison: Comparison) -> Line:
    """The verdict and its reasons in one line: untestable: previous result keeps no per-prompt values; 3 prompts."""
    verdict, *reasons = verdict_lines(comparison)
    for index, reason in enumerate(reasons):
        verdict += line(": " if index == 0 else "; ", reason)
    return verdict


def measured(evaluation: Evaluation) -> str:
    """How many prompts of those asked: 3 of 10; "—" when unrecorded."""
    present = len(evaluation.prompts_present) if evaluation.prompts_present is not None else evaluation.prompt_count
    asked = len(evaluation.prompts_asked) if evaluation.prompts_asked is not None else evaluation.prompts_asked_count
    if present is None:
        return formats.ABSENT
    return f"{present} of {asked}" if asked else f"{present}"


def what(evaluation: Evaluation) -> str:
    """A result in few words: step 4000 · full; which was asked for, where that is another of the same weights."""
    asked = evidence.value(evaluation, "eval.asked")
    step = evidence.whole(asked.get("step")) if isinstance(asked, dict) else None
    name = formats.step_name(evaluation.step) if evaluation.step is not None else evaluation.name
    if step is not None and step != evaluation.step:
        name = f"{formats.step_name(step)} = {name}"
    elif isinstance(asked, dict) and step is None:
        name = f"{str(asked.get('path', '')).rstrip('/').rpartition('/')[2]} = {name}"
    parts = [
        name,
        evaluation.preset or "",
    ]
    return " · ".join(part for part in parts if part)


def prompts_of(pane: ResultsPane) -> list[tuple[str, Score | None, Score | None]]:
    """Each prompt with both sides' scores, the current result's order first."""
    mine = pane.current.per_prompt if pane.current is not None else {}
    other = pane.previous.per_prompt if pane.previous is not None else {}
    names = [*mine, *(name for name in other if name not in mine)]
    return [(name, mine.get(name), other.get(name)) for name in names]
