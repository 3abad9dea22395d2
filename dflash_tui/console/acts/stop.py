"""Stop what works: what a face shows, or a run by its name. What it has moved or measured is kept."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.console.acts.follow import follow
from dflash_tui.console.acts.reattach import run_directory
from dflash_tui.console.errors import ConsoleError
from dflash_tui.evals import launch
from dflash_tui.evals.ship import ship
from dflash_tui.records.process import RunState

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

STOP_SECONDS = 120.0  # a run ends between two blocks, and loading torch may take its time on a busy host


@dataclass(frozen=True)
class Stopped:
    """How the run has ended: "stopped", or otherwise where it was faster."""

    run_id: str
    run_dir: str
    state: RunState


async def stop_shown(console: Console, *, job: str = "") -> None:
    """Stop the transfer that is shown (or of `job`, which was shown when that was asked), else the plan or the
    evaluation that runs, and nothing beside it. What it has moved or measured is kept. Raises TROUBLE."""
    transfer, pane = console.state.transfer, console.state.evaluation
    if job:
        transfer = next((item for item in console.state.transfers if item.job == job), transfer)
        if transfer.job != job or transfer.state != "running":
            raise ConsoleError("that transfer has ended meanwhile; nothing was stopped")
    if transfer.state == "running" or pane.state == "planning":
        console.cancel(transfer.job if transfer.state == "running" else pane.job)
        return
    if pane.state != "running" or not pane.run_dir:
        raise ConsoleError("nothing to stop: no transfer and no evaluation runs")
    host = console.evaluation_host
    harness = await ship(host, console.evaluation.root)
    await launch.stop(host, console.evaluation.python, harness, pane.run_dir)


async def stop_run(console: Console, reference: str) -> Stopped:
    """Stop a run on the evaluation host, wherever it was started from, and wait for its end. Raises TROUBLE."""
    run, host = console.store.run_called(reference), console.evaluation_host
    if run is None:
        known = ", ".join(run.run_id for run in console.store.runs() if run.exit is None) or "none"
        raise ConsoleError(f"{reference!r} is no run; those whose end is not known: {known}")
    if run.exit is not None:
        raise ConsoleError(f"{run.run_id}: nothing to stop, it has ended already: {run.exit.state}")
    if not (run_dir := run_directory(run, host.name)):
        raise ConsoleError(f"{run.run_id}: does not lie on {host.name}, the evaluation host of {console.config.path}")
    harness = await ship(host, console.evaluation.root)
    await launch.stop(host, console.evaluation.python, harness, run_dir)
    console.emit(happened.Noticed("info", f"{run.run_id} is asked to stop"))
    try:
        async with asyncio.timeout(STOP_SECONDS):
            ended = await follow(console, console.new_job(), run.run_id, run_dir, harness, run.folder)
    except TimeoutError:
        raise ConsoleError(f"{run.run_id}: still runs {STOP_SECONDS:.0f} s after it was asked to stop") from None
    return Stopped(run.run_id, run_dir, ended.state)
