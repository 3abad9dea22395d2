"""Evaluations that were running when the last face closed: found again, followed to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts.follow import follow
from dflash_tui.console.acts.shown import show
from dflash_tui.console.errors import TROUBLE
from dflash_tui.evals.errors import RunEnded
from dflash_tui.evals.ship import ship
from dflash_tui.records.facts import Fact
from dflash_tui.results.evaluation import from_run, read_manifest
from dflash_tui.results.store import Store

if TYPE_CHECKING:
    from dflash_tui.console.console import Console


def left_running(store: Store, host: str) -> tuple[str, ...]:
    """Runs on `host` whose end is not known here, oldest first."""
    return tuple(
        run.run_id
        for run in reversed(store.runs())
        if run.manifest and run.exit is None and _fact(run.manifest.facts, "run.directory", host)
    )


async def reattach(console: Console, run_id: str) -> None:
    """Follow a run that was started earlier; its result is shown when it ends. Raises TROUBLE."""
    home = console.store.run_folder(run_id)
    manifest = read_manifest(home)
    host = console.evaluation_host
    run_dir = _fact(manifest.facts, "run.directory", host.name)
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
            )
        )
        console.emit(happened.EvaluationStarted(job, run_id, run_dir, host.name))
        try:
            harness = await ship(host, console.config.evaluation.root)
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
        show(console, from_run(home))


def _fact(facts: tuple[Fact, ...], kind: str, host: str) -> str:
    return next((str(fact.value) for fact in facts if fact.kind == kind and fact.source.host == host), "")
