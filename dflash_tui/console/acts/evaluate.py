"""Evaluate a checkpoint, or a drafter of no training: bring it, look, plan, and have it carried out."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts import baselines, beside
from dflash_tui.console.acts.beside import Beside
from dflash_tui.console.acts.carry import Evaluated, asked, carry
from dflash_tui.console.acts.follow import start
from dflash_tui.console.acts.like import like_of, preset_of, shown_baseline
from dflash_tui.console.acts.reattach import take_over
from dflash_tui.console.acts.shown import show
from dflash_tui.console.acts.subject import Subject, of_model, of_training
from dflash_tui.console.acts.survey import Asked, look
from dflash_tui.console.errors import TROUBLE, ConsoleError
from dflash_tui.evals import rundir
from dflash_tui.evals.caches import choose
from dflash_tui.evals.errors import EvaluationError
from dflash_tui.evals.like import Like
from dflash_tui.evals.plan import Plan, Wish, plan_evaluation
from dflash_tui.evals.ship import harness_file, ship
from dflash_tui.measure.anchors import PRESETS
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.result import Evaluation

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

Made = dict[str, tuple[str, str]]
"""Run directories that were made for baselines: name to run id and path."""


@dataclass(frozen=True)
class _Request:
    """What was asked for: `model` is a drafter of no training instead of a checkpoint, `config` describes it; `like` is
    a result to be set against."""

    preset: str
    step: int | None
    block_size: int
    model: str
    config: str
    like: Like | None


async def evaluate(
    console: Console,
    *,
    preset: str = "quick",
    step: int | None = None,
    block_size: int = 0,
    again: bool = False,
    model: str = "",
    drafter_config: str = "",
    like: Evaluation | None = None,
    label: str = "",
) -> Evaluated:
    """Evaluate the newest complete checkpoint (or that of `step`), or `model`: a drafter of no training, HOST:PATH or a
    path on the evaluation host, that `drafter_config` (a path there) describes where nothing beside it does. `like` a
    result: on its prompts, blocks, block size, anchors and hidden states, as far as it records them. Configured
    baseline drafters are evaluated in the same job, after it.

    Starts nothing when the same request was answered before, or is being answered by a run that was left (that is
    followed then), unless `again`. Raises TROUBLE; the job's pane tells it too. Cancelling detaches: the run goes on.
    """
    if preset not in PRESETS:
        raise ConsoleError(f"preset: found {preset!r}, expected {' or '.join(PRESETS)}")
    wanted = like_of(like, console.evaluation.host) if like is not None else None
    if wanted is not None and block_size and wanted.block_size not in (0, block_size):
        raise ConsoleError(
            f"block size: found {block_size}, but {wanted.name} was evaluated at {wanted.block_size}; leave it out, or "
            "evaluate without --like"
        )
    shown = preset_of(wanted, preset)[0] if wanted is not None else preset
    label = label or model or ("newest checkpoint" if step is None else f"step {step}")
    async with asked(console, shown, label) as job:
        return await _evaluate(console, job, _Request(preset, step, block_size, model, drafter_config, wanted), again)


async def evaluate_like_baseline(console: Console) -> Evaluated:
    """Evaluate the newest checkpoint as the baseline that is shown was. Raises TROUBLE."""
    return await evaluate(console, like=shown_baseline(console))


async def _evaluate(console: Console, job: str, request: _Request, again: bool) -> Evaluated:
    host, like, settings = console.evaluation_host, request.like, console.evaluation
    preset, blocks = preset_of(like, request.preset) if like else (request.preset, 0)
    count = (like.prompt_count if like else 0) or PRESETS[request.preset][0]
    prompts = Asked(count, like.prompts if like else (), like=like)
    if request.model:
        subject = await of_model(console, request.model, request.config, job, prompts)
    else:
        subject = await of_training(console, request.step, job, prompts)
    harness = await ship(host, settings.root)
    found, cache = choose(await look(console, harness, subject.weights, prompts), like.wanted if like else None)
    block_size = request.block_size or (like.block_size if like else 0) or settings.block_size
    wish = Wish(preset, block_size, settings.threads, settings.prompts, cache, blocks, subject.name, like=like)
    now = datetime.fromtimestamp(console.clock(), UTC)
    plan = plan_evaluation(wish, subject.origin, found, host.name, harness_file().sha256, subject.facts, now)
    plan = _described(console, plan, wish, subject)
    console.emit(beside.told(job, plan))
    gathered = await beside.gather(console, job, harness, plan, wish)
    plan = _learnt(plan, baselines.facts(console, gathered.found, gathered.withheld))
    return await _carried_out(console, job, harness, subject, plan, gathered.beside, again)


def _described(console: Console, plan: Plan, wish: Wish, subject: Subject) -> Plan:
    """With what the console knows of how it came to this plan: the folder that was chosen, the result that it is like,
    and a config that was named and said nothing."""
    manifest, like, named = plan.manifest, wish.like, subject.weights.config
    cache = {"folder": wish.cache.folder, "why": wish.cache.why, "usable": wish.cache.usable}
    config = Source("", console.config.path, "evaluation.hidden_states")
    facts = [Fact("cache.chosen", cache, config, manifest.created_at)]
    if like is not None:
        copied = {"name": like.name, "sha256": like.sha256, "copied": like.copied, "unrecorded": list(like.unrecorded)}
        facts.append(Fact("eval.like", copied, Source("", like.path), manifest.created_at))
    if named and subject.name and not any(said.startswith(named) for said in manifest.settings.sources.values()):
        sentence = f"{named} was not needed: what lies beside the weights says it all"
        plan = replace(plan, warnings=(*plan.warnings, sentence))
    return _learnt(plan, facts)


def _learnt(plan: Plan, facts: list[Fact] | tuple[Fact, ...]) -> Plan:
    return replace(plan, manifest=replace(plan.manifest, facts=(*plan.manifest.facts, *facts)))


async def _carried_out(
    console: Console, job: str, harness: str, subject: Subject, plan: Plan, others: tuple[Beside, ...], again: bool
) -> Evaluated:
    """The evaluation, then the baselines beside it: by one process, where it is not answered yet."""
    made: Made = {}

    async def create() -> tuple[str, str]:
        return await _create(console, subject, plan)

    async def aside() -> list[str]:
        made.update(await _made(console, others))
        return [run_dir for _, run_dir in made.values()]

    request = plan.manifest.request_id
    try:
        done = await carry(
            console,
            job,
            "evaluate",
            request,
            harness,
            create,
            aside,
            lambda *words: _take(made, *words),
            again=again,
            checkpoint=plan.manifest.checkpoint,
        )
    except EvaluationError:
        for run_id, run_dir in made.values():  # they have ended with it
            await beside.bring_end(console, harness, run_id, run_dir)
        raise
    if not others:
        return done
    if done.existing and not made:
        made = await _started(console, harness, others)
    await _ended(console, job, harness, others, made)
    evaluation = baselines.as_of_now(console, done.evaluation)
    show(console, evaluation)
    return replace(done, evaluation=evaluation)


def _take(made: Made, dropped: str, run_id: str, run_dir: str) -> None:
    """A run that another console began stands in the place of one that was made for the same baseline."""
    made.update({name: (run_id, run_dir) for name, (known, _) in made.items() if known == dropped})


async def _made(console: Console, others: tuple[Beside, ...]) -> Made:
    """Run directories for the baselines that are to be evaluated. One that can't be made is told: the others go on."""
    made: Made = {}
    for item in others:
        if item.waits:
            try:
                made[item.name] = await _create(console, item.subject, item.plan)
            except TROUBLE as error:
                console.emit(happened.Noticed("warn", f"baseline {item.name} is not evaluated: {error}"))
    return made


