"""The product and other programs as ways to move a file: from nothing to a file that is right, and what it cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.bench.transfer.cost import Cost, Step, run
from tests.bench.transfer.task import Done, How, Route, Task, What
from tests.bench.transfer.world import World, alike, warm

Right = Callable[[Path, Path], bool]
"""Whether what arrived (second) is what the source's file (first) should have become."""


def task(
    world: World,
    name: str,
    how: How,
    route: Route,
    *,
    here: bool = False,
    what: What = "whole",
    config: Path | None = None,
    cut_at: int = 0,
) -> Task:
    """A task in this world, from the source to the destination or to this machine."""
    path, to = world.saved / name, world.here if here else world.arrived
    return Task(how, route, str(config or world.config), str(path.parent), path.name, str(to), here, what, cut_at)


def moved(world: World, task: Task) -> Cost:
    """Carry a task out in a process of its own."""
    cost, told = run([Step((task.program,))], world)
    done = Done(**json.loads(told.splitlines()[-1]))
    return replace(cost, wall=done.seconds, here=done.cpu, peak=done.peak, moved=done.moved, phases=done.phases)


def product(world: World, name: str, task: Task, right: Right = alike) -> Callable[[], Cost]:
    """A way: the product. `name` is the file below the source's folder."""
    return checked(world, name, lambda: moved(world, task), here=task.here, right=right)


def reference(world: World, name: str, steps: Sequence[Step], *, here: bool = False) -> Callable[[], Cost]:
    """A way: other programs."""
    return checked(world, name, lambda: run(steps, world)[0], here=here)


def checked(
    world: World, name: str, way: Callable[[], Cost], *, here: bool = False, right: Right = alike
) -> Callable[[], Cost]:
    """A way that begins without a file at the other end, with the source's in the page cache, and must end with the
    right bytes there: fast and wrong is no result."""

    def go() -> Cost:
        world.clear()
        path = world.saved / name
        arrived = (world.here if here else world.arrived) / path.name
        warm(path)
        try:
            cost = way()
            if not arrived.is_file() or not right(path, arrived):
                raise AssertionError(f"{arrived} is not what the source has")
            return replace(cost, moved=arrived.stat().st_size)
        finally:
            world.clear()

    return go
