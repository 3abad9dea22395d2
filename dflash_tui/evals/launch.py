"""Starting, stopping and asking after work on an evaluation host, detached or held."""

from __future__ import annotations

import asyncio
import contextlib
import json
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

from dflash_tui.evals.errors import EndedAtLogout, EvaluationError
from dflash_tui.hosts.base import CommandFailed, Host, HostError, Process
from dflash_tui.hosts.running import command_failed
from dflash_tui.records.process import RunState

LAUNCH_SECONDS = 120.0  # a cold disk may take its time to read Python; the harness detaches before it loads torch
LET_GO_SECONDS = 4.0  # that a held run gets to write its records when it is let go
_ENDED_AT_LOGOUT = 3  # the harness's status


@dataclass(frozen=True)
class Begun:
    """`run_id` of the run that works, or has answered the request; of those `beside` it that others answer, by id."""

    run_id: str
    beside: Mapping[str, str] = field(default_factory=dict)


async def start(
    host: Host,
    python: str,
    harness: str,
    command: str,
    run_dir: str,
    *,
    once: bool = False,
    beside: Sequence[str] = (),
) -> Begun:
    """Start ``evaluate`` or ``capture`` in a run directory; returns once it is detached and recorded. The same process
    carries out the evaluations in the run directories `beside` it after that one.

    With `once` a run there that has answered the same request, or works on it, is found by its host: its id is returned
    then, nothing was started for it, and the run directory is gone. Raises EvaluationError with the harness's own
    sentence when it refuses (EndedAtLogout: use `hold`), HostError when the host can't be reached.
    """
    said = await _call(host, _argv(python, harness, command, run_dir, once, beside))
    return _answered(host, run_dir, said)


async def hold(
    host: Host,
    python: str,
    harness: str,
    command: str,
    run_dir: str,
    recorded: asyncio.Future[Begun],
    *,
    once: bool = False,
    beside: Sequence[str] = (),
) -> None:
    """`start` where nothing can be left running: the work lives while this does, and is asked to stop when this is
    cancelled. `recorded` becomes what `start` returns, or its error. Raises HostUnreachable when the link breaks later.
    """
    argv = [*_argv(python, harness, command, run_dir, once, beside), "--attached"]
    try:
        async with host.stream(argv, stdin=True) as process:
            said = await _first_line(host, argv, process)
            recorded.set_result(_answered(host, run_dir, said.decode("utf-8", "replace")))
            await _until_it_ends(process)
    except (HostError, EvaluationError) as error:
        if recorded.done():
            raise
        recorded.set_exception(error)
        recorded.exception()  # nobody may wait for it any more
    finally:
        recorded.cancel()


async def _first_line(host: Host, argv: list[str], process: Process) -> bytes:
    said = b""
    try:
        async with asyncio.timeout(LAUNCH_SECONDS):
            while b"\n" not in said and (data := await process.read()):
                said += data
            if b"\n" not in said:
                raise _refusal(host, argv, command_failed(host.name, argv, await process.wait()))
    except TimeoutError:
        raise EvaluationError(f"{host.name}: the harness has not begun within {LAUNCH_SECONDS:.0f} s") from None
    return said.split(b"\n", 1)[0]


async def _until_it_ends(process: Process) -> None:
    ending = asyncio.create_task(_drained(process))
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        # The end of its input stops it, and it writes its records; what does not heed that is killed.
        with contextlib.suppress(HostError):
            await process.close_stdin()
        await asyncio.wait({ending}, timeout=LET_GO_SECONDS)
        raise
    finally:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)


async def _drained(process: Process) -> None:
    while await process.read():
        pass
    await process.wait()


def _argv(python: str, harness: str, command: str, run_dir: str, once: bool, beside: Sequence[str]) -> list[str]:
    return [python, harness, command, run_dir, *beside, *(["--once"] if once else [])]


def _answered(host: Host, run_dir: str, said: str) -> Begun:
    try:
        told = json.loads(said)
        beside = {str(asked): str(other) for asked, other in told.get("beside", {}).items()}
    except (ValueError, AttributeError):
        raise EvaluationError(f"{host.name}:{run_dir}: the harness answers {said[:80]!r}, expected a process") from None
    return Begun(str(told.get("answered_by") or posixpath.basename(run_dir)), beside)


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
        raise _refusal(host, argv, error) from error


def _refusal(host: Host, argv: list[str], error: CommandFailed) -> EvaluationError:
    if error.status == 127:
        return EvaluationError(
            f"{host.name}: no {argv[0]!r} to run the harness with; set evaluation.python to a Python ≥ 3.10 that "
            "has torch"
        )
    lines = [line for line in error.stderr.splitlines() if line.strip()]
    sentence = lines[-1] if lines else str(error)
    return EndedAtLogout(sentence) if error.status == _ENDED_AT_LOGOUT else EvaluationError(sentence)
