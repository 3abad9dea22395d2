"""A training's checkpoint brought here without its optimizer, beside the whole file through one stream of OpenSSH.

The comparison with a target's embedding and head, of which the result is remembered, is no part of it.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.bench.transfer.line import line
from tests.bench.transfer.product import checked, moved, product, reference, task
from tests.bench.transfer.references import cat_here
from tests.bench.transfer.saved import CHECKPOINT, weights, write_checkpoint
from tests.bench.transfer.table import Demand, Section, interleaved, takes
from tests.bench.transfer.task import What
from tests.bench.transfer.world import SOURCE, World

FULL = "ssh cat > file, all of it"
FIFTH, TENTH = "dflash-tui, all weights", "dflash-tui, without embed, lm_head"
LIMITS = {FIFTH: 0.6, TENTH: 0.4}
WHAT: dict[str, What] = {FIFTH: "weights", TENTH: "drafter"}
PROOF = ", with the proof"
WIRE = 1.01
"""Bytes on the wire for each byte of weights."""


def slimmed(world: World, size: int, rounds: int) -> Section:
    """Measure, with a checkpoint that torch has written."""
    write_checkpoint(world.saved, size)
    path = world.saved / CHECKPOINT
    tasks = {name: task(world, CHECKPOINT, "carry", "relay", here=True, what=WHAT[name]) for name in WHAT}
    whole = {name: task(world, CHECKPOINT, "move", "relay", here=True, what=WHAT[name]) for name in WHAT}
    ways = {
        FULL: reference(world, CHECKPOINT, cat_here(world.config, path, world.here / path.name), here=True),
        **{name: product(world, CHECKPOINT, tasks[name], _sound) for name in WHAT},
        **{name + PROOF: product(world, CHECKPOINT, whole[name], _sound) for name in WHAT},
    }
    costs = interleaved(ways, rounds)
    demands = [takes(costs, name, FULL, LIMITS[name]) for name in WHAT]
    for name, what in WHAT.items():
        kept = weights(size, ends=what == "weights")
        crossed = wire_bytes(world, what) / kept
        demands += [
            Demand(f"{name}: wire bytes a byte of weights", crossed, WIRE, at_most=True, form="{:.4f}"),
            Demand(f"{name}: share of the file", kept / path.stat().st_size, 0.25 if what == "weights" else 0.10, True),
        ]
    return Section("A checkpoint without its optimizer, to here", costs, tuple(demands))


def wire_bytes(world: World, what: What) -> int:
    """What crosses both ways between this machine and the source for a slim copy: looking included."""
    with line(world.source.port) as counted:
        config = world.configured("counted.ssh_config", {SOURCE: counted.port})
        through = task(world, CHECKPOINT, "carry", "relay", here=True, what=what, config=config)
        checked(world, CHECKPOINT, lambda: moved(world, through), here=True, right=_sound)()
    return counted.bytes


def _sound(_: Path, arrived: Path) -> bool:
    """Whether every record has the CRC-32 that the directory states, which is the training's."""
    with zipfile.ZipFile(arrived) as file:
        return file.testzip() is None
