"""Make the hidden states that the prompt set lacks, on the evaluation host, from the target."""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts import fetch
from dflash_tui.console.acts.carry import tell_left
from dflash_tui.console.acts.follow import ask, follow, start
from dflash_tui.console.acts.subject import opened
from dflash_tui.console.acts.survey import Asked, look, trained
from dflash_tui.console.errors import TROUBLE, ConsoleError
from dflash_tui.evals import rundir
from dflash_tui.evals.attach import exit_of
from dflash_tui.evals.caches import Chosen, choose
from dflash_tui.evals.errors import EvaluationError, RunEnded
from dflash_tui.evals.ship import ship
from dflash_tui.measure.anchors import PRESETS
from dflash_tui.records.codec import dumps
from dflash_tui.records.requests import CaptureRequest
from dflash_tui.records.survey import Survey

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

NEW_TOKENS = 512


@dataclass(frozen=True)
class Captured:
    """Prompt ids: made now, there now, asked for; and the folder that has them."""

    folder: str
    captured: tuple[str, ...]
    present: tuple[str, ...]
    asked: tuple[str, ...]


async def capture(console: Console) -> Captured:
    """Capture every prompt of the full preset that has no hidden states yet. Existing files are never touched.

    A capture that was left and still works is followed; none is started beside it. Raises TROUBLE; the job's pane tells
    it too. Cancelling detaches: the capture goes on.
    """
    async with console.waited_turn("capture") as job:
        console.emit(happened.EvaluationAsked(job, "capture", "missing hidden states"))
        try:
            done = await _capture(console, job)
        except TROUBLE as error:
            console.emit(happened.CaptureEnded(job, (), str(error)))
            raise
        except asyncio.CancelledError:
            tell_left(console, job)
            raise
        console.emit(happened.CaptureEnded(job, done.captured))
        return done


async def _capture(console: Console, job: str) -> Captured:
    host, settings = console.evaluation_host, console.evaluation
    harness = await ship(host, settings.root)
    before, cache = await _chosen(console, harness, job)
    refused = [problem.sentence for problem in before.problems if problem.about in ("target", "torch", "prompts")]
    if refused:
        raise EvaluationError("; ".join(refused))
    names = tuple(prompt.id for prompt in before.prompts)
    missing = tuple(prompt.id for prompt in before.prompts if not prompt.found)
    if missing and before.capture_refused:
        raise EvaluationError(f"{host.name}: {before.capture_refused}")
    lines = [f"{len(missing)} of {len(names)} prompts to capture"]
    lines += [f"hidden states go to {cache.folder}: {cache.why}"] if cache.why else []
    console.emit(happened.PlanMade(job, None, tuple(lines), missing))
    if not missing:
        return Captured(cache.folder, (), names, names)
    if begun := await _begun(console, harness):
        run_id, run_dir = begun
        console.emit(happened.Noticed("info", f"{run_id} works on it already; it is followed"))
        console.emit(happened.EvaluationStarted(job, run_id, run_dir, host.name))
    else:
        run_id, run_dir = await _start(console, job, harness, before, cache.folder, missing)
    ended = await follow(console, job, run_id, run_dir, harness, _home(console, run_id))
    if ended.state != "finished":
        raise RunEnded(run_id, ended.state, ended.error)
    after, _ = choose(await look(console, harness, None, Asked(_asked(), folders=(cache.folder,))))
    present = tuple(prompt.id for prompt in after.prompts if prompt.found)
    return Captured(cache.folder, tuple(prompt for prompt in present if prompt in missing), present, names)


def _asked() -> int:
    return PRESETS["full"][0]


async def _chosen(console: Console, harness: str, job: str) -> tuple[Survey, Chosen]:
    """The folder that an evaluation would use, and what is in it. Where folders hold states of different layers, which
    of them are usable is only known with the checkpoint. Raises TROUBLE."""
    found = await look(console, harness, None, Asked(_asked()))
    layers = {prompt.layer_ids for cache in found.caches for prompt in cache.prompts if prompt.layer_ids}
    if len(found.caches) > 1 and len(layers) > 1:
        found = await _with_checkpoint(console, harness, job)
    return choose(found)


async def _with_checkpoint(console: Console, harness: str, job: str) -> Survey:
    """A survey that knows what the newest checkpoint needs."""
    fetched = await fetch.fetch(console, job=job)
    weights = trained(console, opened(fetched.folder, fetched.names), identified=False)
    return await look(console, harness, weights, Asked(_asked()))


def _home(console: Console, run_id: str) -> Path:
    return console.store.state / "captures" / run_id


async def _begun(console: Console, harness: str) -> tuple[str, str] | None:
    """The id and the run directory of a capture that was left before it ended and still works. Raises TROUBLE."""
    folder = console.store.state / "captures"
    for home in sorted(folder.iterdir()) if folder.is_dir() else ():
        if exit_of(home) is None:
            run_dir = posixpath.join(console.evaluation.root, "runs", home.name)
            if (await ask(console, run_dir, harness, home)).state in ("starting", "running"):
                return home.name, run_dir
    return None


async def _start(
    console: Console, job: str, harness: str, before: Survey, folder: str, missing: tuple[str, ...]
) -> tuple[str, str]:
    host, settings = console.evaluation_host, console.evaluation
    request = CaptureRequest(
        target=settings.target,
        prompts_path=settings.prompts,
        hidden_states=folder,
        taps=await _taps(console, before, harness, job),
        prompts=missing,
        target_name=before.target.name if before.target else "",
        max_new_tokens=NEW_TOKENS,
        threads=settings.threads or max(1, before.host.cpus_usable - 1),
    )
    now = datetime.fromtimestamp(console.clock(), UTC)
    run_id, run_dir = await rundir.create_run(host, settings.root, f"capture-{now:%Y%m%dT%H%M%SZ}")
    await host.make_folder(folder)
    await host.write(posixpath.join(run_dir, "capture.json"), dumps(request, indent=1).encode())
    _home(console, run_id).mkdir(parents=True)  # from now on it is known here
    console.emit(happened.EvaluationStarted(job, run_id, run_dir, host.name))
    await start(console, "capture", run_id, run_dir, harness)
    return run_id, run_dir


async def _taps(console: Console, found: Survey, harness: str, job: str) -> tuple[int, ...]:
    """Which layers to tap: as the existing files do, else as the config says, else as the newest checkpoint needs."""
    recorded = {prompt.layer_ids for prompt in found.prompts if prompt.layer_ids}
    if len(recorded) == 1:
        return recorded.pop()
    if taps := console.config.drafter.get("taps"):
        return tuple(taps)
    surveyed = await _with_checkpoint(console, harness, job)
    if surveyed.checkpoint is None or surveyed.checkpoint.settings is None:
        raise ConsoleError(
            "which target layers to tap is not known: no hidden states record it, [drafter] in the config has no taps, "
            "and the newest checkpoint does not say"
        )
    if surveyed.capture_refused:
        raise EvaluationError(f"{console.evaluation_host.name}: {surveyed.capture_refused}")
    return surveyed.checkpoint.settings.taps
