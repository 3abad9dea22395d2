"""Several people, one evaluation host: they take turns, and nobody's request is worked on twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dflash_tui.harness import turn
from tests.cli.world import Desk
from tests.workstation import line_with


@contextmanager
def occupied(world: Desk) -> Iterator[None]:
    """Somebody has the turn on the evaluation host."""
    with turn.opened(world.evaluations / "runs") as folder:
        assert turn.lock(folder)
        yield


def test_two_workstations_that_ask_the_same_at_once_get_one_run(world: Desk, quick: Any, tmp_path: Path) -> None:
    before = world.run_dirs()
    both = [world.begin("eval", "--block-size", "11", "--json", state=tmp_path / name) for name in ("hers", "his")]
    answers = [json.loads(child.communicate(timeout=120)[0]) for child in both]
    assert sorted(answer["existing"] for answer in answers) == [False, True]
    made = world.run_dirs() - before
    assert {answer["result"]["run_id"] for answer in answers} == made
    assert len(made) == 1
    assert [world.json("runs", state=tmp_path / name)["runs"][0]["state"] for name in ("hers", "his")] == [
        "finished"
    ] * 2


def test_what_a_colleague_has_evaluated_is_shown_instead_of_evaluated_again(
    world: Desk, quick: Any, apart: Path
) -> None:
    before = world.run_dirs()
    ran = world.run("eval", "--json", state=apart)
    assert ran.data["existing"] is True
    assert ran.data["result"]["per_prompt"] == quick["result"]["per_prompt"]
    run_id = ran.data["result"]["run_id"]
    assert run_id in before
    assert f"{run_id} answers the same request, asked elsewhere; none is started" in ran.err
    assert world.run_dirs() == before
    assert [run["run_id"] for run in world.json("runs", state=apart)["runs"]] == [run_id]
    assert world.json("show", run_id, state=apart)["result"]["blocks"] == 45


def test_a_run_waits_for_its_turn_and_says_so(world: Desk, quick: Any, apart: Path) -> None:
    with occupied(world):
        child = world.begin("eval", "--block-size", "12", "--json", state=apart)
        line_with(child.stderr, "queued behind another run")
    out, err = child.communicate(timeout=120)
    assert json.loads(out)["existing"] is False, err


def test_a_run_that_waits_can_be_stopped_by_its_name(world: Desk, quick: Any, apart: Path) -> None:
    with occupied(world):
        child = world.begin("eval", "--block-size", "13", "--json", state=apart)
        run_id = line_with(child.stderr, "run ").split()[1]
        line_with(child.stderr, "queued behind")
        assert world.json("stop", run_id, state=apart)["state"] == "stopped"
        _, err = child.communicate(timeout=120)
    assert child.returncode == 1
    assert "stopped by SIGTERM" in err
