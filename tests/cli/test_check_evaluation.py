"""Evaluations that could not run, each cause told by one sentence: what was found, expected, and what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli.checked import check, mounted, stand_in
from tests.cli.world import DEMO, Desk


def test_a_root_that_is_read_only(world: Desk, tmp_path: Path) -> None:
    with mounted(tmp_path / "readonly", "size=200m") as folder:
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        found = check(world, world.other_config("ro.toml", evaluation={"root": os.fspath(folder)}, baseline={}))
    assert found.only("evaluation", "root") == (
        f"ct129:{folder} can't be written (Read-only file system), expected a folder for runs: let its owner give this "
        "user write permission, or set evaluation.root to a folder of your own"
    )
    assert found.sentence("evaluation", "target") == f"not tried: the harness can't be kept in {folder}"


def test_a_disk_without_room(world: Desk, tmp_path: Path) -> None:
    with mounted(tmp_path / "full", "size=1m") as folder:
        with (folder / "filler").open("wb") as file:
            file.write(bytes(1 << 20))
        found = check(world, world.other_config("full.toml", evaluation={"root": os.fspath(folder)}, baseline={}))
    sentence = found.only("evaluation", "space")
    assert f"ct129:{folder}: 0 B free, 68.46 MB needed for step_4000 and a run's records" in sentence
    assert "remove what is not needed there" in sentence


def test_runs_on_another_filesystem_are_a_warning(world: Desk, tmp_path: Path) -> None:
    root = tmp_path / "eval"
    (root / "checkpoints").mkdir(parents=True)
    with mounted(root / "runs", "size=100m"):
        found = check(world, world.other_config("fs.toml", evaluation={"root": os.fspath(root)}, baseline={}))
        assert list((root / "runs").iterdir()) == list((root / "checkpoints").iterdir()) == []
    assert found.code == 0, found.failures
    sentence = found.sentence("evaluation", "links")
    assert f"ct129: no hard link from {root}/checkpoints to {root}/runs" in sentence
    assert "each run copies its checkpoint then" in sentence


def test_a_root_that_is_still_to_be_made_is_well(world: Desk, tmp_path: Path) -> None:
    root = tmp_path / "later" / "eval"
    found = check(world, world.other_config("later.toml", evaluation={"root": os.fspath(root)}, baseline={}))
    assert found.code == 0, found.failures
    assert f"{root} does not exist yet and can be made in {tmp_path}" in found.sentence("evaluation", "root")


def test_a_python_without_torch(world: Desk) -> None:
    python = stand_in(world, "bare", f'exec {sys.executable} -I -S "$@"')
    found = check(world, world.other_config("bare.toml", evaluation={"python": python}))
    sentence = found.only("evaluation", "torch")
    assert f"{python} (Python " in sentence
    assert f"has no torch, expected one: install it with `{python} -m pip install torch" in sentence
    assert found.sentence("evaluation", "python").startswith(f"ct129: {python} is Python 3.")
    assert ("evaluation", "target") in found.places("ok")


def test_a_python_whose_torch_is_broken(world: Desk) -> None:
    folder = world.root / "spoilt" / "broken"
    (folder / "torch").mkdir(parents=True, exist_ok=True)
    (folder / "torch" / "__init__.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object')\n")
    python = stand_in(world, "cracked", f'PYTHONPATH={folder} exec {sys.executable} "$@"')
    found = check(world, world.other_config("cracked.toml", evaluation={"python": python}))
    sentence = found.only("evaluation", "torch")
    assert "can't be imported" in sentence
    assert "ImportError: libcudart.so.12: cannot open shared object" in sentence


def test_a_python_that_is_too_old(world: Desk) -> None:
    python = stand_in(world, "old", "echo dflash 3.8.10 /usr/bin/python3.8")
    found = check(world, world.other_config("old.toml", evaluation={"python": python}))
    assert found.only("evaluation", "python") == (
        f"ct129: {python} is Python 3.8.10 (/usr/bin/python3.8), expected 3.10 or newer with torch: set "
        "evaluation.python to one"
    )
    assert found.sentence("evaluation", "prompts") == f"not tried: {python} can't run the harness"


def test_a_python_that_is_not_there(world: Desk) -> None:
    found = check(world, world.other_config("none.toml", evaluation={"python": "/nowhere/python3"}))
    assert "/nowhere/python3 can't be run" in found.only("evaluation", "python")


def test_a_target_without_its_config(world: Desk) -> None:
    target = world.root / "spoilt" / "headless"
    shutil.copytree(world.lab.target.folder, target, dirs_exist_ok=True)
    (target / "config.json").unlink()
    found = check(world, world.other_config("target.toml", evaluation={"target": os.fspath(target)}))
    sentence = found.only("evaluation", "target")
    assert "config.json" in sentence
    assert "expected evaluation.target to be a whole Hugging Face folder" in sentence


def test_a_target_that_is_called_otherwise(world: Desk) -> None:
    found = check(world, world.other_config("near.toml", evaluation={"target": f"{world.lab.target.folder}s"}))
    assert f"did you mean {world.lab.target.folder}?" in found.only("evaluation", "target")


def test_prompts_of_which_two_have_one_id(world: Desk) -> None:
    prompts = world.root / "spoilt" / "twice.jsonl"
    prompts.write_text('{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n')
    found = check(world, world.other_config("twice.toml", evaluation={"prompts": os.fspath(prompts)}))
    sentence = found.only("evaluation", "prompts")
    assert f"{prompts}: prompt id 'a' appears twice; ids name files and must differ" in sentence
    assert found.sentence("evaluation", "hidden states") == "not tried: the prompts can't be read"


def test_hidden_states_of_other_layers(world: Desk) -> None:
    described = json.loads((world.lab.root / "drafter.json").read_text())
    text = json.dumps(described).replace("[1, 3, 5]", "[0, 2, 4]")
    assert text != json.dumps(described)
    other = world.root / "spoilt" / "taps.json"
    other.write_text(text)
    found = check(world, world.other_config("taps.toml", drafter={"config": os.fspath(other)}))
    sentence = found.only("evaluation", "hidden states")
    assert "0 of 4 prompts can be used, 3 refused, first" in sentence
    assert "the drafter's taps" in sentence
    assert sentence.endswith("move them away and put your own in their place")


def test_no_hidden_states_at_all(world: Desk) -> None:
    tiny = {"target": str(DEMO / "target"), "prompts": str(DEMO / "prompts.jsonl"), "hidden_states": "/nowhere/hs"}
    found = check(world, world.other_config("hs.toml", evaluation=tiny, drafter={}))
    sentence = found.sentence("evaluation", "hidden states")
    assert ("evaluation", "hidden states") in found.places("fail")
    assert sentence.startswith("ct129:/nowhere/hs does not exist (evaluation.hidden_states): 0 of 10 prompts")
    assert "make them with: dflash-tui capture" in sentence
    assert ("evaluation", "capture") in found.places("ok")


def test_a_capture_that_can_not_work_is_not_promised(world: Desk) -> None:
    found = check(world, world.other_config("own.toml", evaluation={"hidden_states": "/nowhere/hs"}))
    assert "dflash-tui capture" not in found.only("evaluation", "hidden states")
    assert "put your own there" in found.only("evaluation", "hidden states")
    assert ("evaluation", "capture") in found.places("warn")
    assert "config.json: hidden_size is None; expected a number" in found.sentence("evaluation", "capture")


def test_one_of_several_folders_of_hidden_states_does_not_exist(world: Desk) -> None:
    folders = [os.fspath(world.lab.hidden_states), "/nowhere/hs"]
    text = world.config_text().replace(f'hidden_states = "{folders[0]}"', f"hidden_states = {json.dumps(folders)}")
    config = world.root / "folders.toml"
    config.write_text(text)
    found = check(world, config)
    assert found.code == 0, found.failures
    assert found.sentence("evaluation", "hidden states 2").startswith("ct129:/nowhere/hs does not exist")


def test_settings_that_the_training_says_otherwise_are_a_warning(world: Desk, spoiled: Path) -> None:
    described = json.loads((world.lab.root / "drafter.json").read_text())
    arguments = spoiled / "args.json"
    inner = described.get("dflash_config", {})
    same = {
        "block_size": described["block_size"],
        "mask_token_id": inner.get("mask_token_id", described.get("mask_token_id")),
        "target_layer_ids": inner.get("target_layer_ids", described.get("target_layer_ids")),
    }
    log = spoiled / "train.log"
    log.write_text("step=5329/20000 loss=2.0\n")
    for name, value, words in (
        ("mask_token_id", 7, "mask token "),
        ("target_layer_ids", [0, 2, 4], "taps "),
        ("block_size", 32, "block size "),
    ):
        arguments.write_text(json.dumps({**same, name: value}))
        training = {"arguments": "/data/spoiled/args.json", "log": "/data/spoiled/train.log"}
        found = check(world, world.other_config("otherwise.toml", training=training))
        sentence = found.sentence("evaluation", "drafter")
        assert ("evaluation", "drafter") in found.places("warn")
        assert found.code == 0
        shown = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        assert f", {shown} (ct200:/data/spoiled/args.json [{name}]); is drafter.config that of another?" in sentence
        assert f"it was trained otherwise than it will be evaluated: {words}" in sentence
        assert f"{world.lab.root}/drafter.json: " in sentence
    arguments.write_text(json.dumps(same))
    found = check(world, world.other_config("otherwise.toml", training=training))
    assert ("evaluation", "drafter") in found.places("ok")


def test_settings_that_nothing_gives(world: Desk) -> None:
    found = check(world, world.other_config("settings.toml", drafter={}))
    sentence = found.only("evaluation", "drafter")
    assert "ct200" in sentence
    assert "rope_theta" in sentence
    assert found.sentence("evaluation", "memory").startswith("not tried: ")


def test_a_drafters_config_that_is_not_there(world: Desk) -> None:
    found = check(world, world.other_config("dc.toml", drafter={"config": f"{world.lab.root}/drafterr.json"}))
    assert f"did you mean {world.lab.root}/drafter.json?" in found.only("evaluation", "drafter")


def test_a_baseline_that_is_no_result(world: Desk) -> None:
    path = os.fspath(world.lab.root / "drafter.json")
    found = check(world, world.other_config("base.toml", baseline={"file": path}))
    sentence = found.only("baselines", "previous")
    assert f"ct129:{path}: not a result that can be read: found keys" in sentence
    assert "(baseline.previous.file)" in sentence


def test_a_baseline_drafter_that_is_not_there(world: Desk) -> None:
    baseline = {"name": "zlab", "drafter": "/nowhere/drafter", "file": ""}
    text = world.config_text(baseline=baseline).replace('file = ""\n', "")
    config = world.root / "drafter.toml"
    config.write_text(text)
    found = check(world, config)
    assert "ct129:/nowhere/drafter does not exist; expected a drafter" in found.only("baselines", "zlab")


def test_a_harness_script_that_is_missing(world: Desk) -> None:
    script = world.lab.root / "run_eval.py"
    script.write_text("print('hello')\n")
    try:
        command = [sys.executable, os.fspath(world.lab.root / "run_evals.py"), "{checkpoint}"]
        found = check(world, world.other_config("harness.toml", harness={"command": command}))
        assert found.only("harness", "script") == (
            f"ct129:{command[1]} does not exist; expected your script (harness.command); did you mean {script}?"
        )
        command[1] = os.fspath(script)
        assert check(world, world.other_config("harness.toml", harness={"command": command})).code == 0
    finally:
        script.unlink()


def test_a_placeholder_that_means_nothing(world: Desk) -> None:
    found = check(world, world.other_config("place.toml", harness={"command": ["/bin/echo", "{chekpoint}"]}))
    assert "{chekpoint}" in found.only("harness", "command")
    assert "did you mean {checkpoint}?" in found.sentence("harness", "command")


def test_a_program_that_can_not_be_run(world: Desk) -> None:
    found = check(world, world.other_config("program.toml", harness={"command": ["/nowhere/eval", "{checkpoint}"]}))
    assert "/nowhere/eval: no such program that can be run" in found.only("harness", "command")


def test_the_ways_that_a_checkpoint_can_take_are_tried(world: Desk) -> None:
    found = check(world, world.config)
    assert found.sentence("evaluation", "route").startswith("ct200 to ct129 through this machine, by one process")
    assert not [
        place for state in ("ok", "warn", "fail") for place in found.places(state) if place[1] == "direct route"
    ]
    config = world.other_config("direct.toml", transfer={"route": "direct"})
    found = check(world, config)
    sentence = found.only("evaluation", "direct route")
    assert "ct200" in sentence
    assert sentence.endswith("transfer.route = 'direct' allows no other, 'auto' or 'relay' do")
    auto = check(world, world.other_config("auto.toml", transfer={"route": "auto"}))
    assert ("evaluation", "direct route") in auto.places("warn")
