"""What a machine leaves us, read from /proc and the control groups of both kinds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_tui.harness import machine
from tests.harness.world import REPOSITORY

GIB = 1 << 30


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text("MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   33554432 kB\n")
    return folder


def files(folder: Path, **texts: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_without_control_groups_it_is_what_the_machine_has(proc: Path, tmp_path: Path) -> None:
    assert machine.memory_left(proc, tmp_path / "none") == 32 * GIB
    assert machine.memory_total(proc) == 64 * GIB
    assert machine.memory_limit(proc, tmp_path / "none") is None


def test_of_a_limit_counts_what_is_left_of_it(proc: Path, tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    (proc / "self" / "cgroup").write_text("0::/lxc/200\n")
    stat = f"anon {5 * GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}"
    files(groups / "lxc" / "200", memory__max=str(10 * GIB), memory__current=str(8 * GIB), memory__stat=stat)
    assert machine.memory_limit(proc, groups) == 10 * GIB
    assert machine.memory_left(proc, groups) == 5 * GIB  # files' pages are given back


def test_the_narrowest_of_the_groups_above_counts(proc: Path, tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    (proc / "self" / "cgroup").write_text("0::/slice/job\n")
    files(groups / "slice" / "job", memory__max="max", memory__current=str(GIB))
    files(groups / "slice", memory__max=str(4 * GIB), memory__current=str(3 * GIB), memory__stat="inactive_file 0")
    assert machine.memory_left(proc, groups) == GIB


def test_version_one_is_read_too_and_its_huge_number_is_no_limit(proc: Path, tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    (proc / "self" / "cgroup").write_text("5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/\n")
    # Inside a container the mount is the container's own group, and the host's path leads nowhere.
    stat = f"inactive_file 1\ntotal_inactive_file {GIB}\ntotal_active_file {GIB}"
    files(
        groups / "memory",
        memory__limit_in_bytes=str(6 * GIB), memory__usage_in_bytes=str(5 * GIB), memory__stat=stat,
    )  # fmt: skip
    assert machine.memory_left(proc, groups) == 3 * GIB
    files(groups / "memory", memory__limit_in_bytes="9223372036854771712")
    assert machine.memory_limit(proc, groups) is None
    assert machine.memory_left(proc, groups) == 32 * GIB


def test_a_group_that_is_over_its_limit_leaves_nothing(proc: Path, tmp_path: Path) -> None:
    groups = tmp_path / "cgroup"
    (proc / "self" / "cgroup").write_text("0::/\n")
    files(groups, memory__max=str(GIB), memory__current=str(2 * GIB), memory__stat="")
    assert machine.memory_left(proc, groups) == 0


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", None), ("250000 100000", 2), ("50000 100000", 1), ("100000 100000", 1), ("", None)],
)
def test_a_quota_of_time_is_fewer_cores(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    groups = tmp_path / "cgroup"
    (proc / "self" / "cgroup").write_text("0::/job\n")
    files(groups / "job", cpu__max=quota)
    assert machine.cpus_usable(proc, groups) == (cores or 8)


@pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("400000", 4)])
def test_a_quota_of_version_one(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    groups = tmp_path / "cgroup"
    (proc / "self" / "cgroup").write_text("4:cpu,cpuacct:/\n")
    files(groups / "cpu", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    assert machine.cpus_usable(proc, groups) == cores


def test_no_more_cores_than_the_affinity_allows() -> None:
    program = (
        "import os; os.sched_setaffinity(0, {0}); from dflash_tui.harness import machine as m; print(m.cpus_usable())"
    )
    environment = {**os.environ, "PYTHONPATH": os.fspath(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "1\n"


def test_this_machine_answers() -> None:
    left, total = machine.memory_left(), machine.memory_total()
    assert left is not None
    assert total is not None
    assert 0 < left <= total
    assert 1 <= machine.cpus_usable() <= (os.cpu_count() or 1)


def test_work_steps_behind_everybody_else_s() -> None:
    program = (
        "from dflash_tui.harness import machine; import os, ctypes;"
        "machine.step_aside(); machine.step_aside();"
        "number = {'x86_64': 252, 'aarch64': 31}.get(os.uname().machine);"
        "print(os.nice(0), ctypes.CDLL(None).syscall(number, 1, 0) >> 13 if number else 3)"
    )
    environment = {**os.environ, "PYTHONPATH": os.fspath(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "10 3\n"
