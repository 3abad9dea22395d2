"""Names of results that a person gives before there is work: refused at once where they mean nothing."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from dflash_tui.console.errors import ConsoleError
from dflash_tui.records.result import Evaluation
from dflash_tui.results.baselines import failure, resolve, runs_of
from dflash_tui.results.errors import ResultError, UnknownReference

if TYPE_CHECKING:
    from dflash_tui.console.console import Console


def check_name(console: Console, option: str, reference: str) -> None:
    """Refuse what is neither a run, pin, file nor configured baseline, with the nearest name. Raises ResultError."""
    configured = [baseline.name for baseline in console.config.baselines]
    if reference in configured:
        return
    try:
        resolve(console.store, reference)
    except UnknownReference as error:
        known = [*configured, *console.store.pins.entries(), *(run.run_id for run in console.store.runs())]
        near = difflib.get_close_matches(reference, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; configured baselines: {', '.join(configured) or 'none'}"
        raise UnknownReference(f"{option}: {error}{hint}") from error


def check_brought(console: Console, option: str, reference: str) -> None:
    """Refuse a configured baseline that is a file and could not be read, after it was tried. Raises ConsoleError."""
    files = {baseline.name: baseline for baseline in console.config.baselines if not baseline.drafter}
    if reference in files and reference not in console.store.pins.entries():
        item = files[reference]
        raise ConsoleError(
            f"{option} {reference}: the baseline's file {item.host or 'local'}:{item.file} could not be read, so there "
            "is nothing to compare with; dflash-tui check says more"
        )


def named(console: Console, option: str, reference: str) -> Evaluation:
    """The result that is meant. Raises ConsoleError for a baseline drafter that was not evaluated yet, ResultError."""
    if waits(console, reference):
        raise ConsoleError(
            f"{option} {reference}: this baseline is a drafter that has not been evaluated yet, so it records nothing "
            f"to copy; dflash-tui eval --against {reference} evaluates it beside a checkpoint"
        )
    return resolve(console.store, reference)


def waits(console: Console, reference: str) -> bool:
    """Whether this is a configured baseline drafter that has no result yet."""
    if not any(baseline.drafter and baseline.name == reference for baseline in console.config.baselines):
        return False
    return reference not in console.store.pins.entries() and not any(
        run.finished for run in runs_of(console.store, reference)
    )


def why_alone(console: Console, reference: str, evaluation: Evaluation) -> str:
    """Why nothing stands beside a result that `reference` was to stand beside, one sentence; "" where it can't be read,
    which whoever looked for it has told."""
    if not waits(console, reference):
        try:
            resolve(console.store, reference, evaluation)
        except ResultError:
            return ""
        return f"no comparison with {reference}: it is this very result"
    withheld = [fact.value for fact in evaluation.facts if fact.kind == "baselines.withheld"]
    reasons = [value["reason"] for value in withheld if isinstance(value, dict) and value.get("name") == reference]
    reason = reasons[-1] if reasons else failure(console.store, reference, evaluation)
    return f"no comparison with {reference}: {reason or 'it was not evaluated beside this'}"
