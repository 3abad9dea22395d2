"""Two results prompt by prompt: what differs, and how far the mean difference can be believed."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from dflash_tui.records.result import METRICS, Evaluation
from dflash_tui.results import evidence
from dflash_tui.results.common import at_equal_blocks, common_prompts, on_common_anchors
from dflash_tui.results.statistics import equal, interval

Interval = tuple[float, float]


@dataclass(frozen=True)
class Pairing:
    """`by`: "anchors" when the same blocks stand on both sides, "prompts" when only the prompts are the same, else
    "none". `differences`: for each metric, current − previous per distinct prompt. `deltas` are between pooled means of
    `blocks` (current, previous) blocks: of the paired ones when paired by anchors, and of a full result's quick part
    where that makes the numbers of blocks equal."""

    by: Literal["anchors", "prompts", "none"]
    differences: dict[str, tuple[float, ...]]
    deltas: dict[str, float | None]
    blocks: tuple[int, int]

    @property
    def prompts(self) -> int:
        """Prompts that are paired."""
        return max(map(len, self.differences.values()), default=0)

    def interval(self, metric: str) -> Interval | None:
        """95 % t interval over the prompts' differences; None under 2 prompts, and where all differences are equal."""
        return interval(self.differences.get(metric, ()))

    def level(self, metric: str) -> float | None:
        """The difference that each of two or more prompts shows, where it is one and the same; else None."""
        differences = self.differences.get(metric, ())
        return differences[0] if len(differences) > 1 and equal(differences) else None


def pair(current: Evaluation, previous: Evaluation) -> Pairing:
    """Pairs by anchor where both keep blocks, else by prompt where both keep prompts."""
    same = on_common_anchors(current, previous)
    mine, other = same if same is not None else at_equal_blocks(current, previous)
    shared = [p for p in common_prompts(mine, other) if p in mine.per_prompt and p in other.per_prompt]
    differences = {metric: _differences(mine, other, shared, metric) for metric in METRICS}
    deltas: dict[str, float | None] = {}
    for metric in METRICS:
        a, b = mine.pooled.streak.get(metric), other.pooled.streak.get(metric)
        deltas[metric] = a - b if a is not None and b is not None else None
    by: Literal["anchors", "prompts", "none"] = "anchors" if same is not None else "prompts" if shared else "none"
    return Pairing(by, differences, deltas, (mine.pooled.blocks, other.pooled.blocks))


def _differences(mine: Evaluation, other: Evaluation, shared: list[str], metric: str) -> tuple[float, ...]:
    """Prompts of one text are one prompt: their mean difference, so that a repetition adds no certainty."""
    found = {}
    for prompt in shared:
        a, b = mine.per_prompt[prompt].streak.get(metric), other.per_prompt[prompt].streak.get(metric)
        if a is not None and b is not None:
            found[prompt] = a - b
    return tuple(fmean(found[prompt] for prompt in group) for group in evidence.by_text(mine, found))
