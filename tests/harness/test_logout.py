"""Hosts that end a user's programs at logout: a run leaves the session where it may, and nothing is begun where not."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from dflash_tui.harness.__main__ import ENDED_AT_LOGOUT
from tests.harness.world import World, world
from tests.launchers.logind import USER, Logind


@pytest.fixture
def logind(tmp_path: Path) -> Logind:
    return Logind(tmp_path / "systemd")


@pytest.fixture
def tiny(tmp_path: Path) -> World:
    (tmp_path / "lab").mkdir()
    return world(tmp_path / "lab")


def begin(run_dir: Path, logind: Logind, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dflash_tui.harness", "evaluate", str(run_dir), *options]
    return subprocess.run(
        command, env=logind.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


def ended(run_dir: Path, seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (run_dir / "exit.json").exists():
            return True
        time.sleep(0.01)
    return False


def test_nothing_is_begun_where_logout_would_end_it_and_it_is_said_what_helps(tiny: World, logind: Logind) -> None:
    run_dir = tiny.write()
    done = begin(run_dir, logind)
    assert done.returncode == ENDED_AT_LOGOUT
    assert f"`loginctl enable-linger {USER}`, run there once, lets runs stay" in done.stderr
    assert not (run_dir / "process.json").exists()


def test_a_user_who_lingers_gets_a_scope_that_logout_leaves_alone(tiny: World, logind: Logind) -> None:
    logind.linger = "yes"
    run_dir = tiny.write()
    done = begin(run_dir, logind)
    assert done.returncode == 0, done.stderr
    logind.log_out(run_dir)
    assert ended(run_dir)


def test_the_stand_in_s_logout_ends_what_stays_in_the_session(tiny: World, logind: Logind) -> None:
    logind.properties["KillUserProcesses"] = "no"
    run_dir = tiny.write()
    assert begin(run_dir, logind).returncode == 0
    logind.log_out(run_dir)
    assert not ended(run_dir, 1)


def test_a_user_manager_that_does_not_answer_is_said(tiny: World, logind: Logind) -> None:
    logind.linger, logind.manager = "yes", "echo 'Failed to connect to bus: no such file' >&2; exit 1"
    done = begin(tiny.write(), logind)
    assert done.returncode == ENDED_AT_LOGOUT
    assert "`systemd-run --user` fails: Failed to connect to bus: no such file" in done.stderr


@pytest.mark.parametrize("change", ["exempt", "others only", "no session", "held", "in the foreground"])
def test_who_is_not_concerned_begins_as_ever(tiny: World, logind: Logind, change: str) -> None:
    options = {"held": ["--attached"], "in the foreground": ["--foreground"]}.get(change, [])
    if change == "exempt":
        logind.properties["KillExcludeUsers"] = f"somebody {USER}"
    if change == "others only":
        logind.properties["KillOnlyUsers"] = "somebody else"
    logind.session = change != "no session"
    run_dir = tiny.write()
    assert begin(run_dir, logind, *options).returncode in (0, 130), change
    assert ended(run_dir)
