"""The headless commands that need hosts: each an act, answered as a record."""

from __future__ import annotations

import argparse
import posixpath
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from dflash_tui.console import events as happened
from dflash_tui.console.acts import baselines, external, reattach, references, saved
from dflash_tui.console.acts import capture as capturing
from dflash_tui.console.acts import clean as cleaning
from dflash_tui.console.acts import evaluate as evaluating
from dflash_tui.console.acts import fetch as fetching
from dflash_tui.console.acts import prune as pruning
from dflash_tui.console.acts import stop as stopping
from dflash_tui.console.acts.carry import Evaluated
from dflash_tui.console.acts.shown import baseline_or_notice
from dflash_tui.console.answers import (
    CaptureAnswer,
    Checkpoints,
    CleanAnswer,
    EvalAnswer,
    FetchAnswer,
    LeftAtSource,
    Logs,
    PruneAnswer,
    Status,
    StopAnswer,
    entry,
)
from dflash_tui.console.console import Console
from dflash_tui.console.errors import ConsoleError
from dflash_tui.console.quantities import ago
from dflash_tui.evals.errors import EvaluationError
from dflash_tui.hosts.base import HostError
from dflash_tui.records.codec import to_data
from dflash_tui.results.caveats import caveats_of
from dflash_tui.results.compare import compare
from dflash_tui.watch.follow import TAIL
from dflash_tui.watch.lines import LineSplitter
from dflash_tui.watch.progress import Progress, condition, line_age, step_age


async def status(console: Console, arguments: argparse.Namespace) -> Status:
    """The training, read once."""
    snapshot = await fetching.snapshot_of(console, fetching.SOON)
    training, progress = console.config.training, snapshot.progress or Progress(at=console.clock())
    complete = [item for item in snapshot.checkpoints if item.completeness == "complete"]
    newest = complete[-1] if complete else None
    behind = None
    if newest is not None and newest.step is not None and progress.step is not None and newest.step <= progress.step:
        behind = progress.step - newest.step
    return Status(
        training=training.name,
        host=training.host,
        step=progress.step,
        total=progress.total,
        loss=progress.loss,
        lr=progress.lr,
        throughput=to_data(progress.throughput),
        steps_per_second=progress.rate.steps_per_second if progress.rate else None,
        eta_seconds=None if progress.stalled else progress.eta_seconds,
        phase=progress.phase,
        last_line=progress.last_line.text if progress.last_line else "",
        seconds=line_age(progress, console.clock()),
        newest_saved=newest,
        steps_behind=behind,
        problems=snapshot.problems,
        state=condition(progress, console.clock()),
        trouble=_trouble(progress, console.clock()),
    )


def _trouble(progress: Progress, now: float) -> tuple[str, ...]:
    """What the app would warn of: a failure, no new steps, a loss that is no number."""
    said: list[str] = []
    state = condition(progress, now)
    if progress.error:
        said.append(progress.error if state != "failed" else f"failed: {progress.error}")
    elif state == "failed":
        said.append("failed: the log does not say why")
    if state in ("stale", "presumed dead"):
        silent = ago(step_age(progress, now) or 0.0).removesuffix(" ago")
        said.append(f"{state}: no new step for {silent}")
    if progress.nan:
        since = f" since step {progress.nan_since:,}" if progress.nan_since is not None else ""
        said.append(f"loss is not a number{since}")
    return tuple(said)


async def checkpoints(console: Console, arguments: argparse.Namespace) -> Checkpoints:
    """Every checkpoint of the training. A folder that can't be listed is an error, not an empty one."""
    found = await saved.checkpoints(console)
    return Checkpoints(console.training_host.name, console.config.training.checkpoints, found)


