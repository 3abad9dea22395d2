"""`capture`: the hidden states that are missing, made by the real target on the evaluation host."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.world import DEMO, Desk
from tests.test_readme import documented
from tests.workstation import tree

PRESENT = "fizzbuzz"


@pytest.fixture(scope="module")
def tiny(world: Desk) -> Iterator[Path]:
    """The config of a training of the demo's drafter, evaluated with the demo's target on one prompt of three."""
    saved = world.container / "data" / "tiny" / "checkpoints" / "step_100"
    saved.parent.mkdir(parents=True)
    shutil.copytree(DEMO / "baseline", saved)
    lab = world.root / "lab" / "tiny"
    (lab / "hidden_states").mkdir(parents=True)
    shutil.copyfile(DEMO / "hidden_states" / f"{PRESENT}.safetensors", lab / "hidden_states" / f"{PRESENT}.safetensors")
    prompts = [json.loads(line) for line in (DEMO / "prompts.jsonl").read_text().splitlines()]
    chosen = [prompts[0], *prompts[3:5]]
    (lab / "prompts.jsonl").write_text("".join(json.dumps(prompt) + "\n" for prompt in chosen))
    yield world.other_config(
        "tiny.toml",
        training={"checkpoints": "/data/tiny/checkpoints"},
        evaluation={
            "target": str(DEMO / "target"),
            "prompts": str(lab / "prompts.jsonl"),
            "hidden_states": str(lab / "hidden_states"),
        },
        drafter={},
        baseline={},
    )
    shutil.rmtree(lab)
    shutil.rmtree(saved.parents[1])


@pytest.fixture(scope="module")
def asked(world: Desk, tiny: Path) -> list[str]:
    path = world.root / "lab" / "tiny" / "prompts.jsonl"
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def captured(world: Desk, tiny: Path) -> Any:
    """The answer, and the hidden states as they were before."""
    before = tree(world.root / "lab" / "tiny" / "hidden_states")
    return world.json("--config", tiny, "capture"), before


def test_the_missing_prompts_get_hidden_states(world: Desk, captured: Any, asked: list[str]) -> None:
    answer, _ = captured
    assert set(answer) == documented()["capture"]
    assert answer["host"] == "ct129"
    assert answer["captured"] == asked[1:]
    assert answer["present"] == answer["asked"] == asked
    folder = Path(answer["folder"])
    assert {path.name for path in folder.glob("*.safetensors")} == {f"{prompt}.safetensors" for prompt in asked}


def test_those_that_were_there_are_not_touched(world: Desk, captured: Any) -> None:
    answer, before = captured
    now = tree(Path(answer["folder"]))
    assert len(before) == 1
    assert {name: now[name] for name in before} == before


def test_when_none_is_missing_nothing_is_done(world: Desk, tiny: Path, captured: Any, asked: list[str]) -> None:
    runs = world.run_dirs()
    answer = world.json("--config", tiny, "capture")
    assert (answer["captured"], answer["present"]) == ([], asked)
    assert world.run_dirs() == runs
    assert "none was missing" in world.run("--config", tiny, "capture").out


def test_an_evaluation_then_covers_every_prompt(world: Desk, tiny: Path, captured: Any, asked: list[str]) -> None:
    result = world.json("--config", tiny, "eval", "--preset", "full")["result"]
    assert list(result["per_prompt"]) == asked
    assert "PARTIAL_PROMPT_COVERAGE" not in [finding["code"] for finding in result["caveats"]]
    assert result["training"] == "tiny"
    assert result["tau"] > 1.2


def test_layers_that_can_not_be_captured_are_said_before_anything_is_made(world: Desk, tiny: Path) -> None:
    saved = world.container / "data" / "deep" / "checkpoints" / "step_100"
    saved.parent.mkdir(parents=True)
    shutil.copytree(DEMO / "baseline", saved)
    described = json.loads((saved / "config.json").read_text())
    last = json.loads((DEMO / "target" / "config.json").read_text())["num_hidden_layers"] - 1
    described["dflash_config"]["target_layer_ids"][-1] = last
    (saved / "config.json").write_text(json.dumps(described))
    lab = world.root / "lab" / "tiny"
    evaluation = {
        "target": str(DEMO / "target"),
        "prompts": str(lab / "prompts.jsonl"),
        "hidden_states": str(lab / "no"),
    }
    training = {"checkpoints": "/data/deep/checkpoints"}
    deep = world.other_config("deep.toml", training=training, evaluation=evaluation, drafter={}, baseline={})
    runs = world.run_dirs()
    assert f"tap {last} is the target's last block" in world.run("--config", deep, "capture").failed(1)
    assert world.run_dirs() == runs
    assert not (lab / "no").exists()


def test_a_target_that_can_not_be_run_is_said(world: Desk, apart: Path) -> None:
    runs = world.run_dirs()
    sentence = world.run("capture", "--json", state=apart).failed(1)
    assert sentence.startswith("dflash-tui: ")
    assert "hidden_size is None; expected a number" in sentence
    assert world.run_dirs() == runs
