"""Rounds of ways to move a file, side by side; what is demanded of their ratios; both as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tests.bench.transfer.cost import Cost

Rounds = Mapping[str, Sequence[Cost]]
"""The costs of every way, by its name: as many as there were rounds."""


@dataclass(frozen=True)
class Demand:
    """A value that was measured, and what it must not fall below or exceed; how it is written."""

    what: str
    value: float
    limit: float
    at_most: bool = False
    form: str = "{:.2f}"

    @property
    def met(self) -> bool:
        """Whether it is as it should be."""
        return self.value <= self.limit if self.at_most else self.value >= self.limit


@dataclass(frozen=True)
class Section:
    """One question: its rounds, and what is demanded of them."""

    title: str
    rounds: Rounds
    demands: tuple[Demand, ...]


def interleaved(ways: Mapping[str, Callable[[], Cost]], rounds: int) -> Rounds:
    """Go every way once a round; each round begins with another one, so that none always follows the same."""
    costs: dict[str, list[Cost]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            costs[name].append(ways[name]())
    return costs


def ratio(rounds: Rounds, one: str, other: str) -> float:
    """Seconds of one way for each second of another one in the same round: the median over the rounds."""
    return median(mine.wall / its.wall for mine, its in zip(rounds[one], rounds[other], strict=True))


def faster(rounds: Rounds, way: str, than: str, limit: float) -> Demand:
    """So many times as fast, at least."""
    return Demand(f"{way}: as fast as {than}", ratio(rounds, than, way), limit, form="{:.2f} ×")


def takes(rounds: Rounds, way: str, of: str, limit: float) -> Demand:
    """Such a share of another way's time, at most."""
    return Demand(f"{way}: time of {of}", ratio(rounds, way, of), limit, at_most=True, form="{:.2f} ×")


def shares(rounds: Rounds, way: str, phases: Sequence[str], of: str, limit: float) -> Demand:
    """Some phases of a way take such a share of another way's time, at most."""
    value = median(
        sum(mine.phases.get(phase, 0.0) for phase in phases) / its.wall
        for mine, its in zip(rounds[way], rounds[of], strict=True)
    )
    return Demand(f"{way}, {' + '.join(phases)}: time of {of}", value, limit, at_most=True, form="{:.2f} ×")


def text(section: Section) -> str:
    """A section as text: medians, and demands with their limits. `ratio` is the time for each second of the first
    way's."""
    first = next(iter(section.rounds))
    width = max(len(name) for name in section.rounds) + 2
    head = (
        f"{'wall s':>8}{'least':>8}{'ratio':>7}{'GiB':>7}{'MB/s':>7}{'CPU here':>10}{'source':>8}{'dest.':>7}{'MB':>6}"
    )
    lines = [f"{section.title}; rounds: {len(section.rounds[first])}", f"{'':<{width}}{head}"]
    for name, costs in section.rounds.items():
        wall, nbytes = median(cost.wall for cost in costs), median(cost.moved for cost in costs)
        cpu = [median(each) for each in zip(*((c.here, c.source, c.destination) for c in costs), strict=True)]
        lines.append(
            f"{name:<{width}}{wall:>8.2f}{min(cost.wall for cost in costs):>8.2f}"
            f"{ratio(section.rounds, name, first):>7.2f}{nbytes / (1 << 30):>7.2f}{nbytes / wall / 1e6:>7.0f}"
            f"{cpu[0]:>10.2f}{cpu[1]:>8.2f}{cpu[2]:>7.2f}{max(cost.peak for cost in costs) / 1e6:>6.0f}"
        )
        if costs[0].phases:
            lines.append(f"{'':<{width}}  " + ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in _phases(costs)))
    wide = max((len(demand.what) for demand in section.demands), default=0)
    for demand in section.demands:
        value, limit = demand.form.format(demand.value), demand.form.format(demand.limit)
        bound = "at most" if demand.at_most else "at least"
        lines.append(f"  {demand.what:<{wide}}{value:>10}  {bound} {limit}{'' if demand.met else '  NOT MET'}")
    return "\n".join(lines)


def _phases(costs: Sequence[Cost]) -> list[tuple[str, float]]:
    return [(phase, median(cost.phases.get(phase, 0.0) for cost in costs)) for phase in costs[0].phases]
