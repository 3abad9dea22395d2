"""The configured baselines: found, pinned as they are now, or missing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from dflash_tui.config import BaselineConfig
from dflash_tui.console import events as happened
from dflash_tui.hosts.base import HostError
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.result import Evaluation
from dflash_tui.results.baselines import failure
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


def facts(console: Console, withheld: Sequence[tuple[str, str]] = ()) -> tuple[Fact, ...]:
    """What is configured and what is there, for the caveat of a missing baseline. `withheld` are drafters that can't
    stand beside an evaluation, with the reasons; the others are evaluated with it, or have been."""
    configured = [baseline.name for baseline in console.config.baselines]
    if not configured:
        return ()
    try:
        there = set(console.store.pins.entries())
    except ResultError:
        there = set()  # whoever looks for one says why none can be read
    there |= {baseline.name for baseline in console.config.baselines if baseline.drafter} - {
        name for name, _ in withheld
    }
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    source = Source("", console.config.path, "baseline")
    found = [name for name in configured if name in there]
    return (
        Fact("baselines.configured", configured, source, now),
        Fact("baselines.found", found, source, now),
        *(Fact("baselines.withheld", {"name": name, "reason": reason}, source, now) for name, reason in withheld),
    )


def as_of_now(console: Console, evaluation: Evaluation) -> Evaluation:
    """The evaluation with what became of the baselines that were to stand beside it: a run that failed is no baseline,
    and why it failed is the reason."""
    configured = [baseline.name for baseline in console.config.baselines if baseline.drafter]
    failed = [(name, why) for name in configured if (why := failure(console.store, name, evaluation)) is not None]
    if not failed or not any(fact.kind == "baselines.configured" for fact in evaluation.facts):
        return evaluation
    return replace(evaluation, facts=(*evaluation.facts, *facts(console, failed)))
