"""A planned run, from the question whether another has answered its request to the result that is shown."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts.follow import LAUNCH_SECONDS, ask, follow, held, start
from dflash_tui.console.acts.reattach import EARLIER, ELSEWHERE, begun, take_over
from dflash_tui.console.acts.shown import show
from dflash_tui.console.errors import TROUBLE
from dflash_tui.evals.errors import EvaluationError, RunEnded
from dflash_tui.records.facts import Fact, Source
from dflash_tui.records.manifest import CheckpointRef
from dflash_tui.records.result import Evaluation
from dflash_tui.results.caveats import same_weights
from dflash_tui.results.evaluation import from_run

if TYPE_CHECKING:
    from dflash_tui.console.console import Console


@dataclass(frozen=True)
class Evaluated:
    """`existing`: the same request had been answered or begun before, and that run is returned: none was started."""

    run_id: str
    existing: bool
    evaluation: Evaluation


@asynccontextmanager
async def asked(console: Console, preset: str, label: str) -> AsyncIterator[str]:
    """The turn on the evaluation host for a job called `label`, under its name; the job's pane tells how it fails, too,
    and what a cancelled one leaves."""
    async with console.waited_turn(preset) as job:
        console.emit(happened.EvaluationAsked(job, preset, label))
        try:
            yield job
        except RunEnded as error:
            console.emit(happened.EvaluationEnded(job, error.run_id, error.state, error=str(error)))
            raise
        except TROUBLE as error:
            console.emit(happened.EvaluationEnded(job, "", "failed", error=str(error)))
            raise
        except asyncio.CancelledError:
            tell_left(console, job)
            raise


async def carry(
    console: Console,
    job: str,
    command: str,
    request: str,
    harness: str,
    create: Callable[[], Awaitable[tuple[str, str]]],
    beside: Callable[[], Awaitable[Sequence[str]]] | None = None,
    taken: Callable[[str, str, str], None] | None = None,
    *,
    again: bool,
    checkpoint: CheckpointRef,
) -> Evaluated:
    """Have `request` answered by the harness's `command`. `create` makes the run directory; its id and path. `beside`
    makes those that the same process carries out after it; their paths. Where another run answers one of these, `taken`
    is called with the id that was made, the other's and its directory. `checkpoint` is what was asked for: a request is
    answered by a run of the same weights under another name too, and the result says so.

    Nothing is created when the request was answered before, or is worked on by a run that was left (that is followed
    then), unless `again`. Raises TROUBLE.
    """
    host = console.evaluation_host
    if not again and (known := console.store.find_request(request)):
        return existing(console, job, known, checkpoint)
    if not again and (left := await begun(console, harness, request)):
        if left.ended:
            return existing(console, job, left.run_id, checkpoint)
        console.emit(happened.EvaluationStarted(job, left.run_id, left.run_dir, host.name, EARLIER))
        console.emit(happened.Noticed("info", f"{left.run_id} works on the same request already; it is followed"))
        return await followed(console, job, left.run_id, left.run_dir, harness, existing=checkpoint)
    run_id, run_dir, *others = await _made(console, create, beside)
    console.emit(happened.EvaluationStarted(job, run_id, run_dir, host.name))
    try:
        works = await start(console, command, run_id, run_dir, harness, once=not again, beside=others)
    except EvaluationError:
        await ask(console, run_dir, harness, console.store.run_folder(run_id))  # its log and its end come home
        raise
    for dropped, other in works.beside.items():
        other_dir = await take_over(console, dropped, other)
        if taken is not None:
            taken(dropped, other, other_dir)
    if works.run_id != run_id:
        run_dir = await take_over(console, run_id, works.run_id)
        console.emit(happened.EvaluationStarted(job, works.run_id, run_dir, host.name, ELSEWHERE))
        return await followed(console, job, works.run_id, run_dir, harness, existing=checkpoint)
    console.emit(happened.EvaluationAdvanced(job, run_id, "starting", None, (), ()))
    return await followed(console, job, run_id, run_dir, harness)


async def _made(
    console: Console,
    create: Callable[[], Awaitable[tuple[str, str]]],
    beside: Callable[[], Awaitable[Sequence[str]]] | None,
) -> tuple[str, ...]:
    """The run's id, its directory and those beside it. Who is cancelled meanwhile leaves none of them: nothing would
    ever begin in them."""

    async def make() -> tuple[str, ...]:
        return (*await create(), *(await beside() if beside is not None else ()))

    making = asyncio.create_task(make(), name="make")
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        await asyncio.wait({making}, timeout=LAUNCH_SECONDS)
        making.cancel()
        (made,) = await asyncio.gather(making, return_exceptions=True)
        if not isinstance(made, BaseException):
            with suppress(*TROUBLE):
                await console.evaluation_host.run(["rm", "-rf", "--", *made[1:]])
                for run_dir in made[1:]:
                    console.store.forget(posixpath.basename(run_dir))
        raise


async def followed(
    console: Console, job: str, run_id: str, run_dir: str, harness: str, *, existing: CheckpointRef | None = None
) -> Evaluated:
    """Follow a run to its end and show its result; `existing` is what was asked for where another had begun it. Raises
    RunEnded when it ends without one, TROUBLE."""
    home = console.store.run_folder(run_id)
    ended = await follow(console, job, run_id, run_dir, harness, home)
    if ended.state != "finished":
        raise RunEnded(run_id, ended.state, ended.error)
    evaluation = from_run(home)
    if existing is not None:
        evaluation = _as_asked(console, evaluation, existing)
    console.emit(happened.EvaluationEnded(job, run_id, "finished"))
    show(console, evaluation)
    return Evaluated(run_id, existing is not None, evaluation)


def _as_asked(console: Console, evaluation: Evaluation, checkpoint: CheckpointRef) -> Evaluation:
    """The result with what was asked for where that is another file, or another step, of the same weights: told now,
    and a caveat of the result."""
    place = f"{checkpoint.host}:{checkpoint.path}" if checkpoint.host else checkpoint.path
    if (place, checkpoint.step) == (evaluation.checkpoint_path, evaluation.step):
        return evaluation
    at = datetime.fromtimestamp(console.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    source = Source(checkpoint.host, checkpoint.path)
    asked_for = Fact("eval.asked", {"path": place, "step": checkpoint.step}, source, at)
    evaluation = replace(evaluation, facts=(*evaluation.facts, asked_for))
    for finding in same_weights.find(evaluation):
        console.emit(happened.Noticed("info", finding.sentence))
    return evaluation


def existing(console: Console, job: str, run_id: str, checkpoint: CheckpointRef) -> Evaluated:
    """Show the result of a run that had answered the request for `checkpoint` before."""
    evaluation = _as_asked(console, from_run(console.store.run_folder(run_id)), checkpoint)
    console.emit(happened.EvaluationEnded(job, run_id, "finished", existing=True))
    show(console, evaluation)
    return Evaluated(run_id, True, evaluation)


def tell_left(console: Console, job: str) -> None:
    """Say what a cancelled job leaves: nothing, or a run that goes on."""
    pane = console.state.evaluation
    if pane.job != job or pane.state != "running":
        console.emit(happened.EvaluationEnded(job, "", "stopped", error="stopped before it was started"))
        return
    follows = f"the same request, or dflash-tui show {pane.run_id}, follows it"
    found = "it ends when this console closes" if held(console, pane.run_id) else follows
    sentence = f"{pane.run_id} goes on at {pane.host}; {found}"
    console.emit(happened.Noticed("info", sentence))
    console.emit(happened.EvaluationEnded(job, pane.run_id, "stopped", error=sentence))