async def fetch(console: Console, arguments: argparse.Namespace) -> FetchAnswer:
    """Move a checkpoint to a host, or say what would move."""
    if arguments.limit is not None:
        console.pace.limit = arguments.limit
    fetched = await fetching.fetch(
        console,
        what=arguments.what if arguments.step is None else str(arguments.step),
        to=arguments.to,
        mode=arguments.mode,
        route=arguments.route,
        dry_run=arguments.dry_run,
    )
    cargo, plan, moved = fetched.brought.cargo, fetched.brought.plan, fetched.brought.moved
    present = sum(file.size for file in plan.files if file.present)
    return FetchAnswer(
        host=fetched.host,
        folder=fetched.folder,
        files=fetched.names,
        step=fetched.step,
        bytes=moved.bytes if moved is not None else plan.to_move - plan.resumable,
        sha256=fetched.sha256,
        seconds=moved.seconds if moved is not None else 0.0,
        already_there=fetched.already_there,
        source=f"{fetched.source}:{fetched.path}",
        original=cargo.original,
        copy=cargo.copy,
        size=plan.total,
        kept=cargo.kept,
        left=tuple(LeftAtSource(what, size) for what, size in cargo.left),
        why=cargo.why,
        route=fetched.brought.route,
        present=present,
        resumed=moved.resumed if moved is not None else plan.resumable,
        free_bytes=plan.free.bytes,
        free_inodes=plan.free.inodes,
        dry_run=arguments.dry_run,
    )


async def evaluate(console: Console, arguments: argparse.Namespace) -> EvalAnswer:
    """Fetch and evaluate a checkpoint."""
    asked = {option: name for option in ("against", "like") if (name := getattr(arguments, option))}
    for option, name in asked.items():  # a name that means nothing must not cost an evaluation
        references.check_name(console, f"--{option}", name)
    console.against = arguments.against or arguments.like
    await external.tidy(console)
    await baselines.refresh(console)
    for option, name in asked.items():
        references.check_brought(console, f"--{option}", name)
    done = await _evaluated(console, arguments)
    done = replace(done, evaluation=baselines.as_of_now(console, done.evaluation))
    previous = baseline_or_notice(console, done.evaluation)
    if previous is None and not arguments.against and arguments.like:
        console.against = None  # it is the very result that it was to be like
        previous = baseline_or_notice(console, done.evaluation)
    alone = previous is None and bool(arguments.against)
    if alone and (sentence := references.why_alone(console, arguments.against, done.evaluation)):
        console.emit(happened.Noticed("warn", sentence))
    comparison = compare(done.evaluation, previous) if previous else None
    caveats = comparison.caveats if comparison else caveats_of(done.evaluation)
    return EvalAnswer(existing=done.existing, result=entry(done.evaluation, caveats), comparison=comparison)


async def _evaluated(console: Console, arguments: argparse.Namespace) -> Evaluated:
    common = {"preset": arguments.preset or "quick", "step": arguments.step, "again": arguments.again}
    if arguments.drafter_config and not arguments.model:
        raise ConsoleError("--drafter-config describes a --model; the watched training's is config under [drafter]")
    if not arguments.external:
        return await evaluating.evaluate(
            console,
            block_size=arguments.block_size,
            model=arguments.model or "",
            drafter_config=arguments.drafter_config or "",
            like=references.named(console, "--like", arguments.like) if arguments.like else None,
            **common,
        )
    if arguments.model or arguments.like:
        raise ConsoleError("--model and --like are for our own harness; a script is told by its own arguments")
    if arguments.block_size:
        raise ConsoleError("--block-size is for our own harness; a script is told by evaluation.block_size")
    return await external.evaluate_external(console, **common)


async def capture(console: Console, arguments: argparse.Namespace) -> CaptureAnswer:
    """Make the missing hidden states."""
    done = await capturing.capture(console)
    return CaptureAnswer(
        host=console.evaluation_host.name,
        folder=done.folder,
        captured=done.captured,
        present=done.present,
        asked=done.asked,
    )


