"""Memory of the moving process: the same for a file of any size, and where the destination takes bytes more slowly than
the source gives them."""

from __future__ import annotations

from tests.bench.transfer.cost import Cost
from tests.bench.transfer.delayed import ONE_WAY
from tests.bench.transfer.line import line
from tests.bench.transfer.product import product, task
from tests.bench.transfer.table import Demand, Section
from tests.bench.transfer.task import Route
from tests.bench.transfer.world import DESTINATION, World, write_noise

NAME = "checkpoint.pt"
PEAK = 100e6
ROUTES: tuple[Route, ...] = ("relay", "joined")


def remembered(world: World, small: int, large: int) -> Section:
    """Measure a whole transfer of each size, by each engine, and the small one to a destination that is far."""
    costs: dict[str, list[Cost]] = {}
    for size in (small, large):
        write_noise(world.saved / NAME, size)
        gib = f"{size / (1 << 30):.2f} GiB"
        for route in ROUTES:
            costs[f"{route}, {gib}"] = [product(world, NAME, task(world, NAME, "move", route))()]
        if size == small:
            with line(world.destination.port, delay=ONE_WAY) as far:
                config = world.configured("far.ssh_config", {DESTINATION: far.port})
                slow = product(world, NAME, task(world, NAME, "carry", "relay", config=config))
                costs[f"relay, {gib}, to a host far from here"] = [slow()]
        (world.saved / NAME).unlink()
    demands = tuple(
        Demand(f"{name}: MB of the moving process", cost.peak / 1e6, PEAK / 1e6, at_most=True, form="{:.0f}")
        for name, (cost,) in costs.items()
    )
    return Section("Memory", costs, demands)
