"""`status`, `checkpoints` and `logs`: the training in its container, through the hypervisor."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.cli.world import Desk
from tests.test_readme import documented
from tests.workstation import RAW


def test_status_reads_the_training_once(world: Desk) -> None:
    answer = world.json("status")
    assert set(answer) == documented()["status"]
    assert (answer["training"], answer["host"]) == ("slammed5", "ct200")
    assert (answer["step"], answer["total"], answer["loss"], answer["lr"]) == (5329, 20000, 2.0065, 2.9e-4)
    assert answer["throughput"] == {"value": 19500.0, "unit": "tok/s", "scope": "unknown"}
    assert answer["last_line"].startswith("[2026-05-21 09:36:25] step=5329/20000")
    assert answer["newest_saved"]["step"] == 4000
    assert answer["newest_saved"]["size"] == RAW.stat().st_size
    assert answer["steps_behind"] == 1329
    assert answer["problems"] == []


def test_status_for_people_says_the_same(world: Desk) -> None:
    ran = world.run("status")
    assert ran.code == 0
    assert "slammed5 on ct200: step 5,329/20,000" in ran.out
    assert "newest saved: step 4000, 1.35 MB, 1,329 steps behind live" in ran.out


def test_a_checkpoint_that_is_ahead_of_the_log_is_not_behind_by_a_negative_number(world: Desk) -> None:
    (world.container / "data" / "begun.log").write_text("step=1201/20000 loss=2.5\n")
    config = world.other_config("begun.toml", training={"log": "/data/begun.log"})
    text = world.run("--config", config, "status").out
    assert "newest saved: step 4000, 1.35 MB, ahead of the log's step 1,201: it was begun anew since" in text
    assert world.json("--config", config, "status")["steps_behind"] is None


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_status_says_what_it_could_not_read(world: Desk, form: tuple[str, ...]) -> None:
    config = world.other_config("elsewhere.toml", training={"log": "/data/no.log", "checkpoints": "/data/none"})
    ran = world.run("--config", config, "status", *form)
    assert ran.code == 0
    assert "ct200: /data/no.log does not exist" in ran.out
    assert "ct200: /data/none does not exist" in ran.out


def test_checkpoints_lists_newest_last_and_says_why_one_is_not_complete(world: Desk) -> None:
    folder = world.container / "data" / "saves" / "checkpoints"
    for step, size in ((500, None), (1000, None), (1500, 400_000)):
        saved = folder / f"step_{step}" / "checkpoint.pt"
        saved.parent.mkdir(parents=True)
        shutil.copyfile(RAW, saved)
        if size is not None:
            os.truncate(saved, size)
    config = world.other_config("saves.toml", training={"checkpoints": "/data/saves/checkpoints"})
    answer = world.json("--config", config, "checkpoints")
    assert set(answer) == documented()["checkpoints"]
    assert (answer["host"], answer["root"]) == ("ct200", "/data/saves/checkpoints")
    found = [(item["step"], item["completeness"]) for item in answer["checkpoints"]]
    assert found[:2] == [(500, "complete"), (1000, "complete")]
    assert found[2][0] == 1500
    assert found[2][1] != "complete"
    assert answer["checkpoints"][2]["reason"]
    text = world.run("--config", config, "checkpoints").out.splitlines()
    assert text[0] == "ct200:/data/saves/checkpoints"
    assert [line.split()[0] for line in text[1:]] == ["500", "1000", "1500"]


def test_logs_without_a_run_shows_the_training_s_last_lines(world: Desk) -> None:
    answer = world.json("logs", "-n", "2")
    assert set(answer) == documented()["logs"]
    assert answer["source"] == "ct200:/data/slammed5/train.log"
    assert [line.split()[2] for line in answer["lines"]] == ["step=5320/20000", "step=5329/20000"]
    assert world.run("logs", "-n", "1").out == answer["lines"][1] + "\n"


def test_a_checkpoints_folder_that_is_not_there_is_no_empty_one(world: Desk) -> None:
    config = world.other_config("nowhere.toml", training={"checkpoints": "/data/none"})
    for command in ("checkpoints", "fetch"):
        ran = world.run("--config", config, command)
        assert (ran.code, ran.out) == (1, "")
        assert "the checkpoints can't be listed: ct200: /data/none does not exist" in ran.err


def test_status_says_that_the_trainer_s_arguments_are_not_where_the_config_says(world: Desk) -> None:
    config = world.other_config("args.toml", training={"arguments": "/data/no_args.json"})
    problems = world.json("--config", config, "status")["problems"]
    assert problems == ["ct200: /data/no_args.json does not exist"]