async def stop(console: Console, arguments: argparse.Namespace) -> StopAnswer:
    """Stop a run that goes on."""
    done = await stopping.stop_run(console, arguments.result)
    return StopAnswer(console.evaluation_host.name, done.run_id, done.run_dir, done.state)


async def clean(console: Console, arguments: argparse.Namespace) -> CleanAnswer:
    """Take away what nobody uses any more, or say what that would be."""
    done = await cleaning.clean(console, checkpoints=arguments.checkpoints, dry_run=arguments.dry_run)
    freed = sum(item.bytes for item in done.found)
    host, root = console.evaluation_host.name, console.evaluation.root
    return CleanAnswer(host, root, arguments.dry_run, done.found, done.kept, freed)


async def prune(console: Console, arguments: argparse.Namespace) -> PruneAnswer:
    """Take away old fetched checkpoints, or say which these would be."""
    done = await pruning.prune(console, keep=arguments.keep, older_than_days=arguments.older_than, remove=arguments.yes)
    freed = sum(item.bytes for item in done.found)
    root = posixpath.join(console.evaluation.root, "checkpoints", console.config.training.name)
    repeat = "" if arguments.yes else _again(arguments)
    return PruneAnswer(console.evaluation_host.name, root, not arguments.yes, done.found, done.kept, freed, repeat)


def _again(arguments: argparse.Namespace) -> str:
    """The same `prune`, to be carried out."""
    given = (
        ("--config", arguments.config),
        ("--state", arguments.state),
        ("--keep", arguments.keep),
        ("--older-than", None if arguments.older_than is None else f"{arguments.older_than:g}"),
    )
    words = [word for option, value in given if value is not None for word in (option, str(value))]
    return shlex.join(["dflash-tui", "prune", *words, "--yes"])


async def live_now(console: Console) -> dict[str, Any] | None:
    """The training's newest logged step as it is now; None, and a notice, when it can't be read."""
    try:
        snapshot = await fetching.snapshot_of(console)
    except HostError as error:
        console.emit(happened.Noticed("warn", f"the training can't be read now: {error}"))
        return None
    return next((fact.value for fact in snapshot.facts if fact.kind == "train.live"), None)


async def catch_up(console: Console, run_id: str, *, to_the_end: bool) -> None:
    """Bring home what a run has written since it was left; `to_the_end` waits for it. What goes wrong is a notice: what
    lies here can be shown nevertheless. A run on another host than the config's is left alone."""
    if run_id not in reattach.left_running(console.store, console.evaluation_host.name):
        return
    try:
        if to_the_end:
            await reattach.reattach(console, run_id)
        else:
            await reattach.look_after(console, run_id)
    except (EvaluationError, HostError) as error:
        console.emit(happened.Noticed("warn", str(error)))


async def training_log(console: Console, arguments: argparse.Namespace) -> Logs:
    """The last lines of the training's log."""
    host, path = console.training_host, console.config.training.log
    size = (await host.stat(path)).size
    begin = max(0, size - TAIL)
    splitter = LineSplitter(begin, None if begin else 1, partial_head=begin > 0)
    lines = [line.text for line in splitter.feed(await host.read(path, begin, size - begin), None)]
    if last := splitter.close():
        lines.append(last.text)
    return Logs(f"{host.name}:{path}", tuple(lines[-arguments.lines :]))


def blocked(answer: object, arguments: argparse.Namespace) -> bool:
    """Whether a comparison was asked for that may not, or could not, be made."""
    if not isinstance(answer, EvalAnswer) or not arguments.against:
        return False
    return answer.comparison is None or answer.comparison.verdict == "not comparable"


COMMANDS: dict[str, Callable[[Console, argparse.Namespace], Awaitable[Any]]] = {
    "status": status,
    "checkpoints": checkpoints,
    "fetch": fetch,
    "eval": evaluate,
    "capture": capture,
    "stop": stop,
    "clean": clean,
    "prune": prune,
    "logs": training_log,
}
