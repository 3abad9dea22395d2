"""Following detached work as events, now or after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dflash_tui.console import events as happened
from dflash_tui.evals import launch
from dflash_tui.evals.attach import Attachment, RunUpdate
from dflash_tui.evals.errors import EndedAtLogout
from dflash_tui.evals.launch import Begun
from dflash_tui.hosts.base import HostUnreachable
from dflash_tui.hosts.launchers import parse_prefix

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
                goes_on = "ends when its host notices; it" if held(console, run_id) else "goes on and"
                console.emit(happened.Noticed("warn", f"{update.lost_link}; {run_id} {goes_on} is looked for"))
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
) -> Begun:
    """Start ``evaluate`` or ``capture`` detached; the run that works, which with `once` may be another one (see
    `launch.start`). A link that breaks meanwhile is no failure: whether work has begun only its host knows, so it
    is not started twice but followed.

    Where nothing can be left running the run is held by a job of this console, and that is said. Raises HostError,
    EvaluationError."""
    host = console.evaluation_host
    words = (host, console.evaluation.python, harness, command, run_dir)
    why = _unable(console)
    if host.detaches:
        starting = asyncio.create_task(launch.start(*words, once=once, beside=beside), name="launch")
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Cancelled now, the half-started process would be killed and the run directory stay behind without one.
            await asyncio.wait({starting}, timeout=LAUNCH_SECONDS)
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            raise
        except HostUnreachable as error:
            return _uncertain(console, run_id, error)
        except EndedAtLogout as error:
            why = str(error)
    recorded: asyncio.Future[Begun] = asyncio.get_running_loop().create_future()
    console.do(launch.hold(*words, recorded, once=once, beside=beside), _held(run_id))
    try:
        works = await asyncio.shield(recorded)
    except HostUnreachable as error:
        return _uncertain(console, run_id, error)
    if works.run_id == run_id or len(beside) > len(works.beside):
        sentence = f"{why}: {works.run_id} ends when this console closes or the link breaks"
        console.emit(happened.Noticed("warn", sentence))
    return works


def _unable(console: Console) -> str:
    """Why nothing can be left running on the evaluation host."""
    name = console.evaluation.host
    item = console.config.hosts.get(name)
    if item is not None and item.attached:
        return f"hosts.{name}.attached is set"
    prefix = parse_prefix(item.container, name) if item is not None and item.container else None
    tool = prefix.tool if prefix is not None and not prefix.detaches else name
    return f"{tool} can't leave a program running"


def _held(run_id: str) -> str:
    return f"hold {run_id}"


def held(console: Console, run_id: str) -> bool:
    """Whether a run lives only while this console does."""
    return console.does(_held(run_id))


def _uncertain(console: Console, run_id: str, error: HostUnreachable) -> Begun:
    sentence = f"{error}; whether {run_id} has begun is asked when {console.evaluation_host.name} answers again"
    console.emit(happened.Noticed("warn", sentence))
    return Begun(run_id)


async def ask(console: Console, run_dir: str, harness: str, home: Path) -> RunUpdate:
    """What became of a run, as its host says now; what it has written comes home. Raises HostError, EvaluationError."""
    return await _attachment(console, run_dir, harness, home).ask()


def _attachment(console: Console, run_dir: str, harness: str, home: Path) -> Attachment:
    return Attachment(console.evaluation_host, console.evaluation.python, harness, run_dir, home)
