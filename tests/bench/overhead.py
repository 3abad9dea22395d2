"""What watching costs: the training host's CPU (sshd and everything below it, with and without a container between),
commands and bytes by the minute; and the app's memory over an hour.

    python -m tests.bench.overhead [SECONDS [MINUTES]]
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.bench.hour import Sample
from tests.bench.watched import CHECKPOINTS, let_grow, watched

SECONDS = 36.0
MINUTES = 60
WARM_UP = 12.0
CPU_LIMIT = 1.0
"""Percent of one core."""

MEMORY_LIMIT = 10.0
"""MiB between the least and the most of an hour, once it is warm."""


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
                assert progress is not None
                assert progress.step in (each.step, each.step - 1), progress
                assert machine is not None
                assert len(machine.gpu) == 8, machine
                assert len(state.training.checkpoints) == CHECKPOINTS, state.training.checkpoints
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


async def hour(minutes: int = MINUTES) -> list[Sample]:
    """The app's memory, measured in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.hour", str(minutes)]
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    told, _ = await child.communicate()
    samples = [Sample(**json.loads(line)) for line in told.splitlines()]
    assert child.returncode == 0
    last = samples[-1]
    assert last.step is not None
    assert last.step > samples[0].step + 50 * minutes, "the training was not seen to its end"  # type: ignore[operator]
    assert last.blocks > samples[0].blocks or not minutes, "the evaluation was not followed"
    return samples


def spread(samples: list[Sample]) -> float:
    """MiB between the least and the most."""
    return max(sample.resident for sample in samples) - min(sample.resident for sample in samples)


def memory_table(samples: list[Sample]) -> str:
    """The samples as text."""
    lines = [f"{'the app, watching two hosts':<28}{'MiB':>8}{'step':>8}{'blocks':>8}{'drawn':>8}"]
    for sample in samples:
        shown = f"{sample.step or 0:>8}{sample.blocks:>8}{sample.drawn:>8}"
        lines.append(f"after {sample.minutes:>2} min{'':<16}{sample.resident:>8.1f}{shown}")
    return "\n".join([*lines, f"{'spread':<28}{spread(samples):>8.1f}   limit {MEMORY_LIMIT:.0f}"])


def table(rows: list[Row]) -> str:
    """The rows as text."""
    lines = [f"{'the training host, watched':<28}{'CPU':>8}{'limit':>8}{'commands/min':>14}{'kB/min':>9}"]
    lines += [
        f"{row.name:<28}{row.cpu:>6.2f} %{CPU_LIMIT:>6.1f} %{row.commands:>14.0f}{row.kilobytes:>9.1f}" for row in rows
    ]
    return "\n".join(lines)


def main() -> int:
    """Print the tables; 1 when a limit is not met."""

    async def both() -> tuple[list[Row], list[Sample]]:
        seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
        minutes = int(sys.argv[2]) if len(sys.argv) > 2 else MINUTES
        memory = asyncio.create_task(hour(minutes))
        return await measure(seconds), await memory

    rows, samples = asyncio.run(both())
    print(table(rows))
    print(memory_table(samples))
    return int(any(row.cpu > CPU_LIMIT for row in rows) or spread(samples) > MEMORY_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
