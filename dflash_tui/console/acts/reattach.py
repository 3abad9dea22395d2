"""Evaluations whose end is not known here: found again, asked after, followed to their end."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts.follow import ask, follow
from dflash_tui.console.acts.shown import show, show_newest
from dflash_tui.console.errors import TROUBLE
from dflash_tui.evals.errors import RunEnded, ending
from dflash_tui.evals.plan import CAPTURE_REFUSED
from dflash_tui.evals.rundir import keep_manifest
from dflash_tui.evals.ship import ship
from dflash_tui.records.codec import loads
from dflash_tui.records.manifest import Manifest
from dflash_tui.results.evaluation import from_run, read_manifest
from dflash_tui.results.store import Store, StoredRun

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

EARLIER = "started from this workstation before, or by another console on it"
ELSEWHERE = "started from another workstation"


@dataclass(frozen=True)
class Left:
    """A run whose end was not known here. `ended` is True when it has finished meanwhile and its results came home."""

    run_id: str
    run_dir: str
    home: Path
    ended: bool


def left_running(store: Store, host: str) -> tuple[str, ...]:
    """Runs on `host` whose end is not known here, oldest first; baselines' after those that they stand beside."""
    left = [run for run in reversed(store.runs()) if run.exit is None and run_directory(run, host)]
    return tuple(run.run_id for run in sorted(left, key=lambda run: bool(run.manifest and run.manifest.baseline)))


def run_directory(run: StoredRun, host: str) -> str:
    """Where a run lies on `host`; "" when it lies elsewhere, or is not known well enough."""
    return _directory(run.manifest, host) if run.manifest else ""


async def begun(console: Console, harness: str, request_id: str, baseline: str | None = None) -> Left | None:
    """The run (of `baseline`, where one is named) that answers a request already or still works on it, though its end
    was not known here.

    The host is asked after each such run; one that failed, was stopped or lost is told, and stands in nobody's way.
    Raises TROUBLE.
    """
    for run in console.store.unended(request_id):
        if baseline is not None and (run.manifest is None or run.manifest.baseline != baseline):
            continue
        if not (run_dir := run_directory(run, console.evaluation_host.name)):
            continue
        update = await ask(console, run_dir, harness, run.folder)
        if update.state in ("starting", "running", "finished"):
            return Left(run.run_id, run_dir, run.folder, update.state == "finished")
        console.emit(happened.Noticed("warn", f"{run.run_id} was {ending(update.state, update.error)}"))
    return None


async def take_over(console: Console, dropped: str, run_id: str) -> str:
    """Know a run of the same request here, which another console has started, in place of `dropped`, which never began
    and is forgotten. Returns its run directory. Raises TROUBLE."""
    host = console.evaluation_host
    run_dir = posixpath.join(console.evaluation.root, "runs", run_id)
    path = posixpath.join(run_dir, "manifest.json")
    text = await host.read(path, 0, (await host.stat(path)).size)
    keep_manifest(console.store.run_folder(run_id), loads(Manifest, text, f"{host.name}:{path}"))
    console.store.forget(dropped)
    console.emit(happened.Noticed("info", f"{run_id} answers the same request, asked elsewhere; none is started"))
    return run_dir


async def look_after(console: Console, run_id: str) -> None:
    """Bring home what a run has written so far, and its end where it has ended. Raises TROUBLE."""
    home = console.store.run_folder(run_id)
    run_dir = _directory(read_manifest(home), console.evaluation_host.name)
    harness = await ship(console.evaluation_host, console.evaluation.root)
    await ask(console, run_dir, harness, home)


async def reattach(console: Console, run_id: str) -> None:
    """Follow a run that was started earlier; its result is shown when it ends. Raises TROUBLE."""
    home = console.store.run_folder(run_id)
    manifest = read_manifest(home)
    host = console.evaluation_host
    run_dir = _directory(manifest, host.name)
    job = console.new_job()
    async with console.turn:
        console.emit(happened.EvaluationAsked(job, manifest.preset, f"found again: {run_id}"))
        console.emit(
            happened.PlanMade(
                job,
                manifest.checkpoint.step,
                (f"{run_id}: attached again",),
                tuple(prompt.id for prompt in manifest.prompts),
                tuple(prompt.id for prompt in manifest.prompts if prompt.features),
                manifest.blocks_per_prompt,
                subject=f"baseline {manifest.baseline}" if manifest.baseline else "",
                captures=all(fact.kind != CAPTURE_REFUSED for fact in manifest.facts),
            )
        )
        console.emit(happened.EvaluationStarted(job, run_id, run_dir, host.name, EARLIER))
        try:
            harness = await ship(host, console.evaluation.root)
            ended = await ask(console, run_dir, harness, home)
            if ended.state != "lost":
                ended = await follow(console, job, run_id, run_dir, harness, home)
            if ended.state != "finished":
                raise RunEnded(run_id, ended.state, ended.error)
        except RunEnded as error:
            console.emit(happened.EvaluationEnded(job, run_id, error.state, error=str(error)))
            raise
        except TROUBLE as error:
            console.emit(happened.EvaluationEnded(job, run_id, "failed", error=str(error)))
            raise
        console.emit(happened.EvaluationEnded(job, run_id, "finished"))
        if manifest.baseline:
            show_newest(console)  # it has something to stand beside now
        else:
            show(console, from_run(home))


def _directory(manifest: Manifest, host: str) -> str:
    facts = (fact for fact in manifest.facts if fact.kind == "run.directory" and fact.source.host == host)
    return next((str(fact.value) for fact in facts), "")
