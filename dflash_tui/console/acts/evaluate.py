"""Evaluate a checkpoint: bring it, look, create the run, start it, follow it, show the result."""

from __future__ import annotations

import asyncio
import posixpath
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts import baselines, fetch
from dflash_tui.console.acts.follow import ask, follow, start
from dflash_tui.console.acts.reattach import begun, take_over
from dflash_tui.console.acts.shown import show
from dflash_tui.console.errors import TROUBLE, ConsoleError
from dflash_tui.evals import rundir
from dflash_tui.evals.errors import EvaluationError, EvaluationRefused, RunEnded
from dflash_tui.evals.plan import Origin, Plan, Wish, plan_evaluation
from dflash_tui.evals.preflight import preflight
from dflash_tui.evals.ship import harness_file, ship
from dflash_tui.evals.survey import survey
from dflash_tui.hosts.base import FileMissing, Host, Stat
from dflash_tui.measure.anchors import PRESETS
from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.requests import SurveyRequest
from dflash_tui.records.result import Evaluation
from dflash_tui.records.survey import Survey
from dflash_tui.results.evaluation import from_run

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

WEIGHT_ENDINGS = (".safetensors", ".pt", ".bin")


@dataclass(frozen=True)
class Evaluated:
    """`existing`: the same request had been answered or begun before, and that run is returned: none was started."""

    run_id: str
    existing: bool
    evaluation: Evaluation


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
    async with console.waited_turn(preset) as job:
        label = label or ("newest checkpoint" if step is None else f"step {step}")
        console.emit(happened.EvaluationAsked(job, preset, label))
        try:
            subject = await (_model(console, model) if model else _fetched(console, step, job, preset))
            return await _evaluate(console, job, subject, preset, block_size, again)
        except RunEnded as error:
            console.emit(happened.EvaluationEnded(job, error.run_id, error.state, error=str(error)))
            raise
        except TROUBLE as error:
            console.emit(happened.EvaluationEnded(job, "", "failed", error=str(error)))
            raise
        except asyncio.CancelledError:
            tell_left(console, job)
            raise


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
        asked, _ = PRESETS[preset]
        found = await look(console, await ship(host, settings.root), None, asked)
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
    asked, _ = PRESETS[preset]
    found = await look(console, harness, subject.path, asked)
    cache = settings.hidden_states[0]
    wish = Wish(preset, block_size or settings.block_size, settings.threads, settings.prompts, cache)
    facts = (*subject.facts, *baselines.facts(console))
    now = datetime.fromtimestamp(console.clock(), UTC)
    plan = plan_evaluation(wish, subject.origin, found, host.name, harness_file().sha256, facts, now)
    console.emit(_told(job, plan))
    request = plan.manifest.request_id
    if not again and (known := console.store.find_request(request)):
        return _existing(console, job, known)
    if not again and (left := await begun(console, harness, request)):
        if left.ended:
            return _existing(console, job, left.run_id)
        console.emit(happened.EvaluationStarted(job, left.run_id, left.run_dir, host.name))
        console.emit(happened.Noticed("info", f"{left.run_id} works on the same request already; it is followed"))
        return await _followed(console, job, left.run_id, left.run_dir, harness, existing=True)
    run_id, run_dir = await _create(console, host, subject, plan, now)
    console.emit(happened.EvaluationStarted(job, run_id, run_dir, host.name))
    try:
        works = await start(console, "evaluate", run_id, run_dir, harness, once=not again)
    except EvaluationError:
        await ask(console, run_dir, harness, console.store.run_folder(run_id))  # its log and its end come home
        raise
    if works != run_id:
        run_dir = await take_over(console, run_id, works)
        console.emit(happened.EvaluationStarted(job, works, run_dir, host.name))
        return await _followed(console, job, works, run_dir, harness, existing=True)
    return await _followed(console, job, run_id, run_dir, harness, existing=False)


async def _followed(
    console: Console, job: str, run_id: str, run_dir: str, harness: str, *, existing: bool
) -> Evaluated:
    home = console.store.run_folder(run_id)
    ended = await follow(console, job, run_id, run_dir, harness, home)
    if ended.state != "finished":
        raise RunEnded(run_id, ended.state, ended.error)
    evaluation = from_run(home)
    console.emit(happened.EvaluationEnded(job, run_id, "finished"))
    show(console, evaluation)
    return Evaluated(run_id, existing, evaluation)


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


def _existing(console: Console, job: str, run_id: str) -> Evaluated:
    evaluation = from_run(console.store.run_folder(run_id))
    console.emit(happened.EvaluationEnded(job, run_id, "finished", existing=True))
    show(console, evaluation)
    return Evaluated(run_id, True, evaluation)


def tell_left(console: Console, job: str) -> None:
    """Say what a cancelled job leaves: nothing, or a run that goes on."""
    pane = console.state.evaluation
    if pane.job != job or pane.state != "running":
        console.emit(happened.EvaluationEnded(job, "", "stopped", error="stopped before it was started"))
        return
    sentence = f"{pane.run_id} goes on at {pane.host}; the same request finds it again"
    console.emit(happened.Noticed("info", sentence))
    console.emit(happened.EvaluationEnded(job, pane.run_id, "stopped", error=sentence))
