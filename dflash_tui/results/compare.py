"""One result beside another: differences, their intervals, and what may be concluded."""

from __future__ import annotations

from dataclasses import replace

from dflash_tui.records.finding import Comparison, Finding, MetricComparison, Verdict
from dflash_tui.records.result import METRICS, Evaluation
from dflash_tui.results import evidence
from dflash_tui.results.caveats import caveats_of, caveats_of_comparison, merged, voided, withholds
from dflash_tui.results.caveats.small_n import ENOUGH
from dflash_tui.results.common import on_prompts
from dflash_tui.results.figures import SHORT, bounds, signed
from dflash_tui.results.paired import Pairing, pair
from dflash_tui.results.spread import spread, streak_of
from dflash_tui.results.statistics import SIGN_FLIP_FROM, sign_flip

PRIMARY = "top1"  # what a chain of drafts wins, and what τ is made of: the verdict is about this metric


def compare(current: Evaluation, previous: Evaluation) -> Comparison:
    """`current` against `previous`; every delta is current − previous.

    Deltas are withheld (None) and the verdict is "not comparable" while a block-level caveat, or a void one of a whole
    result, is open; a void result's own values are withheld too. Prompts with a void of their own are struck from both
    means. Never raises for any two evaluations.
    """
    mine, other = struck(current), struck(previous)
    caveats = merged((*caveats_of_comparison(mine, other), *_own_voids(current), *_own_voids(previous)))
    reasons = tuple(finding.sentence for finding in caveats if withholds(finding))
    pairing = pair(mine, other)
    believed = not voided(mine), not voided(other)
    rows = tuple(_row(metric, mine, other, None if reasons else pairing, believed) for metric in METRICS)
    verdict: Verdict
    why: tuple[str, ...]
    if reasons:
        verdict, why = "not comparable", reasons
    elif evidence.same_result(current, previous):
        verdict, why = "untestable", ("both are the same result",)
        rows = tuple(replace(row, delta_interval=None) for row in rows)
    else:
        verdict, why = judged(mine, other, pairing)
        if pairing.by == "anchors" and current.weights_id is not None and current.weights_id == previous.weights_id:
            why = ("same weights", *why)
    return Comparison(
        current=current.name,
        previous=previous.name,
        rows=rows,
        delta={row.metric: row.delta for row in rows},
        verdict=verdict,
        why=why,
        caveats=caveats,
        pairing="none" if reasons else pairing.by,
        blocks=None if reasons else pairing.blocks,
    )


def judged(current: Evaluation, previous: Evaluation, pairing: Pairing) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict on two comparable results and its reasons. Under 6 prompts at most "inconclusive": that every prompt
    agrees is a description there (sign-flip p = .25 at 3)."""
    prompts = pairing.prompts
    if not previous.per_prompt or not current.per_prompt:
        side = "current" if previous.per_prompt else "previous"
        return "untestable", (f"{side} result keeps no per-prompt values", *_few(current, previous))
    if prompts == 0:
        return "untestable", ("no prompt is in both results",)
    differences = pairing.differences[PRIMARY]
    within, level = pairing.interval(PRIMARY), pairing.level(PRIMARY)
    if prompts < SIGN_FLIP_FROM or (within is None and level is None):
        return "inconclusive", (_counted(prompts), _agreement(differences))
    p = sign_flip(differences)
    tested = () if p is None else (f"sign-flip p = {p:.3g}",)
    if within is None:  # all differences are equal: they have no interval, but a direction
        level = level or 0.0
        shown = f"{SHORT[PRIMARY]} {signed(level)} on each of {_counted(prompts)}, so no interval can be told"
        return ("inside noise" if level == 0 else "better" if level > 0 else "worse"), (shown, *tested)
    shown = f"paired 95 % interval of {SHORT[PRIMARY]} {bounds(within)} over {_counted(prompts)}"
    why = (shown, *tested)
    if within[0] <= 0 <= within[1]:
        return "inside noise", why
    return ("better" if within[0] > 0 else "worse"), why


def struck(evaluation: Evaluation) -> Evaluation:
    """The evaluation without the prompts whose values are void; itself where none is, or nothing would be left. What
    was asked for stays: a struck prompt is one that is not covered."""
    void = {finding.scope for finding in caveats_of(evaluation) if finding.severity == "void" and finding.scope}
    kept = tuple(prompt for prompt in evaluation.per_prompt if prompt not in void)
    if not kept or len(kept) == len(evaluation.per_prompt):
        return evaluation
    asked, count = evaluation.prompts_asked, evaluation.prompts_asked_count
    return replace(on_prompts(evaluation, kept), prompts_asked=asked, prompts_asked_count=count)


def _own_voids(evaluation: Evaluation) -> tuple[Finding, ...]:
    return tuple(finding for finding in caveats_of(evaluation) if finding.severity == "void")


def _row(
    metric: str, current: Evaluation, previous: Evaluation, pairing: Pairing | None, believed: tuple[bool, bool]
) -> MetricComparison:
    return MetricComparison(
        metric=metric,
        current=current.pooled.streak.get(metric) if believed[0] else None,
        previous=previous.pooled.streak.get(metric) if believed[1] else None,
        delta=pairing.deltas[metric] if pairing is not None else None,
        interval=spread(current, streak_of(metric)) if believed[0] else None,
        delta_interval=pairing.interval(metric) if pairing is not None else None,
    )


def _few(current: Evaluation, previous: Evaluation) -> tuple[str, ...]:
    """How few prompts the smaller result rests on, where that is a reason of its own."""
    counts = [n for side in (current, previous) if (n := evidence.measured_count(side)) is not None]
    return (_counted(min(counts)),) if counts and min(counts) < ENOUGH else ()


def _counted(prompts: int) -> str:
    return f"{prompts} prompt" if prompts == 1 else f"{prompts} prompts"


def _agreement(differences: tuple[float, ...]) -> str:
    higher, lower = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    return f"{SHORT[PRIMARY]} higher on {higher}, lower on {lower} of {len(differences)}: a description, not a test"
