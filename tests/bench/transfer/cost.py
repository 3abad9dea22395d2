"""What a way of moving a file costs: seconds by the clock, of the processor at each of the three places, and memory."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.transfer.world import World
from tests.bench.watched import cpu_below
from tests.sshd import descendants

_LOOK_SECONDS = 0.5
_SETTLE_SECONDS = 10.0
_TOLD = 2000


@dataclass(frozen=True)
class Step:
    """Programs joined by pipes, the last one's output in a file where one is named."""

    programs: tuple[tuple[str, ...], ...]
    into: Path | None = None


@dataclass(frozen=True)
class Cost:
    """Seconds by the clock (`wall`) and of the processor: here with all child processes, and at the two servers.
    `peak`: bytes of the moving process (of the largest program where they are several) at their most. `moved`: bytes of
    what arrived. `phases`: seconds of the clock, where they are known."""

    wall: float
    here: float
    source: float
    destination: float
    peak: int
    moved: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)


class StepFailed(Exception):
    """A program of a step ended with another status than 0."""


def run(steps: Sequence[Step], world: World) -> tuple[Cost, str]:
    """Run steps one after another; the cost, and what the last program wrote where it did not go into a file. Raises
    StepFailed."""
    before = _servers(world)
    began = time.monotonic()
    here, peak, told = 0.0, 0, ""
    for step in steps:
        spent, most, told = _run(step)
        here, peak = here + spent, max(peak, most)
    wall = time.monotonic() - began
    source, destination = (now - then for now, then in zip(_servers(world), before, strict=True))
    return Cost(wall, here, source, destination, peak), told


def _run(step: Step) -> tuple[float, int, str]:
    running: list[subprocess.Popen[bytes]] = []
    with open(step.into or os.devnull, "wb") as into:
        for number, program in enumerate(step.programs):
            last = number == len(step.programs) - 1
            feed = running[-1].stdout if running else subprocess.DEVNULL
            out = into if last and step.into else subprocess.PIPE
            running.append(subprocess.Popen(program, stdin=feed, stdout=out, stderr=subprocess.PIPE))
            if running[:-1] and (before := running[-2].stdout) is not None:
                before.close()  # else the program before would not notice that this one is gone
        with _Watch([each.pid for each in running]) as watch:
            try:
                told = running[-1].stdout.read() if running[-1].stdout else b""
                spent = sum(_ended(each) for each in running)
            finally:
                for each in running:
                    if each.returncode is None:
                        each.kill()
    return spent, watch.most, told.decode()


def _ended(program: subprocess.Popen[bytes]) -> float:
    """Seconds of the processor of a program that ends, with those of its children that it waited for."""
    assert program.stderr is not None
    with program.stderr as stderr:
        complaint = stderr.read(_TOLD)
    _, status, usage = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    if program.returncode:
        raise StepFailed(f"{program.args!r} ended with {program.returncode}: {complaint.decode(errors='replace')}")
    return usage.ru_utime + usage.ru_stime


class _Watch(threading.Thread):
    """Looks now and then how large programs and those below them have been. `ru_maxrss` would not tell: it counts the
    process that a program was started from."""

    def __init__(self, roots: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self._roots = roots
        self._over = threading.Event()
        self.most = 0

    def __enter__(self) -> _Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            for root in self._roots:
                self.most = max(self.most, *map(peak, (root, *descendants(root))))


def peak(pid: int | str = "self") -> int:
    """The most bytes that a process has been resident with since its program began; 0 when it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _servers(world: World) -> tuple[float, float]:
    """Seconds of the processor of everything below both servers, once no session is left."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    servers = (world.source, world.destination)
    while any(descendants(server.pid) for server in servers) and time.monotonic() < deadline:
        time.sleep(0.02)
    return cpu_below(world.source.pid), cpu_below(world.destination.pid)
