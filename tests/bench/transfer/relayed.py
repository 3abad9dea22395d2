"""A file from one host to another through this machine: the product's two engines beside rsync, scp and ssh."""

from __future__ import annotations

from tests.bench.transfer.product import product, reference, task
from tests.bench.transfer.references import cat_to_cat, rsync_twice, scp_through
from tests.bench.transfer.table import Section, faster, interleaved, shares
from tests.bench.transfer.world import World, write_noise

CAT, RSYNC, SCP = "ssh cat | ssh cat", "rsync -W, rsync -W", "scp -3"
RELAY, JOINED = "dflash-tui, relay", "dflash-tui, joined"
PROOF = ", with the proof"

RELAY_THAN_RSYNC, RELAY_THAN_SCP = 1.2, 0.9
JOINED_THAN_CAT, JOINED_THAN_RSYNC = 0.95, 1.7
PROVEN = 1.35
WITHOUT_DISK = ("planning", "moving", "verifying")
"""Publishing waits until all is on the disk, which no other way here does: its seconds are told, and left out."""
NAME = "checkpoint.pt"


def relayed(world: World, size: int, rounds: int) -> Section:
    """Measure, with a file that nothing can compress in the source's page cache."""
    path, arrived, here = world.saved / NAME, world.arrived / NAME, world.here / NAME
    write_noise(path, size)
    ways = {
        CAT: reference(world, NAME, cat_to_cat(world.config, path, arrived)),
        RSYNC: reference(world, NAME, rsync_twice(world.config, path, here, arrived)),
        SCP: reference(world, NAME, scp_through(world.config, path, arrived)),
        RELAY: product(world, NAME, task(world, NAME, "carry", "relay")),
        JOINED: product(world, NAME, task(world, NAME, "carry", "joined")),
        RELAY + PROOF: product(world, NAME, task(world, NAME, "move", "relay")),
        JOINED + PROOF: product(world, NAME, task(world, NAME, "move", "joined")),
    }
    try:
        costs = interleaved(ways, rounds)
    finally:
        path.unlink()
    return Section(
        "From host to host through this machine",
        costs,
        (
            faster(costs, RELAY, RSYNC, RELAY_THAN_RSYNC),
            faster(costs, RELAY, SCP, RELAY_THAN_SCP),
            faster(costs, JOINED, CAT, JOINED_THAN_CAT),
            faster(costs, JOINED, RSYNC, JOINED_THAN_RSYNC),
            shares(costs, RELAY + PROOF, WITHOUT_DISK, RELAY, PROVEN),
            shares(costs, JOINED + PROOF, WITHOUT_DISK, JOINED, PROVEN),
        ),
    )
