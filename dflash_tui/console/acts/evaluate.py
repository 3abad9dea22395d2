"""Evaluate a checkpoint: bring it, look, create the run, start it, follow it, show the result."""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts import baselines, fetch
from dflash_tui.console.acts.carry import Evaluated, asked, carry
from dflash_tui.console.errors import ConsoleError
from dflash_tui.evals import rundir
from dflash_tui.evals.errors import EvaluationRefused
from dflash_tui.evals.plan import Origin, Plan, Wish, plan_evaluation
from dflash_tui.evals.preflight import preflight
from dflash_tui.evals.ship import harness_file, ship
from dflash_tui.evals.survey import survey
from dflash_tui.hosts.base import FileMissing, Host, Stat
from dflash_tui.measure.anchors import PRESETS
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.requests import SurveyRequest
from dflash_tui.records.survey import Survey

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

WEIGHT_ENDINGS = (".safetensors", ".pt", ".bin")


@dataclass(frozen=True)
class Subject:
    """What is evaluated, as it lies on the evaluation host. `path` is what the harness opens; `facts` are the
    training's, as of now."""

    origin: Origin
    folder: str
    names: tuple[str, ...]
    path: str
    facts: tuple[Fact, ...]


async def evaluate(
    console: Console,
    *,
    preset: str = "quick",
    step: int | None = None,
    block_size: int = 0,
    again: bool = False,
    model: str = "",
    label: str = "",
) -> Evaluated:
    """Evaluate the newest complete checkpoint (or that of `step`), or `model`: a drafter that lies on the evaluation
    host and belongs to no training.

    Starts nothing when the same request was answered before, or is being answered by a run that was left (that is
    followed then), unless `again`. Raises TROUBLE; the job's pane tells it too. Cancelling detaches: the run goes on.
    """
    if preset not in PRESETS:
        raise ConsoleError(f"preset: found {preset!r}, expected {' or '.join(PRESETS)}")
    label = label or ("newest checkpoint" if step is None else f"step {step}")
    async with asked(console, preset, label) as job:
        subject = await (_model(console, model) if model else _fetched(console, step, job, preset))
        return await _evaluate(console, job, subject, preset, block_size, again)


async def look(console: Console, harness: str, checkpoint: str | None, prompts_asked: int) -> Survey:
    """Survey the evaluation host for a checkpoint."""
    settings = console.evaluation
    drafter = dict(console.config.drafter)
    request = SurveyRequest(
        checkpoint=checkpoint,
        target=settings.target,
        prompts_path=settings.prompts,
        hidden_states=settings.hidden_states[0],
        space_at=settings.root,
        drafter_config=drafter.pop("config", None),
        overrides=drafter,
        prompts_asked=prompts_asked,
    )
    return await survey(console.evaluation_host, settings.python, harness, request)


async def _fetched(console: Console, step: int | None, job: str, preset: str) -> Subject:
    """The newest checkpoint, brought to the evaluation host, with the training's facts as of now."""
    snapshot = await fetch.snapshot_of(console)
    checkpoint = fetch.newest(snapshot, step)
    for problem in snapshot.problems:  # the evaluation goes on, but a caveat may lack its evidence
        console.emit(happened.Noticed("warn", f"not known of the training: {problem}"))
    await _refuse_early(console, checkpoint, preset)
    fetched = await fetch.bring(console, checkpoint, job)
    origin = Origin(
        host=checkpoint.host,
        path=checkpoint.path,
        training=console.config.training.name,
        step=checkpoint.step,
        size=checkpoint.size,
        mtime=checkpoint.mtime,
        inode=checkpoint.inode,
        sha256=fetched.sha256 if len(checkpoint.files) == 1 else None,
    )
    return Subject(origin, fetched.folder, fetched.names, opened(fetched.folder, fetched.names), snapshot.facts)


async def _refuse_early(console: Console, checkpoint: SavedCheckpoint, preset: str) -> None:
    """Find out what makes an evaluation impossible before gigabytes are moved for it. Raises EvaluationRefused."""
    host, settings = console.evaluation_host, console.evaluation
    try:
        await host.stat(fetch.wanted_folder(console, checkpoint))
    except FileMissing:
        prompts, _ = PRESETS[preset]
        found = await look(console, await ship(host, settings.root), None, prompts)
        if refusals := preflight(found, host.name, settings.threads or 1).refusals:
            raise EvaluationRefused("; ".join(refusals)) from None


