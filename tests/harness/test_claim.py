"""One run a request: a second one is told the first's name, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_tui.harness import process, rundir
from dflash_tui.records.process import ExitRecord, ProcessRecord
from tests.harness.world import REPOSITORY, World, harness, world


@pytest.fixture
def tiny(tmp_path: Path) -> World:
    """Prompts that are long enough to look at a run while it works."""
    return world(tmp_path, prompts=2, repeat=4)


def another(tiny: World, name: str, request: str = "r") -> Path:
    """A run directory as the console makes it."""
    run_dir = tiny.root / "runs" / name
    (run_dir / "checkpoint").mkdir(parents=True)
    shutil.copy(tiny.case.folder / "model.safetensors", run_dir / "checkpoint" / "model.safetensors")
    linked = replace(tiny.manifest.checkpoint, linked="checkpoint/model.safetensors")
    rundir.write(run_dir / rundir.MANIFEST, replace(tiny.manifest, run_id=name, request_id=request, checkpoint=linked))
    return run_dir


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ended(run_dir: Path) -> str:
    until(lambda: (run_dir / rundir.EXIT).exists())
    return rundir.read(run_dir / rundir.EXIT, ExitRecord).state


def begun(answer: str, asked: str) -> str:
    """The run that answers now: the one that was asked for, whose process is told, or another that is named."""
    told = json.loads(answer)
    assert ("pid" in told) != ("answered_by" in told), told
    return str(told.get("answered_by", asked))


def once(run_dir: Path) -> str:
    done = harness("evaluate", run_dir, "--once")
    assert done.returncode == 0, done.stderr
    return begun(done.stdout, run_dir.name)


def test_a_request_that_a_run_works_on_is_not_begun_again(tiny: World) -> None:
    first, second = another(tiny, "first"), another(tiny, "second")
    assert once(first) == "first"
    assert once(second) == "first"
    assert not second.exists()
    assert ended(first) == "finished"


def test_a_request_that_was_answered_is_not_begun_again(tiny: World) -> None:
    first, second = another(tiny, "first"), another(tiny, "second")
    once(first)
    assert ended(first) == "finished"
    assert once(second) == "first"
    assert not second.exists()


def test_of_two_that_ask_at_the_same_moment_one_begins(tiny: World) -> None:
    folders = [another(tiny, f"run-{number}") for number in range(4)]
    environment = {**os.environ, "PYTHONPATH": os.fspath(REPOSITORY)}
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "dflash_tui.harness", "evaluate", folder, "--once"],
            stdout=subprocess.PIPE, text=True, env=environment, cwd="/",
        )
        for folder in folders
    ]  # fmt: skip
    told = {
        begun(child.communicate(timeout=60)[0], folder.name) for child, folder in zip(children, folders, strict=True)
    }
    assert len(told) == 1
    assert [folder.name for folder in folders if folder.exists()] == list(told)
    assert ended(tiny.root / "runs" / told.pop()) == "finished"


def test_what_failed_answers_nothing(tiny: World) -> None:
    first, second = another(tiny, "first"), another(tiny, "second")
    rundir.write(first / rundir.PROCESS, ProcessRecord(1, 1, process.boot_id(), "here", rundir.now()))
    rundir.write(first / rundir.EXIT, ExitRecord("failed", 1, rundir.now(), "no"))
    assert once(second) == "second"
    assert ended(second) == "finished"


def test_what_was_killed_answers_nothing(tiny: World) -> None:
    first, second = another(tiny, "first"), another(tiny, "second")
    once(first)
    os.kill(rundir.read(first / rundir.PROCESS, ProcessRecord).pid, signal.SIGKILL)
    until(lambda: process.state(first) == "lost")
    assert once(second) == "second"
    assert ended(second) == "finished"


def test_another_request_begins_its_own_run(tiny: World) -> None:
    first, second = another(tiny, "first"), another(tiny, "second", request="another")
    once(first)
    assert once(second) == "second"
    assert {ended(first), ended(second)} == {"finished"}


def test_the_same_again_begins_when_it_is_asked_for(tiny: World) -> None:
    first, second = another(tiny, "first"), another(tiny, "second")
    once(first)
    assert begun(harness("evaluate", second).stdout, "second") == "second"
    assert {ended(first), ended(second)} == {"finished"}


def test_a_run_directory_that_holds_something_else_is_left(tiny: World) -> None:
    first, second = another(tiny, "first"), another(tiny, "second")
    (second / "notes.txt").write_text("mine")
    once(first)
    assert once(second) == "first"
    assert (second / "notes.txt").read_text() == "mine"
    assert ended(first) == "finished"
