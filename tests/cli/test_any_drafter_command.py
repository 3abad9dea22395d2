"""`eval --model`, `--drafter-config`, `--like`, and baselines that are drafters, over real sshds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.cli.world import Desk


@pytest.fixture
def published(world: Desk, apart: Path) -> Path:
    """A published drafter on the evaluation host, as the Hugging Face cache keeps it."""
    hub = apart.parent / "hub" / "models--z-lab--Tiny-DFlash"
    blobs, snapshot = hub / "blobs", hub / "snapshots" / "0123"
    for folder in (blobs, snapshot):
        folder.mkdir(parents=True)
    for index, name in enumerate(("config.json", "model.safetensors")):
        shutil.copy(world.lab.case.folder / name, blobs / str(index))
        (snapshot / name).symlink_to(f"../../blobs/{index}")
    return snapshot


def test_a_drafter_of_no_training_is_evaluated_where_it_lies(world: Desk, apart: Path, published: Path) -> None:
    answer = world.json("eval", "--model", f"ct129:{published}", state=apart)
    result = answer["result"]
    assert (result["training"], result["step"], result["blocks"]) == (None, None, 45)
    assert result["checkpoint"] == f"ct129:{published}"
    assert result["run_id"].startswith("z-lab-Tiny-DFlash-drafter-")
    linked = Path(result["run_dir"]) / "checkpoint" / "model.safetensors"
    assert linked.samefile(published / "model.safetensors")
    assert not linked.is_symlink()


def test_one_of_this_machine_is_moved_there(world: Desk, apart: Path, published: Path) -> None:
    ran = world.run("eval", "--model", f"local:{published}", "--block-size", "6", "--json", state=apart)
    assert ran.data["result"]["checkpoint"] == f"local:{published}"
    assert "local ▸ ct129" in ran.err


def test_a_baseline_drafter_stands_beside_the_checkpoint(world: Desk, apart: Path, published: Path) -> None:
    weights = published / "model.safetensors"
    save_file({name: tensor * 1.01 for name, tensor in load_file(weights).items()}, weights.resolve())
    config = apart.parent / "config.toml"
    declared = f'[[baseline]]\nname = "z-lab"\ndrafter = "{published}"\n'
    config.write_text(f"{world.config_text(baseline={})}\n{declared}")
    ran = world.run("--config", config, "eval", "--block-size", "7", "--json", state=apart)
    comparison = ran.data["comparison"]
    assert (comparison["previous"], comparison["pairing"]) == ("z-lab", "anchors")
    listed = world.json("runs", state=apart)
    assert sorted(line["baseline"] for line in listed["runs"]) == ["", "z-lab"]
    again = world.run("--config", config, "eval", "--block-size", "7", "--against", "z-lab", "--json", state=apart)
    assert again.data["existing"] is True
    assert again.data["comparison"]["previous"] == "z-lab"
    shown = world.json("show", "z-lab", state=apart)
    assert shown["result"]["per_prompt"].keys() == again.data["result"]["per_prompt"].keys()
    like = world.json("--config", config, "eval", "--like", "z-lab", state=apart)
    assert like["existing"] is True


def test_what_contradicts_itself_is_usage(world: Desk, apart: Path) -> None:
    for argv in (("--preset", "full", "--like", "x"), ("--step", "4000", "--model", "/x")):
        ran = world.run("eval", *argv, state=apart)
        assert ran.code == 2
        assert "not allowed with argument" in ran.err
    said = world.run("eval", "--drafter-config", "/x.json", state=apart).failed(1)
    assert "--drafter-config describes a --model" in said


def test_what_is_not_there_is_one_sentence(world: Desk, apart: Path) -> None:
    assert "/nowhere: does not exist" in world.run("eval", "--model", "ct129:/nowhere", state=apart).failed(1)
    assert "'nope' is no run, pin or file" in world.run("eval", "--like", "nope", state=apart).failed(1)
