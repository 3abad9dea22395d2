"""Whenever the harness is killed, the next one puts back what it did not live to put back."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dflash_tui.harness import process
from dflash_tui.harness.external.recovery import recover
from dflash_tui.harness.external.run import external
from tests.harness.external_world import OLD, Lab, ending, journal, lab, log, until
from tests.harness.world import harness

STEPS = ("link", "replace", "fsync", "unlink", "symlink", "rmdir", "write")
"""The calls of `os` between which a kill can make a difference."""


@pytest.fixture
def there(tmp_path: Path) -> Lab:
    return lab(tmp_path)


def killed_before(step: int, work: Callable[[], Any]) -> bool:
    """Do some work in a process that is killed before its step of that number; whether it came so far."""
    child = os.fork()
    if not child:
        left = step

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def instead(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return call(*arguments, **options)

            return instead

        for name in STEPS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


class Situation:
    """Every kind of path in one run: a file, a hard-linked one, a symbolic link, and one that is not there yet."""

    def __init__(self, there: Lab) -> None:
        self.lab = there
        self.linked, self.other = there.folder / "linked.json", there.root.parent / "archive.json"
        self.symbolic, self.behind = there.folder / "latest.json", there.root.parent / "behind.json"
        self.absent = there.root.parent / "absent.json"
        for path in (self.linked, self.behind):
            path.write_bytes(OLD)
        os.link(self.linked, self.other)
        self.symbolic.symlink_to(self.behind)

    def make(self, name: str) -> Path:
        words = ("write:", f"append:{self.linked}", f"replace:{self.symbolic}", f"write:{self.absent}")
        return self.lab.make(self.lab.request(*words, results=(os.fspath(self.absent),)), name)

    def is_as_before(self) -> bool:
        names = {path.name for path in self.lab.folder.iterdir()}
        return (
            self.lab.fixed.read_bytes() == self.linked.read_bytes() == self.behind.read_bytes() == OLD
            and self.linked.samefile(self.other)
            and os.readlink(self.symbolic) == os.fspath(self.behind)
            and not self.absent.exists()
            and names == {"run_eval.py", "eval_results.json", "linked.json", "latest.json"}
        )


def carried_out(run_dir: Path) -> None:
    process.record(run_dir)
    external(run_dir)


def test_killed_before_any_step_of_the_run_everything_is_back_after_recovery(there: Lab) -> None:
    situation = Situation(there)
    step, run_dir = 0, situation.make("run-0")
    while killed_before(step, partial(carried_out, run_dir)):
        recover(there.root)
        assert situation.is_as_before(), f"step {step}: {log(run_dir) if (run_dir / 'log.txt').exists() else 'no log'}"
        if (run_dir / "external.json").exists():
            assert journal(run_dir).state == "restored"
        step += 1
        run_dir = situation.make(f"run-{step}")
    assert step > 60
    assert journal(run_dir).outputs
    assert situation.is_as_before()


def test_recovery_may_itself_be_killed_before_any_of_its_steps(there: Lab) -> None:
    situation = Situation(there)
    run_dir = situation.make("run-1")
    # The last step before old files come back is the one that lets the script begin, told by what it has written.
    step = next(step for step in range(30, 90) if _wrote(situation, step))
    assert killed_before(step, lambda: carried_out(run_dir)) or run_dir.exists()
    kept = {path: path.read_bytes() for path in (run_dir / "kept").iterdir()}
    assert kept
    step = 0
    while killed_before(step, lambda: recover(there.root)):
        step += 1
    assert step > 10
    assert situation.is_as_before()


def _wrote(situation: Situation, step: int) -> bool:
    """Whether a run that is killed before that step has let the script write, and left its traces."""
    run_dir = situation.lab.root / "runs" / f"try-{step}"
    killed_before(step, partial(carried_out, situation.make(f"try-{step}")))
    found = (run_dir / "external.json").exists() and journal(run_dir).state == "guarding" and situation.absent.exists()
    recover(situation.lab.root)
    assert situation.is_as_before()
    shutil.rmtree(run_dir)
    return found


def test_asking_after_a_run_that_was_killed_puts_its_old_files_back(there: Lab) -> None:
    gate, here = there.folder / "gate", there.folder / "here"
    os.mkfifo(gate)
    run_dir = there.make(there.request("half:", f"here:{here}", f"wait:{gate}"))
    running = there.begin(run_dir)
    until(here.exists, "the script")
    assert recover(there.root) == ()  # it is alive: nobody touches what it guards
    assert there.fixed.read_bytes() != OLD
    running.kill()
    running.wait(60)
    assert harness("state", run_dir).stdout == "lost\n"
    assert there.is_as_before()
    assert "run-1 did not live to put old files back; all " in log(run_dir)
    assert (run_dir / "written" / "0-eval_results.json").exists()


def test_the_next_run_puts_right_what_an_earlier_one_left(there: Lab) -> None:
    here, gate = there.folder / "here", there.folder / "gate"
    os.mkfifo(gate)
    first = there.make(there.request("half:", f"here:{here}", f"wait:{gate}"))
    running = there.begin(first)
    until(here.exists, "the script")
    running.kill()
    running.wait(60)
    second = there.run("append:", "write:fresh.json", name="run-2", results=("fresh.json",))
    assert (second / "written" / "0-eval_results.json").read_bytes() == OLD + b"more\n"
    assert "run-1 did not live to put old files back" in log(second)
    assert there.is_as_before()


def test_what_a_killed_run_left_running_is_ended_before_files_come_back(there: Lab, tmp_path: Path) -> None:
    gate, here, late = tmp_path / "gate", tmp_path / "here", tmp_path / "late"
    os.mkfifo(gate)
    run_dir = there.make(
        there.request(f"child:{gate}:{there.fixed}:{late}", "half:", f"here:{here}", f"wait:{tmp_path / 'never'}")
    )
    os.mkfifo(tmp_path / "never")
    running = there.begin(run_dir)
    until(here.exists, "the script")
    running.kill()
    running.wait(60)
    recovered = harness("recover", there.root)
    assert recovered.stdout.startswith("run-1 did not live to put old files back"), recovered
    assert "what the script had started still ran and was ended: 1 process\n" in log(run_dir)
    with pytest.raises(OSError, match="No such device"):
        os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
    assert there.is_as_before()
    assert harness("recover", there.root).stdout == ""


def test_a_damaged_journal_is_named_hides_no_other_run_and_lets_none_begin(there: Lab) -> None:
    here, gate = there.folder / "here", there.folder / "gate"
    os.mkfifo(gate)
    run_dir = there.make(there.request("half:", f"here:{here}", f"wait:{gate}"))
    running = there.begin(run_dir)
    until(here.exists, "the script")
    running.kill()
    running.wait(60)
    (there.make(there.request("say:x"), "run-0") / "external.json").write_text("{")
    recovered = harness("recover", there.root)
    assert recovered.returncode == 1
    assert "run-0/external.json: not JSON" in recovered.stderr
    assert f"what was not put back lies in {there.root}/runs/run-0/kept" in recovered.stderr
    assert there.is_as_before()
    assert "run-0/external.json: not JSON" in (ending(there.run("write:", name="run-2")).error or "")
    assert there.is_as_before()
