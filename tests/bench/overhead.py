"""What watching costs: the training host's CPU (sshd and everything it starts, with and without a container between), the
bytes and commands it takes, and the app's memory over an hour.

    python -m tests.bench.overhead [SECONDS]
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.bench.watched import let_grow, watched

SECONDS = 60.0
WARM_UP = 12.0
CPU_LIMIT = 1.0
"""Percent of one core."""


@dataclass(frozen=True)
class Row:
    """A watched host: percent of a core, and what crosses the wire, by the minute."""

    name: str
    cpu: float
    commands: float
    kilobytes: float


async def measure(seconds: float = SECONDS) -> list[Row]:
    """Watch both kinds of host at the same time, after what a start costs."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        async with AsyncExitStack() as stack:
            hosts = [
                await stack.enter_async_context(watched(name, Path(folder) / str(number), container=container))
                for number, (name, container) in enumerate((("over SSH", False), ("in a container", True)))
            ]
            await let_grow(hosts, WARM_UP)
            before = [(each.cpu(), each.host.commands, each.wire.bytes) for each in hosts]
            await let_grow(hosts, seconds)
            rows = []
            for each, (cpu, commands, crossed) in zip(hosts, before, strict=True):
                state = each.console.state
                progress, machine = state.training.progress, state.training.machine
                assert progress is not None and progress.step is not None and progress.step >= each.step - 1, progress
                assert machine is not None and len(machine.gpu) == 8, machine
                assert len(state.training.checkpoints) == 6, state.training.checkpoints
                minutes = seconds / 60
                rows.append(
                    Row(
                        each.name,
                        100 * (each.cpu() - cpu) / seconds,
                        (each.host.commands - commands) / minutes,
                        (each.wire.bytes - crossed) / 1000 / minutes,
                    )
                )
    return rows


def table(rows: list[Row]) -> str:
    """The rows as text."""
    lines = [f"{'the training host, watched':<28}{'CPU':>8}{'limit':>8}{'commands/min':>14}{'kB/min':>9}"]
    lines += [
        f"{row.name:<28}{row.cpu:>6.2f} %{CPU_LIMIT:>6.1f} %{row.commands:>14.0f}{row.kilobytes:>9.1f}" for row in rows
    ]
    return "\n".join(lines)


def main() -> int:
    """Print the table; 1 when a limit is not met."""
    rows = asyncio.run(measure(float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS))
    print(table(rows))
    return int(any(row.cpu > CPU_LIMIT for row in rows))


if __name__ == "__main__":
    sys.exit(main())
