"""The README's walk-through of a real set-up, done by the letter."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from dflash_tui.config import load_config
from tests.bed.bed import Bed
from tests.bed.screen import Screen
from tests.workstation import until

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    """Every command of the section, in its order."""
    section = README.split("<!-- walk-through -->")[1].split("<!-- end -->")[0]
    text = "\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL)).replace("\\\n", " ")
    return [words for line in text.splitlines() if (words := shlex.split(line, comments=True))]


@pytest.fixture
def cluster(bed: Bed) -> Bed:
    bed.unset()
    return bed


@pytest.fixture
def screen(cluster: Bed) -> Iterator[Screen]:
    made = Screen(cluster)
    yield made
    made.close()


def test_the_walk_through_by_the_letter(cluster: Bed, screen: Screen) -> None:
    done = []
    for program, *words in commands():
        assert program == "dflash-tui"
        if words:
            ran = cluster.run(*words)
            assert ran.code == 0, ran
            done.append(words[0])
        else:
            _evaluate_in_the_app(cluster, screen)
            done.append("the app")
        if words[:1] == ["init"]:
            _assert_config(cluster)
    assert done == ["init", "check", "the app", "status", "eval", "runs"]
    kept = cluster.json("runs")
    assert [(run["preset"], run["state"], run["blocks"]) for run in kept["runs"]] == [
        ("quick", "finished", 45),
        ("full", "finished", 90),
    ]
    assert {run["run_id"] for run in kept["runs"]} == cluster.run_dirs()
    assert [pin["name"] for pin in kept["pins"]] == ["previous"]


def _evaluate_in_the_app(cluster: Bed, screen: Screen) -> None:
    screen.start()
    screen.shows("step 5,329", "saved ◆4000")
    screen.press("e")
    until(lambda: any(_ended(cluster, run_id) for run_id in cluster.run_dirs()), "the end of an evaluation")
    screen.shows("vanilla top-1", "previous")
    screen.press("q")
    until(lambda: not screen.stands, "the app's end")


def _ended(cluster: Bed, run_id: str) -> bool:
    return (cluster.state / "runs" / run_id / "exit.json").exists()


def _assert_config(cluster: Bed) -> None:
    """What was found is what lies there."""
    made = load_config(cluster.config)
    assert (made.training.host, made.hosts["ct200"].via) == ("ct200", "pve1")
    assert made.hosts["ct200"].container == ("pct", "exec", "200", "--")
    assert made.training.log == "/data/slammed5/train.log"
    assert made.training.checkpoints == "/data/slammed5/checkpoints"
    assert made.evaluation is not None
    assert (made.evaluation.host, made.evaluation.root) == ("ct129", "/srv/eval")
    assert made.evaluation.target == "/srv/target"
    assert made.evaluation.prompts == "/srv/prompts.jsonl"
    assert made.evaluation.hidden_states == ("/srv/hidden_states",)
    assert made.evaluation.python == "/srv/venv/bin/python"
    assert os.stat(cluster.config).st_mode & 0o777 == 0o600