async def _model(console: Console, path: str) -> Subject:
    """A drafter that lies on the evaluation host: a folder, or a weights file with what lies beside it."""
    host = console.evaluation_host
    found = await host.stat(path)
    if found.kind == "folder":
        entries = await host.list(path)
        names = tuple(entry.name for entry in entries if entry.stat.kind == "file" and _belongs(entry.name))
        if not any(name.endswith(WEIGHT_ENDINGS) for name in names):
            raise ConsoleError(f"{host.name}:{path}: no weights in it; expected *.safetensors, *.bin or *.pt")
        size = sum(entry.stat.size for entry in entries if entry.name in names)
        return Subject(_standing(host, path, found, size), path, names, path, ())
    folder, name = posixpath.split(path)
    names = await fetch.with_sidecars(host, folder, (name,))
    return Subject(_standing(host, path, found, found.size), folder, names, path, ())


def _belongs(name: str) -> bool:
    return name.endswith((*WEIGHT_ENDINGS, ".json")) and not name.startswith(".")


def _standing(host: Host, path: str, found: Stat, size: int) -> Origin:
    return Origin(host.name, path, "", None, size, found.mtime, found.inode)


def opened(folder: str, names: Sequence[str]) -> str:
    """What the harness opens: the single weights file, or the folder of a format that has several files."""
    return posixpath.join(folder, names[0]) if len(names) == 1 else folder


async def _evaluate(
    console: Console, job: str, subject: Subject, preset: str, block_size: int, again: bool
) -> Evaluated:
    host, settings = console.evaluation_host, console.evaluation
    harness = await ship(host, settings.root)
    prompts, _ = PRESETS[preset]
    found = await look(console, harness, subject.path, prompts)
    cache = settings.hidden_states[0]
    wish = Wish(preset, block_size or settings.block_size, settings.threads, settings.prompts, cache)
    facts = (*subject.facts, *baselines.facts(console))
    now = datetime.fromtimestamp(console.clock(), UTC)
    plan = plan_evaluation(wish, subject.origin, found, host.name, harness_file().sha256, facts, now)
    console.emit(_told(job, plan))

    async def create() -> tuple[str, str]:
        return await _create(console, host, subject, plan, now)

    return await carry(console, job, "evaluate", plan.manifest.request_id, harness, create, again=again)


def _told(job: str, plan: Plan) -> happened.PlanMade:
    manifest = plan.manifest
    return happened.PlanMade(
        job,
        manifest.checkpoint.step,
        plan.lines,
        tuple(prompt.id for prompt in manifest.prompts),
        plan.prompts_present,
        manifest.blocks_per_prompt,
        plan.warnings,
    )


async def _create(console: Console, host: Host, subject: Subject, plan: Plan, now: datetime) -> tuple[str, str]:
    """The run directory with its link and manifest; at home, the manifest at once: a run is never unknown here."""
    manifest = plan.manifest
    checkpoint = manifest.checkpoint
    training = checkpoint.training or posixpath.basename(subject.folder.rstrip("/"))
    name = rundir.run_name(training, checkpoint.step, manifest.preset, manifest.block_size, now)
    root = console.evaluation.root
    run_id, run_dir = await rundir.create_run(host, root, name)
    linked = await rundir.link_checkpoint(host, subject.folder, subject.names, run_dir)
    at = manifest.created_at
    facts = (
        *manifest.facts,
        Fact("link.method", linked.method, Source(host.name, run_dir, linked.path), at),
        Fact("run.directory", run_dir, Source(host.name, run_dir), at),
    )
    manifest = replace(
        manifest,
        run_id=run_id,
        checkpoint=replace(checkpoint, linked=linked.path, link_method=linked.method),
        command=tuple(sys.argv),
        facts=facts,
    )
    await rundir.write_manifest(host, run_dir, manifest)
    rundir.keep_manifest(console.store.run_folder(run_id), manifest)
    return run_id, run_dir
