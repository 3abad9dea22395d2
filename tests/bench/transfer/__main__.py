"""Moving checkpoints, measured beside rsync, scp and ssh in one run, over two real OpenSSH servers on loopback.

    python -m tests.bench.transfer [--size GIB] [--rounds N] [--only relay|slim|delay|resume|memory] [--folder DIR]

Everything is a ratio to another way of the same round, medians over the rounds; processor and memory stand beside.
Takes three times the size of disk while it runs (below the temporary folder unless --folder names another), none after.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench.transfer.delayed import delayed
from tests.bench.transfer.relayed import relayed
from tests.bench.transfer.remembered import remembered
from tests.bench.transfer.resumed import resumed
from tests.bench.transfer.slimmed import slimmed
from tests.bench.transfer.table import Section, text
from tests.bench.transfer.world import World, world

SIZE, ROUNDS = 4.0, 5
_GIB = 1 << 30

PARTS: dict[str, Callable[[World, int, int], list[Section]]] = {
    "relay": lambda world, size, rounds: [relayed(world, size, rounds)],
    "slim": lambda world, size, rounds: [slimmed(world, size // 2, rounds)],
    "delay": lambda world, size, rounds: [delayed(world, size // 16, rounds)],
    "resume": lambda world, size, rounds: [resumed(world, size // 2, rounds)],
    "memory": lambda world, size, rounds: [remembered(world, size // 4, size)],
}
"""By name; `size` is the relay's, the others are fractions of it: 2 GiB, 256 MiB, 2 GiB, and 1 and 4 GiB."""


def measure(part: str, size: int, rounds: int, folder: Path | None = None) -> list[Section]:
    """One part, in a world of its own that leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="bench-transfer-", dir=folder) as own, world(Path(own)) as there:
        return PARTS[part](there, size, rounds)


def main() -> int:
    """Print a table for each part as it is done; 1 when a demand is not met."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.transfer")
    parser.add_argument("--size", type=float, default=SIZE, metavar="GIB")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    # A SIGTERM clears away like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    met = True
    for part in asked.only or PARTS:
        for section in measure(part, int(asked.size * _GIB), asked.rounds, asked.folder):
            print(text(section), flush=True)
            met &= all(demand.met for demand in section.demands)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
