"""A transfer that is cut when 60 % have arrived, and continued by a process that knows nothing but what lies there."""

from __future__ import annotations

import subprocess
from statistics import median

from tests.bench.transfer.cost import Cost
from tests.bench.transfer.product import checked, moved, product, task
from tests.bench.transfer.table import Demand, Section, interleaved, takes
from tests.bench.transfer.task import CUT
from tests.bench.transfer.world import World, write_noise

NAME = "checkpoint.pt"
ANEW, RESUMED = "from the beginning", "after a cut at 60 %"
CUT_AT = 0.6
OF_ANEW = 0.75
TOO_FAR = 0.8


def resumed(world: World, size: int, rounds: int) -> Section:
    """Measure: the whole of a transfer, planning and proof included, anew and continued."""
    path = world.saved / NAME
    write_noise(path, size)
    cuts: list[float] = []

    def again() -> Cost:
        cuts.append(cut(world, int(CUT_AT * size)) / size)
        return moved(world, task(world, NAME, "move", "relay"))

    ways = {ANEW: product(world, NAME, task(world, NAME, "move", "relay")), RESUMED: checked(world, NAME, again)}
    try:
        costs = interleaved(ways, rounds)
    finally:
        path.unlink()
    share = Demand("share that lay there after the cut", median(cuts), TOO_FAR, at_most=True)
    return Section("Continued after a cut", costs, (takes(costs, RESUMED, ANEW, OF_ANEW), share))


def cut(world: World, nbytes: int) -> int:
    """Begin, and when so many bytes have been written kill every session of both servers and the mover; the bytes
    that lie at the destination then."""
    what = task(world, NAME, "move", "relay", cut_at=nbytes)
    with subprocess.Popen(what.program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as mover:
        try:
            assert mover.stdout is not None
            if mover.stdout.readline().strip() != CUT:
                raise AssertionError("the transfer ended before it could be cut")
            world.destination.kill_sessions()
            world.source.kill_sessions()
        finally:
            mover.kill()
    return sum(part.stat().st_size for part in world.arrived.glob("*.part"))
