"""Memory of the moving process: the same for a file of any size."""

from __future__ import annotations

from tests.bench.transfer.product import product, task
from tests.bench.transfer.table import Demand, Section
from tests.bench.transfer.task import Route
from tests.bench.transfer.world import World, write_noise

NAME = "checkpoint.pt"
PEAK = 100e6
ROUTES: tuple[Route, ...] = ("relay", "joined")


def remembered(world: World, sizes: tuple[int, ...]) -> Section:
    """Measure a whole transfer of each size, by each engine."""
    costs = {}
    for size in sizes:
        write_noise(world.saved / NAME, size)
        for route in ROUTES:
            costs[f"{route}, {size / (1 << 30):.2f} GiB"] = [product(world, NAME, task(world, NAME, "move", route))()]
        (world.saved / NAME).unlink()
    demands = tuple(
        Demand(f"{name}: MB of the moving process", cost.peak / 1e6, PEAK / 1e6, at_most=True, form="{:.0f}")
        for name, (cost,) in costs.items()
    )
    return Section("Memory", costs, demands)
