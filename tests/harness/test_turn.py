"""Turns: one run of a folder works at a time; the others wait, visibly, and can be stopped."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.harness import process, rundir, turn
from dflash_tui.harness.neighbours import working
from dflash_tui.records.codec import loads
from dflash_tui.records.process import ExitRecord, ProgressRecord
from tests.harness.world import REPOSITORY, World, harness, world

# Works until it is told to end, when its turn has come.
RUN = """
import os, sys
from pathlib import Path
from dflash_tui.harness import process, rundir, turn

rundir.HEARTBEAT_SECONDS = 0.05

def work(run_dir):
    with turn.waited(run_dir):
        (run_dir / "works").touch()
        while not (run_dir / "end").exists():
            os.sched_yield()

sys.exit(process.carry_out(Path(sys.argv[1]), work))
"""
SECONDS = 60.0


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)


class Runs:
    """A folder of runs, each a real process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def begin(self, name: str) -> Path:
        run_dir = self.folder / name
        run_dir.mkdir(parents=True)
        environment = {**os.environ, "PYTHONPATH": os.fspath(REPOSITORY)}
        self.processes[name] = subprocess.Popen([sys.executable, "-c", RUN, run_dir], env=environment)
        return run_dir

    def works(self, name: str) -> bool:
        return (self.folder / name / "works").exists()

    def waits(self, name: str) -> None:
        until(lambda: self.progress(name), f"{name} to wait")

    def progress(self, name: str) -> list[ProgressRecord]:
        path = self.folder / name / rundir.PROGRESS
        return [loads(ProgressRecord, line, name) for line in rundir.lines(path)] if path.exists() else []

    def end(self, name: str) -> int:
        (self.folder / name / "end").touch()
        return self.processes[name].wait(SECONDS)

    def log(self, name: str) -> str:
        return (self.folder / name / rundir.LOG).read_text()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path / "root" / "runs")
    yield made
    for child in made.processes.values():
        child.kill()
        child.wait()


def test_the_second_waits_for_the_first_and_says_so(runs: Runs) -> None:
    runs.begin("one")
    until(lambda: runs.works("one"), "the first")
    second = runs.begin("two")
    runs.waits("two")
    assert [(line.phase, line.behind) for line in runs.progress("two")] == [("queued", "one")]
    beat = (second / rundir.PROGRESS).stat().st_mtime_ns
    until(lambda: (second / rundir.PROGRESS).stat().st_mtime_ns != beat, "its heart to beat")
    assert [(run.run_id, run.phase) for run in working(runs.folder)] == [("one", ""), ("two", "queued")]
    assert not runs.works("two")
    assert runs.end("one") == 0
    until(lambda: runs.works("two"), "the second")
    assert runs.end("two") == 0
    assert "queued behind one" in runs.log("two")
    assert "its turn came after" in runs.log("two")


def test_who_waits_behind_another_that_waits_names_the_one_that_works_then(runs: Runs) -> None:
    runs.begin("one")
    until(lambda: runs.works("one"), "the first")
    for name in ("two", "three"):
        runs.begin(name)
        runs.waits(name)
    assert runs.progress("three")[0].behind == "one"
    runs.end("one")
    until(lambda: runs.works("two") or runs.works("three"), "the next")
    then, last = ("two", "three") if runs.works("two") else ("three", "two")
    assert not runs.works(last)
    # Its own last word is "queued" until its work speaks.
    rundir.append(runs.folder / then / rundir.PROGRESS, [ProgressRecord(rundir.now(), "loading", 0, 1)])
    until(lambda: runs.progress(last)[-1].behind == then, "the last to name the next")
    assert [runs.end(then), runs.end(last)] == [0, 0]


def test_a_run_that_waits_can_be_stopped(runs: Runs) -> None:
    runs.begin("one")
    until(lambda: runs.works("one"), "the first")
    second = runs.begin("two")
    runs.waits("two")
    assert process.stop(second)
    assert runs.processes["two"].wait(SECONDS) == 130
    assert rundir.read(second / rundir.EXIT, ExitRecord).state == "stopped"
    assert not runs.works("two")
    assert runs.end("one") == 0


def test_the_turn_of_one_that_was_killed_goes_to_the_next(runs: Runs) -> None:
    runs.begin("one")
    until(lambda: runs.works("one"), "the first")
    runs.begin("two")
    runs.waits("two")
    runs.processes["one"].send_signal(signal.SIGKILL)
    until(lambda: runs.works("two"), "the second")
    assert runs.end("two") == 0


def test_turns_leave_nothing_on_the_disk(runs: Runs) -> None:
    runs.begin("one")
    until(lambda: runs.works("one"), "the first")
    runs.begin("two")
    runs.waits("two")
    runs.end("one")
    runs.end("two")
    assert {path.name for path in runs.folder.iterdir()} == {"one", "two"}
    assert {path.name for path in runs.folder.parent.iterdir()} == {"runs"}


def test_the_memory_of_a_process_that_carries_several_runs_is_told_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        process.record(tmp_path / name)
    first, second = working(tmp_path)
    assert (first.run_id, second.run_id) == ("one", "two")
    assert first.memory
    assert second.memory == 0


def test_runs_of_another_root_are_not_waited_for(runs: Runs, tmp_path: Path) -> None:
    runs.begin("one")
    until(lambda: runs.works("one"), "the first")
    other = tmp_path / "other" / "runs" / "two"
    other.mkdir(parents=True)
    with turn.waited(other):
        assert not (other / rundir.LOG).exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF])
def test_without_locks_a_run_says_so_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    run_dir = tmp_path / "runs" / "one"
    run_dir.mkdir(parents=True)
    with turn.waited(run_dir):
        assert "has no locks" in (run_dir / rundir.LOG).read_text()


def test_evaluations_take_turns(tmp_path: Path) -> None:
    tiny: World = world(tmp_path, prompts=1)
    folders = []
    (tmp_path / "runs").mkdir()
    with turn.opened(tmp_path / "runs") as held:
        assert turn.lock(held)
        for number in range(3):
            name = f"tiny-{number}"
            each = replace(tiny, manifest=replace(tiny.manifest, run_id=name))
            folders.append(each.write())
            assert harness("evaluate", folders[-1]).returncode == 0
        until(lambda: all((folder / rundir.PROGRESS).exists() for folder in folders), "all to wait")
        assert [run.phase for run in working(tmp_path / "runs")] == ["queued"] * 3
        assert not any((folder / rundir.BLOCKS).exists() for folder in folders)
    until(lambda: all((folder / rundir.EXIT).exists() for folder in folders), "all to end")
    assert [process.state(folder) for folder in folders] == ["finished"] * 3
