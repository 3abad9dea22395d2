"""Following detached work as events, now or after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.evals import launch
from dflash_tui.evals.attach import Attachment, RunUpdate
from dflash_tui.hosts.base import HostUnreachable

if TYPE_CHECKING:
    from dflash_tui.console.console import Console

LAUNCH_SECONDS = 15.0  # that a launch may still take when nobody waits for it any more


async def follow(console: Console, job: str, run_id: str, run_dir: str, harness: str, home: Path) -> RunUpdate:
    """Emit what a run writes until it has ended; returns its last update. Its files are kept in `home`.

    A broken link is told once and waited out. Raises HostError when the host can't be used any more.
    """
    lost = False

    def tell(update: RunUpdate) -> None:
        nonlocal lost
        if update.lost_link:
            if not lost:
                console.emit(happened.Noticed("warn", f"{update.lost_link}; {run_id} goes on and is looked for"))
            lost = True
            return
        if lost:
            lost = False
            console.emit(happened.Noticed("info", f"{run_id} is followed again"))
        if update.progress or update.blocks or update.log:
            console.emit(
                happened.EvaluationAdvanced(job, run_id, update.state, update.progress, update.blocks, update.log)
            )

    return await _attachment(console, run_dir, harness, home).follow(tell)


async def start(
    console: Console,
    command: str,
    run_id: str,
    run_dir: str,
    harness: str,
    *,
    once: bool = False,
    beside: Sequence[str] = (),
) -> str:
    """Start ``evaluate`` or ``capture`` detached; the id of the run that works, which with `once` may be another one
    (see `launch.start`). A link that breaks meanwhile is no failure: whether work has begun only its host knows, so it
    is not started twice but followed. Raises HostError, EvaluationError."""
    host = console.evaluation_host
    starting = asyncio.create_task(
        launch.start(host, console.evaluation.python, harness, command, run_dir, once=once, beside=beside),
        name="launch",
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelled now, the half-started process would be killed and the run directory stay behind without one.
        await asyncio.wait({starting}, timeout=LAUNCH_SECONDS)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        raise
    except HostUnreachable as error:
        sentence = f"{error}; whether {run_id} has begun is asked when {host.name} answers again"
        console.emit(happened.Noticed("warn", sentence))
        return run_id


async def ask(console: Console, run_dir: str, harness: str, home: Path) -> RunUpdate:
    """What became of a run, as its host says now; what it has written comes home. Raises HostError, EvaluationError."""
    return await _attachment(console, run_dir, harness, home).ask()


def _attachment(console: Console, run_dir: str, harness: str, home: Path) -> Attachment:
    return Attachment(console.evaluation_host, console.evaluation.python, harness, run_dir, home)
