"""Starting, stopping and asking after detached work on an evaluation host."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence
from typing import cast, get_args

from dflash_tui.evals.errors import EvaluationError
from dflash_tui.hosts.base import CommandFailed, Host
from dflash_tui.records.process import RunState

LAUNCH_SECONDS = 120.0  # a cold disk may take its time to read Python; the harness detaches before it loads torch


async def start(
    host: Host,
    python: str,
    harness: str,
    command: str,
    run_dir: str,
    *,
    once: bool = False,
    beside: Sequence[str] = (),
) -> str:
    """Start ``evaluate`` or ``capture`` in a run directory; returns the run's id once it is detached and recorded. The
    same process carries out the evaluations in the run directories `beside` it after that one.

    With `once` a run beside it that has answered the same request, or works on it, is found by its host: its id is
    returned then, nothing was started, and the run directory is gone. Raises EvaluationError with the harness's own
    sentence when it refuses, HostError when the host can't be reached.
    """
    said = await _call(host, [python, harness, command, run_dir, *beside, *(["--once"] if once else [])])
    try:
        answered = json.loads(said).get("answered_by")
    except (ValueError, AttributeError):
        raise EvaluationError(f"{host.name}:{run_dir}: the harness answers {said[:80]!r}, expected a process") from None
    return str(answered or posixpath.basename(run_dir))


async def state(host: Host, python: str, harness: str, run_dir: str) -> RunState:
    """What became of a run, decided on its host by pid, start ticks, boot id and exit file."""
    found = (await _call(host, [python, harness, "state", run_dir])).strip()
    if found not in get_args(RunState):
        raise EvaluationError(f"{host.name}:{run_dir}: the harness answers {found!r}, expected a run state")
    return cast(RunState, found)


async def stop(host: Host, python: str, harness: str, run_dir: str) -> None:
    """Ask the run's process to stop; it writes its exit file. Nothing happens when it has ended already."""
    await _call(host, [python, harness, "stop", run_dir])


async def _call(host: Host, argv: list[str]) -> str:
    try:
        return (await host.run(argv, timeout=LAUNCH_SECONDS)).text
    except CommandFailed as error:
        if error.status == 127:
            raise EvaluationError(
                f"{host.name}: no {argv[0]!r} to run the harness with; set evaluation.python to a Python ≥ 3.10 that "
                "has torch"
            ) from error
        lines = [line for line in error.stderr.splitlines() if line.strip()]
        raise EvaluationError(lines[-1] if lines else str(error)) from error
