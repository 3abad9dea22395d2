"""The configured baselines: found, pinned as they are now, or missing."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from dflash_tui.config import BaselineConfig
from dflash_tui.console import events as happened
from dflash_tui.hosts.base import HostError
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.result import Evaluation
from dflash_tui.results.baselines import failure, runs_of
from dflash_tui.results.errors import ResultError

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

LARGEST_RESULT = 256 << 20


async def refresh(console: Console) -> None:
    """Copy every configured baseline home and pin those that have no pin yet.

    A pin is what comparisons use: a baseline that changes or vanishes later changes no comparison, it raises a caveat.
    What can't be read is told as a notice and is missing from the facts.
    """
    for baseline in console.config.baselines:
        if baseline.drafter:
            continue  # evaluated, not read
        try:
            await _bring(console, baseline)
        except (HostError, ResultError) as error:
            console.emit(happened.Noticed("warn", f"baseline {baseline.name}: {error}"))


async def _bring(console: Console, baseline: BaselineConfig) -> None:
    host = console.host(baseline.host or "local")
    size = (await host.stat(baseline.file)).size
    if size > LARGEST_RESULT:
        raise ResultError(
            f"{host.name}:{baseline.file}: {size} bytes is no result file; expected under {LARGEST_RESULT}"
        )
    data = await host.read(baseline.file, 0, size)
    folder = console.store.state / "baselines" / baseline.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PurePosixPath(baseline.file).name
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # another console may bring it at the same moment
    part.write_bytes(data)
    part.replace(path)
    if baseline.name not in console.store.pins.entries():
        console.store.pins.pin(baseline.name, path)


def facts(console: Console, beside: Collection[str] = (), withheld: Sequence[tuple[str, str]] = ()) -> tuple[Fact, ...]:
    """What is configured and what is there, for the caveat of a missing baseline: what is pinned, and the drafters that
    are evaluated `beside` this or have been. `withheld` are those that can't be, with the reasons."""
    configured = [baseline.name for baseline in console.config.baselines]
    if not configured:
        return ()
    try:
        there = set(console.store.pins.entries())
    except ResultError:
        there = set()  # whoever looks for one says why none can be read
    drafters = [baseline.name for baseline in console.config.baselines if baseline.drafter]
    there |= {name for name in drafters if any(run.finished for run in runs_of(console.store, name))}
    there = (there | set(beside)) - {name for name, _ in withheld}
    now = _now()
    source = Source("", console.config.path, "baseline")
    return (
        Fact("baselines.configured", configured, source, now),
        Fact("baselines.found", [name for name in configured if name in there], source, now),
        *_withheld(withheld, source, now),
    )


def as_of_now(console: Console, evaluation: Evaluation) -> Evaluation:
    """The evaluation with what became of the baselines that were to stand beside it: one that is configured no more is
    not missed, a run that failed is no baseline, and why it failed is the reason."""
    evaluation = _still_configured(console, evaluation)
    said = next((fact for fact in reversed(evaluation.facts) if fact.kind == "baselines.found"), None)
    if said is None or not isinstance(said.value, list):
        return evaluation
    configured = [baseline.name for baseline in console.config.baselines if baseline.drafter]
    failed = [(name, why) for name in configured if (why := failure(console.store, name, evaluation)) is not None]
    if not failed:
        return evaluation
    now, names = _now(), {name for name, _ in failed}
    found = Fact("baselines.found", [name for name in said.value if name not in names], said.source, now)
    return replace(evaluation, facts=(*evaluation.facts, found, *_withheld(failed, said.source, now)))


def _still_configured(console: Console, evaluation: Evaluation) -> Evaluation:
    said = next((fact for fact in reversed(evaluation.facts) if fact.kind == "baselines.configured"), None)
    if said is None or not isinstance(said.value, list):
        return evaluation
    known = {baseline.name for baseline in console.config.baselines}
    still = [name for name in said.value if name in known]
    if still == said.value:
        return evaluation
    now = Fact("baselines.configured", still, Source("", console.config.path, "baseline"), _now())
    return replace(evaluation, facts=(*evaluation.facts, now))


def _withheld(pairs: Sequence[tuple[str, str]], source: Source, now: str) -> tuple[Fact, ...]:
    return tuple(Fact("baselines.withheld", {"name": name, "reason": why}, source, now) for name, why in pairs)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
