"""Hosts that are far: a round trip of 40 ms to both, at whatever speed, where windows decide."""

from __future__ import annotations

from tests.bench.transfer.line import line
from tests.bench.transfer.product import product, reference, task
from tests.bench.transfer.references import cat_here, cat_to_cat
from tests.bench.transfer.table import Section, faster, interleaved
from tests.bench.transfer.world import DESTINATION, SOURCE, World, write_noise

ONE_WAY = 0.020
CAT, CATS = "ssh cat > file", "ssh cat | ssh cat"
RELAY, HERE = "dflash-tui, relay", "dflash-tui, to here"
NAME = "checkpoint.pt"
THAN_ONE_STREAM = 1.0


def delayed(world: World, size: int, rounds: int) -> Section:
    """Measure: one stream of OpenSSH to a file of this machine, two of them through it, and the product both ways."""
    path, arrived, here = world.saved / NAME, world.arrived / NAME, world.here / NAME
    write_noise(path, size)
    with line(world.source.port, delay=ONE_WAY) as near, line(world.destination.port, delay=ONE_WAY) as far:
        config = world.configured("delayed.ssh_config", {SOURCE: near.port, DESTINATION: far.port})
        ways = {
            CAT: reference(world, NAME, cat_here(config, path, here), here=True),
            CATS: reference(world, NAME, cat_to_cat(config, path, arrived)),
            RELAY: product(world, NAME, task(world, NAME, "carry", "relay", config=config)),
            HERE: product(world, NAME, task(world, NAME, "carry", "relay", here=True, config=config)),
        }
        try:
            costs = interleaved(ways, rounds)
        finally:
            path.unlink()
    return Section(
        "A round trip of 40 ms to each host",
        costs,
        (
            faster(costs, RELAY, CAT, THAN_ONE_STREAM),
            faster(costs, RELAY, CATS, THAN_ONE_STREAM),
            faster(costs, HERE, CAT, THAN_ONE_STREAM),
        ),
    )
