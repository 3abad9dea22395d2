"""How far the mean of a figure can be believed: one interval for tables, reports and comparisons."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from dflash_tui.records.result import Evaluation, Score
from dflash_tui.results import evidence
from dflash_tui.results.statistics import equal, interval

Figure = Callable[[Score], "float | None"]


def streak_of(metric: str) -> Figure:
    """The figure that a metric names."""
    return lambda score: score.streak.get(metric)


def spread(evaluation: Evaluation, of: Figure, least: float = 0.0) -> tuple[float, float] | None:
    """95 % Student t interval over the means of distinct prompts; None under 2, and where all are equal.

    It ends where the figure must: no mean is under `least` (a streak's 0, τ's 1) nor above `least` plus the horizon.
    """
    found = interval(_means(evaluation, of))
    horizon = evidence.horizon(evaluation)
    if found is None:
        return None
    most = float("inf") if horizon is None else least + horizon
    return max(least, found[0]), min(most, found[1])


def level(evaluation: Evaluation, of: Figure) -> int:
    """How many distinct prompts have one and the same value of a figure, where all have (two at least): then nothing
    tells its spread. 0 otherwise."""
    means = _means(evaluation, of)
    return len(means) if len(means) > 1 and equal(means) else 0


def _means(evaluation: Evaluation, of: Figure) -> list[float]:
    measured = {prompt: value for prompt, score in evaluation.per_prompt.items() if (value := of(score)) is not None}
    groups = evidence.by_text(evaluation, list(measured))
    return [fmean(measured[prompt] for prompt in group) for group in groups]
