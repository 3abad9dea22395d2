"""Evaluate a checkpoint with the user's own script."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dflash_tui.config import HarnessConfig
from dflash_tui.console import events as happened
from dflash_tui.console.acts import baselines
from dflash_tui.console.acts.carry import Evaluated, asked, carry
from dflash_tui.console.acts.subject import of_training, opened
from dflash_tui.console.errors import TROUBLE, ConsoleError
from dflash_tui.evals import external, rundir
from dflash_tui.evals.external import ExternalPlan, Script
from dflash_tui.evals.ship import ship
from dflash_tui.evals.survey import survey
from dflash_tui.measure.anchors import PRESETS
from dflash_tui.records.requests import SurveyRequest
from dflash_tui.records.survey import Survey
from dflash_tui.results.importers import known_importer

if TYPE_CHECKING:
    from dflash_tui.console.console import Console


async def evaluate_external(
    console: Console, *, preset: str = "quick", step: int | None = None, again: bool = False
) -> Evaluated:
    """Evaluate the newest complete checkpoint (or that of `step`) with the script that [harness] names.

    As `evaluate.evaluate`: starts nothing when the same request was answered or is being answered, unless `again`.
    Raises TROUBLE; the job's pane tells it too. Cancelling detaches: the run goes on.
    """
    if preset not in PRESETS:
        raise ConsoleError(f"preset: found {preset!r}, expected {' or '.join(PRESETS)}")
    config = _config(console)
    label = "own script" if step is None else f"own script, step {step}"
    async with asked(console, preset, label) as job:
        return await _evaluate(console, job, config, preset, step, again)


async def recover(console: Console) -> None:
    """Have the evaluation host put back what runs of the script did not live to put back. Raises TROUBLE."""
    host, settings = console.evaluation_host, console.evaluation
    harness = await ship(host, settings.root)
    for sentence in await external.recover(host, settings.python, harness, settings.root):
        console.emit(happened.Noticed("warn", sentence))


async def tidy(console: Console) -> None:
    """`recover` where a script is configured, before its files are read; what goes wrong is a notice."""
    if console.config.harness is None:
        return
    try:
        await recover(console)
    except TROUBLE as error:
        console.emit(happened.Noticed("warn", str(error)))


def _config(console: Console) -> HarnessConfig:
    config = console.config.harness
    if config is None:
        raise ConsoleError(
            f"{console.config.path}: no [harness], which names your own evaluation script; the README's section \"Your "
            'own harness" shows one'
        )
    known_importer(config.import_as)
    return config


async def _evaluate(
    console: Console, job: str, config: HarnessConfig, preset: str, step: int | None, again: bool
) -> Evaluated:
    host, settings = console.evaluation_host, console.evaluation
    script = Script(
        config.command, config.results, config.progress, config.import_as, tuple(config.environment.items()),
        (settings.target, settings.prompts, *settings.hidden_states),
    )  # fmt: skip
    harness = await ship(host, settings.root)
    await recover(console)
    values: dict[str, object] = {
        "prompts_file": settings.prompts,
        "target": settings.target,
        "hidden_states": settings.hidden_states[0],
        **({"block_size": settings.block_size} if settings.block_size else {}),
    }
    looked = await external.look(host, settings.python, harness, external.looked_for(script, values), settings.root)
    subject = await of_training(console, step, job, None)
    found = await _survey(console, harness, opened(subject.folder, subject.names), preset)
    values["threads"] = settings.threads or max(1, found.host.cpus_usable - 1)
    facts = (*subject.facts, *baselines.facts(console))
    now = datetime.fromtimestamp(console.clock(), UTC)
    plan = external.plan_external(script, preset, values, subject.origin, found, looked, host.name, facts, now)
    console.emit(happened.PlanMade(job, plan.manifest.checkpoint.step, plan.lines, warnings=plan.warnings))

    async def create() -> tuple[str, str]:
        return await _create(console, plan, subject.folder, subject.names)

    return await carry(
        console,
        job,
        "external",
        plan.manifest.request_id,
        harness,
        create,
        again=again,
        checkpoint=plan.manifest.checkpoint,
    )


async def _survey(console: Console, harness: str, checkpoint: str, preset: str) -> Survey:
    """The machine, and what can be read of the checkpoint: no error here, a script may know more than we do."""
    settings, drafter = console.evaluation, dict(console.config.drafter)
    request = SurveyRequest(
        checkpoint=checkpoint,
        target=settings.target,
        prompts_path=settings.prompts,
        space_at=settings.root,
        drafter_config=drafter.pop("config", None),
        overrides=drafter,
        prompts_asked=PRESETS[preset][0],
    )
    return await survey(console.evaluation_host, settings.python, harness, request)


async def _create(console: Console, plan: ExternalPlan, folder: str, names: tuple[str, ...]) -> tuple[str, str]:
    """The run directory; at home, its manifest at once: a run is never unknown here."""
    plan = replace(plan, manifest=replace(plan.manifest, command=tuple(sys.argv)))
    manifest, run_dir = await external.create(console.evaluation_host, console.evaluation.root, plan, folder, names)
    rundir.keep_manifest(console.store.run_folder(manifest.run_id), manifest)
    return manifest.run_id, run_dir
