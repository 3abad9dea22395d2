"""The product moving a file, in a process of its own, so that its memory and its share of the processor are its own.

    python -m tests.bench.transfer.mover TASK

TASK is a `Task` as JSON. The last line on stdout is a `Done`, its seconds without the start of Python and its imports:
an app that is open has paid for them. Connections are made within them.
"""

from __future__ import annotations

import asyncio
import json
import posixpath
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

import asyncssh  # noqa: F401 - else the product imports it at its first connection

from dflash_tui.checkpoints.anatomy import read_anatomy
from dflash_tui.checkpoints.segments import Output
from dflash_tui.checkpoints.segments import Range as Piece
from dflash_tui.checkpoints.slim import LEAVABLE, slim
from dflash_tui.hosts.address import SshAddress
from dflash_tui.hosts.base import Host
from dflash_tui.hosts.local import LocalHost
from dflash_tui.hosts.ssh import SshHost
from dflash_tui.transfer.engine import Engine, Leg
from dflash_tui.transfer.joined import JoinedEngine
from dflash_tui.transfer.move import TransferProgress, move
from dflash_tui.transfer.pace import Shared
from dflash_tui.transfer.plan import make_plan
from dflash_tui.transfer.relaying import RelayEngine
from dflash_tui.watch.remote_files import RemoteFiles
from tests.bench.transfer.cost import peak
from tests.bench.transfer.task import CUT, Done, Route, Task
from tests.bench.transfer.world import DESTINATION, SOURCE

ENGINES: dict[Route, Callable[[], Engine]] = {"relay": RelayEngine, "joined": JoinedEngine}


class _Phases:
    """How long each phase took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._now, self._since = "", time.monotonic()

    def enter(self, phase: str) -> None:
        now = time.monotonic()
        if self._now:
            self.seconds[self._now] = self.seconds.get(self._now, 0.0) + now - self._since
        self._now, self._since = phase, now


async def carry_out(task: Task) -> tuple[int, dict[str, float]]:
    """Do it. The bytes of what was moved, and the seconds of its phases."""
    phases = _Phases()
    source = SshHost(SOURCE, SshAddress(SOURCE, config=(task.config,)))
    far = SshHost(DESTINATION, SshAddress(DESTINATION, config=(task.config,)))
    destination: Host = LocalHost("here") if task.here else far
    try:
        # As in a plan, both ends are reached at once.
        output, _ = await asyncio.gather(_output(task, source), destination.run(["true"]))
        if task.how == "carry":
            await _carry(task, source, output, destination)
        else:
            await _move(task, source, output, destination, phases)
        phases.enter("")
        return output.size, phases.seconds
    finally:
        for host in (source, far):
            await host.close()


async def _output(task: Task, source: Host) -> Output:
    size = (await source.stat(posixpath.join(task.folder, task.name))).size
    if task.what == "whole":
        return Output(task.name, (Piece(task.name, 0, size),))
    files = RemoteFiles(source, task.folder, {task.name: size})
    leave = LEAVABLE if task.what == "drafter" else frozenset[str]()
    anatomy = await asyncio.to_thread(read_anatomy, files)
    return (await asyncio.to_thread(slim, files, anatomy, leave)).output


async def _carry(task: Task, source: Host, output: Output, destination: Host) -> None:
    """All bytes as one leg, under the name that they shall have."""
    part, size = posixpath.join(task.to, output.name), output.size
    pace = Shared(None).lane()

    def heard(*_: object) -> None:
        """Nobody looks."""

    leg = Leg(source, task.folder, output, destination, part, 0, size, size, heard, heard, pace)
    await ENGINES[task.route]().carry(leg)


async def _move(task: Task, source: Host, output: Output, destination: Host, phases: _Phases) -> None:
    told = False
    phases.enter("planning")

    def heard(progress: TransferProgress) -> None:
        nonlocal told
        phases.enter(progress.phase)
        if task.cut_at and progress.written >= task.cut_at and not told:
            told = True
            print(CUT, flush=True)

    plan = await make_plan(source, task.folder, [output], destination, task.to)
    await move(plan, source, destination, heard, chooser=_Always(ENGINES[task.route]()))


class _Always:
    """A `Chooser` of one engine for everything."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def choose(self, remaining: int) -> tuple[Engine, int]:
        return self._engine, remaining

    def measured(self, engine: Engine, nbytes: int, seconds: float) -> None:
        """It is no news."""

    def failed(self, engine: Engine, sentence: str) -> bool:
        raise AssertionError(sentence)


def main() -> None:
    """Carry the task out and tell what it cost."""
    task = Task(**json.loads(sys.argv[1]))
    spent, began = _cpu(), time.monotonic()
    moved, phases = asyncio.run(carry_out(task))
    seconds = time.monotonic() - began
    print(json.dumps(asdict(Done(seconds, _cpu() - spent, peak(), moved, phases))))


def _cpu() -> float:
    usages = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()
