"""How a detached run is told apart: by pid, start ticks, boot id and exit.json."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.harness import process, rundir
from dflash_tui.harness.errors import HarnessError
from dflash_tui.records.process import ExitRecord, ProcessRecord

# The launcher dies while the detached process records itself, as when its link is cut at that moment.
KILLED_LAUNCHER = """
import os, signal, sys
from pathlib import Path
from dflash_tui.harness import process

launcher, record = os.getpid(), process.record

def late(run_dir):
    os.kill(launcher, signal.SIGKILL)
    while process.start_ticks(launcher) is not None:
        os.sched_yield()
    return record(run_dir)

process.record = late
process.detach(Path(sys.argv[1]), lambda run_dir: (run_dir / "done").touch())
"""


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A real process that waits for its stdin to close."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


def recorded(run_dir: Path, pid: int) -> ProcessRecord:
    record = ProcessRecord(pid, process.start_ticks(pid) or -1, process.boot_id(), "here", rundir.now())
    rundir.write(run_dir / rundir.PROCESS, record)
    return record


def test_a_living_process_is_running(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    recorded(tmp_path, other.pid)
    assert process.state(tmp_path) == "running"


def test_a_process_that_is_gone_without_a_word_is_lost(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    recorded(tmp_path, other.pid)
    other.kill()
    other.wait()
    assert process.state(tmp_path) == "lost"


def test_a_killed_process_that_nobody_reaped_is_lost(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    recorded(tmp_path, other.pid)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{other.pid}").exists()
    assert process.state(tmp_path) == "lost"


@pytest.mark.parametrize("change", [{"start_ticks": 7}, {"boot_id": "another boot"}])
def test_a_reused_pid_is_not_the_run(tmp_path: Path, other: subprocess.Popen[bytes], change: dict[str, Any]) -> None:
    rundir.write(tmp_path / rundir.PROCESS, replace(recorded(tmp_path, other.pid), **change))
    assert process.state(tmp_path) == "lost"
    assert not process.stop(tmp_path)
    assert other.poll() is None


def test_what_exit_json_says_counts_even_while_the_pid_lives(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    recorded(tmp_path, other.pid)
    rundir.write(tmp_path / rundir.EXIT, ExitRecord("finished", 0, rundir.now()))
    assert process.state(tmp_path) == "finished"


def test_stop_ends_the_process(tmp_path: Path, other: subprocess.Popen[bytes]) -> None:
    recorded(tmp_path, other.pid)
    assert process.stop(tmp_path)
    assert other.wait(10) == -15
    assert not process.stop(tmp_path)


def test_a_request_is_starting_at_first_and_lost_when_nothing_came_of_it(tmp_path: Path) -> None:
    request = tmp_path / rundir.CAPTURE
    request.write_text("{}")
    assert process.state(tmp_path) == "starting"
    past = time.time() - process.STARTING_SECONDS - 1
    os.utime(request, (past, past))
    assert process.state(tmp_path) == "lost"


def test_a_folder_without_a_request_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="not a run directory"):
        process.state(tmp_path)


def test_start_ticks_survive_a_command_name_with_brackets(tmp_path: Path) -> None:
    script = tmp_path / "a) S (b"
    script.write_text("#!/bin/sh\nread line\n")
    script.chmod(0o755)
    with subprocess.Popen([script], stdin=subprocess.PIPE) as child:
        deadline = time.monotonic() + 10
        while b"a) S (b" not in Path(f"/proc/{child.pid}/stat").read_bytes() and time.monotonic() < deadline:
            os.sched_yield()
        ticks = process.start_ticks(child.pid)
        child.kill()
    own = process.start_ticks(os.getpid())
    assert ticks is not None
    assert own is not None
    assert ticks >= own


def test_a_run_goes_on_when_its_launcher_is_killed_before_it_is_recorded(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    launched = subprocess.run([sys.executable, "-c", KILLED_LAUNCHER, tmp_path], env=environment, check=False)
    assert launched.returncode == -9
    deadline = time.monotonic() + 30
    while not (tmp_path / rundir.EXIT).exists() and time.monotonic() < deadline:
        os.sched_yield()
    assert rundir.read(tmp_path / rundir.EXIT, ExitRecord).state == "finished"
    assert (tmp_path / "done").exists()
