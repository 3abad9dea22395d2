"""What watching costs, looked at shortly; `python -m tests.bench.overhead` measures in earnest."""

from __future__ import annotations

import subprocess
import sys

from tests.bench.hour import HURRY
from tests.bench.overhead import CPU_LIMIT, MEMORY_LIMIT, hour, measure, memory_table, spread, table
from tests.bench.watched import cpu_below


def test_cpu_time_of_what_has_ended_counts() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print(); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        assert 0.3 <= cpu_below(parent.pid) < 1.0
        parent.communicate(b"\n")


async def test_a_watched_host_is_hardly_bothered() -> None:
    rows = await measure(6.0)
    assert [row.name for row in rows] == ["over SSH", "in a container"]
    assert all(0 <= row.cpu <= 2 * CPU_LIMIT for row in rows), table(rows)
    plain, container = rows
    assert plain.commands <= 60
    assert container.commands == 0  # its launcher costs more than what it starts
    assert all(row.kilobytes < 200 for row in rows), table(rows)


async def test_the_app_does_not_grow() -> None:
    assert HURRY > 60
    samples = await hour(10)
    assert [sample.minutes for sample in samples] == [0, 10]
    assert spread(samples) < MEMORY_LIMIT, memory_table(samples)