async def _started(console: Console, harness: str, others: tuple[Beside, ...]) -> Made:
    """The baselines started alone, by one process, where the result that they stand beside is there already."""
    made = await _made(console, others)
    if not made:
        return made
    (run_id, run_dir), *rest = made.values()
    try:
        beside_it = [folder for _, folder in rest]
        works = await start(console, "evaluate", run_id, run_dir, harness, once=True, beside=beside_it)
        taken = {**works.beside, **({run_id: works.run_id} if works.run_id != run_id else {})}
        for dropped, other in taken.items():
            _take(made, dropped, other, await take_over(console, dropped, other))
    except TROUBLE as error:
        console.emit(happened.Noticed("warn", f"baselines are not evaluated: {error}"))
        for other_id, other_dir in made.values():
            await beside.bring_end(console, harness, other_id, other_dir)
        return {}
    return made


async def _ended(console: Console, job: str, harness: str, others: tuple[Beside, ...], made: Made) -> None:
    """Follow the baselines that work, or wait in the same process, to their ends."""
    for item in others:
        run = made.get(item.name) or ((item.left.run_id, item.left.run_dir) if item.left is not None else None)
        if run is None:
            continue
        try:
            await beside.follow_one(console, job, harness, item, *run)
        except TROUBLE as error:
            console.emit(happened.EvaluationEnded(job, run[0], "failed", error=f"baseline {item.name}: {error}"))
            console.emit(happened.Noticed("warn", f"baseline {item.name}: {error}"))


async def _create(console: Console, subject: Subject, plan: Plan) -> tuple[str, str]:
    """The run directory with its link and manifest; at home, the manifest at once: a run is never unknown here."""
    host, manifest = console.evaluation_host, plan.manifest
    checkpoint = manifest.checkpoint
    called = checkpoint.training or (f"baseline-{manifest.baseline}" if manifest.baseline else subject.name)
    now = datetime.fromtimestamp(console.clock(), UTC)
    name = rundir.run_name(called, checkpoint.step, manifest.preset, manifest.block_size, now)
    run_id, run_dir = await rundir.create_run(host, console.evaluation.root, name)
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
