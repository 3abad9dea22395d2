"""The headless commands that need only what this workstation keeps."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dflash_tui.console.acts.shown import default_name, matching
from dflash_tui.console.answers import (
    Compared,
    ImportAnswer,
    Logs,
    ReportAnswer,
    RunLine,
    Runs,
    Show,
    UnpinAnswer,
    entry,
)
from dflash_tui.records.codec import RecordError, loads
from dflash_tui.records.result import Evaluation, Results
from dflash_tui.results.baselines import resolve, runs_of
from dflash_tui.results.caveats import caveats_of, voided
from dflash_tui.results.common import on_common_parts
from dflash_tui.results.compare import compare as set_against
from dflash_tui.results.errors import ResultError, UnknownReference
from dflash_tui.results.evaluation import facts_of, from_run
from dflash_tui.results.importers import import_file
from dflash_tui.results.pins import Pin
from dflash_tui.results.report import report as markdown
from dflash_tui.results.store import Store, StoredRun, listed


def runs(store: Store, arguments: argparse.Namespace) -> Runs:
    """Every run, oldest first, and the pins. What is damaged is said and hides nothing else."""
    problems: list[str] = []
    lines = tuple(_line(run, problems) for run in reversed(store.runs()))
    try:
        pins = tuple({"name": name, **asdict(pin)} for name, pin in store.pins.entries().items())
    except ResultError as error:
        pins = ()
        problems.append(str(error))
    return Runs(lines, pins, tuple(problems))


def show(store: Store, arguments: argparse.Namespace) -> Show:
    """One result."""
    evaluation = resolve(store, arguments.result)
    return Show(path=evaluation.path, result=entry(evaluation, caveats_of(evaluation)))


def logs(store: Store, arguments: argparse.Namespace) -> Logs:
    """The last lines of a run's log as it came home; a baseline drafter's name means its newest run."""
    run = store.run_called(arguments.result) or next(iter(runs_of(store, arguments.result)), None)
    if run is None:
        name = arguments.result
        what = f"{name!r} is a pin, which keeps no log" if name in store.pins.entries() else f"no run {name!r}"
        raise UnknownReference(f"{what}; runs: {listed([run.run_id for run in store.runs()])}")
    path = run.folder / "log.txt"
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise ResultError(f"{path}: can't be read ({error.strerror})") from error
    return Logs(source=str(path), lines=tuple(lines[-arguments.lines :]))


def import_result(store: Store, arguments: argparse.Namespace) -> ImportAnswer:
    """Pin a result file of any known shape."""
    file = Path(arguments.file)
    return _pinned(store, file, arguments.name or file.stem, arguments.replace)


def pin(store: Store, arguments: argparse.Namespace) -> ImportAnswer | UnpinAnswer:
    """Pin a result as a baseline, or forget a pin."""
    if arguments.remove:
        return _unpinned(store, arguments.result)
    evaluation = resolve(store, arguments.result)
    return _pinned(store, Path(evaluation.path), arguments.name or default_name(evaluation), arguments.replace)


def compare(store: Store, arguments: argparse.Namespace) -> Compared:
    """One result beside another."""
    current = resolve(store, arguments.current)
    previous = matching(current, resolve(store, arguments.previous, current))
    if arguments.common:
        current, previous = on_common_parts(current, previous)
    found = set_against(current, previous)
    return Compared(
        current=entry(current, caveats_of(current)),
        previous=entry(previous, caveats_of(previous)),
        delta=found.delta,
        verdict=found.verdict,
        why=found.why,
        caveats=found.caveats,
        rows=found.rows,
        pairing=found.pairing,
        blocks=found.blocks,
    )


def unended(store: Store, reference: str) -> StoredRun | None:
    """The run that is meant, when its end is not known here."""
    run = store.run_called(reference)
    return run if run and run.manifest and run.exit is None else None


def trained_as(store: Store, reference: str) -> str | None:
    """The training that an own run's checkpoint is of; None for imported results."""
    evaluation = resolve(store, reference)
    return evaluation.training if evaluation.origin == "run" else None


def report(
    store: Store, arguments: argparse.Namespace, live_now: dict[str, Any] | None, beside: Evaluation | None = None
) -> ReportAnswer:
    """The Markdown report of a run; `live_now` is the training's newest line, None when it was not read. `beside` is
    what it is compared with where no baseline is asked for."""
    current = resolve(store, arguments.result)
    others = [resolve(store, other) for other in arguments.others]
    previous = resolve(store, arguments.against, current) if arguments.against else beside
    return ReportAnswer(markdown(current, others=others, previous=previous, live_now=live_now))


COMMANDS: dict[str, Callable[[Store, argparse.Namespace], Any]] = {
    "runs": runs,
    "show": show,
    "logs": logs,
    "import": import_result,
    "pin": pin,
    "compare": compare,
}


def blocked(answer: object) -> bool:
    """Whether an answer is a comparison that may not be made."""
    return isinstance(answer, Compared) and answer.verdict == "not comparable"


def _pinned(store: Store, path: Path, name: str, replace: bool) -> ImportAnswer:
    kept: Pin = store.pins.pin(name, path, replace=replace)
    evaluation = import_file(path, name)
    return ImportAnswer(
        name=name,
        sha256=kept.sha256,
        path=str(store.pins.folder / kept.sha256),
        result=entry(evaluation, caveats_of(evaluation)),
    )


def _unpinned(store: Store, name: str) -> UnpinAnswer:
    """What it kept stays where it is: a report may speak of it. Raises UnknownReference."""
    gone = store.pins.entries().get(name)
    store.pins.remove(name)
    assert gone is not None
    return UnpinAnswer(name, gone.sha256, str(store.pins.folder / gone.sha256), None)


def _line(run: StoredRun, problems: list[str]) -> RunLine:
    """`problems` gains a sentence where a record can't be read."""
    manifest, path, error, pooled = run.manifest, run.folder / "results.json", run.error, None
    void: tuple[str, ...] = ()
    if run.has_results and error is None:
        try:
            if (measured := _measured(run, path)) is not None:
                pooled, void = measured.pooled, tuple(finding.code for finding in voided(measured))
        except OSError as problem:
            error = f"{path}: can't be read ({problem.strerror})"
        except (RecordError, ResultError) as problem:
            error = str(problem)
    state = "damaged" if error else run.exit.state if run.exit else "running"
    if error:
        problems.append(error)
    if manifest is None:
        return RunLine(run.run_id, state, "", "", None, "", 0, {}, 0)
    return RunLine(
        run_id=run.run_id,
        state=state,
        created_at=manifest.created_at,
        training=manifest.checkpoint.training,
        step=manifest.checkpoint.step,
        preset=manifest.preset,
        block_size=manifest.block_size,
        streak=pooled.streak if pooled and not void else {},
        blocks=pooled.blocks if pooled else 0,
        baseline=manifest.baseline,
        void=void,
    )


def _measured(run: StoredRun, path: Path) -> Evaluation | None:
    """What a run has measured over all, and the facts that may void it; a script of the user's own that failed has
    measured nothing. Of our own runs no block is read: there may be many runs."""
    manifest = run.manifest
    if manifest is None or manifest.external is not None:
        return from_run(run.folder) if run.finished else None
    pooled, weights = loads(Results, path.read_bytes(), str(path)).pooled, manifest.checkpoint.weights_id
    facts = facts_of(run.folder, manifest)
    return Evaluation(run.run_id, "run", str(run.folder), "", pooled, weights_id=weights, facts=facts)
