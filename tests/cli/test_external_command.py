"""`eval --external` over a real sshd: a script of the user's own on the evaluation host."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import Desk
from tests.harness.external_world import OLD, SCRIPT, until
from tests.test_readme import documented


@pytest.fixture(scope="module")
def scripts(world: Desk) -> Iterator[Path]:
    """The folder of the user's script on the evaluation host, with old results beside it."""
    folder = world.root / "scripts"
    folder.mkdir()
    shutil.copyfile(SCRIPT, folder / "run_eval.py")
    (folder / "eval_results.json").write_bytes(OLD)
    yield folder
    shutil.rmtree(folder)


def config(world: Desk, scripts: Path, *words: str, **harness: Any) -> tuple[str, str]:
    """--config with a [harness] that has these words."""
    command = [sys.executable, os.fspath(scripts / "run_eval.py"), *words]
    path = world.other_config("external.toml", harness={"command": command, **harness})
    return "--config", os.fspath(path)


@pytest.fixture(scope="module")
def done(world: Desk, scripts: Path) -> Any:
    """`eval --external --json` of a script that writes to its fixed path whatever it is told."""
    words = ("say:loading {checkpoint}", "bar:3/45", "bar:45/45", "write:")
    ran = world.run(*config(world, scripts, *words), "eval", "--external", "--json", state=world.root / "external")
    return ran


def test_the_scripts_result_is_answered_and_its_old_file_is_untouched(world: Desk, scripts: Path, done: Any) -> None:
    answer = done.data
    assert set(answer) == documented()["eval"]
    result = answer["result"]
    assert (result["training"], result["step"], result["preset"], result["blocks"]) == ("slammed5", 4000, "quick", 45)
    assert result["streak"] == {"top1": 143 / 45, "top4": 256 / 45, "top8": 367 / 45}
    assert Path(result["run_dir"]) == world.evaluations / "runs" / result["run_id"]
    assert (scripts / "eval_results.json").read_bytes() == OLD
    assert {path.name for path in scripts.iterdir()} == {"run_eval.py", "eval_results.json"}


def test_it_is_compared_as_the_story_compares_it(done: Any) -> None:
    comparison = done.data["comparison"]
    assert comparison["verdict"] == "untestable"
    assert {name: round(value, 3) for name, value in comparison["delta"].items()} == {
        "top1": 2.4, "top4": 4.578, "top8": 6.689,
    }  # fmt: skip
    codes = {finding["code"]: finding["values"] for finding in comparison["caveats"]}
    assert codes["STEP_BEHIND_LIVE"] == [4000, 5329, 1329]
    assert codes["BLOCK_SIZE_MISMATCH"] == [16, 32]


def test_narration_says_what_is_kept_safe_and_how_far_it_is(done: Any) -> None:
    assert "kept as they are while it runs: eval_results.json" in done.err
    assert "done 45/45" in done.err


def test_logs_show_runs_and_report_know_the_run(world: Desk, done: Any) -> None:
    run_id, state = done.data["result"]["run_id"], world.root / "external"
    lines = world.json("logs", run_id, state=state)["lines"]
    assert any(line.startswith("loading /") for line in lines)
    assert any("is as it was before, sha256 " in line for line in lines)
    assert world.json("show", run_id, state=state)["result"]["streak"] == done.data["result"]["streak"]
    (line,) = world.json("runs", state=state)["runs"]
    assert (line["run_id"], line["state"], line["blocks"]) == (run_id, "finished", 45)
    assert "3.178" in world.run("report", run_id, state=state).out


def test_a_run_that_is_left_is_stopped_by_name_and_the_old_file_is_back(world: Desk, scripts: Path) -> None:
    gate, state = scripts / "gate", world.root / "left"
    os.mkfifo(gate)
    options = config(world, scripts, "half:", "say:begun", f"wait:{gate}")
    begun = world.begin(*options, "eval", "--external", "--json", state=state)
    until(lambda: (scripts / "eval_results.json").read_bytes() != OLD, "the script")
    begun.send_signal(signal.SIGINT)
    assert begun.wait(60) == 130
    (run,) = world.json("runs", state=state)["runs"]
    assert run["state"] == "running"
    stopped = world.run(*options, "stop", run["run_id"], "--json", state=state)
    assert stopped.data["state"] == "stopped"
    assert (scripts / "eval_results.json").read_bytes() == OLD
    gate.unlink()


def test_a_script_that_fails_is_one_sentence(world: Desk, scripts: Path) -> None:
    options = config(world, scripts, "half:", "err:KeyError: 'fc.weight'", "end:1")
    said = world.run(*options, "eval", "--external", state=world.root / "failed").failed(1)
    assert said.endswith("run_eval.py ended with status 1: KeyError: 'fc.weight'")
    assert (scripts / "eval_results.json").read_bytes() == OLD


def test_without_a_harness_in_the_config_it_is_one_sentence(world: Desk) -> None:
    assert "no [harness], which names your own evaluation script" in world.run("eval", "--external").failed(1)


def test_options_of_our_own_harness_are_refused(world: Desk, scripts: Path) -> None:
    options = config(world, scripts, "write:")
    said = world.run(*options, "eval", "--external", "--block-size", "8").failed(1)
    assert "--block-size is for our own harness" in said
