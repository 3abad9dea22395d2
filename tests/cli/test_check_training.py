"""A training that can't be watched, each cause told by one sentence: what was found, expected, and what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cli.checked import check
from tests.cli.world import Desk


def test_a_log_that_is_called_otherwise(world: Desk) -> None:
    found = check(world, world.other_config("log.toml", training={"log": "/data/slamed5/train.log"}))
    assert found.only("training", "log") == (
        "ct200:/data/slamed5/train.log does not exist; expected the trainer's log (training.log); did you mean "
        "/data/slammed5/train.log?"
    )


def test_a_log_in_which_no_step_is_said(world: Desk, spoiled: Path) -> None:
    (spoiled / "train.log").write_text("the quick brown fox\n" * 40)
    found = check(world, world.other_config("dialect.toml", training={"log": "/data/spoiled/train.log"}))
    sentence = found.only("training", "log")
    assert "no step is recognised in the last 40 lines of ct200:/data/spoiled/train.log" in sentence
    assert "found `the quick brown fox`, expected lines such as `step 1200/20000 loss 2.01`" in sentence
    assert "set training.log" in sentence


def test_a_log_of_a_training_that_has_just_begun_is_a_warning(world: Desk, spoiled: Path) -> None:
    (spoiled / "train.log").write_text("loading the model\n")
    found = check(world, world.other_config("new.toml", training={"log": "/data/spoiled/train.log"}))
    assert found.code == 0
    assert ("training", "log") in found.places("warn")


def test_a_log_that_tells_epochs_and_no_steps_is_read_for_what_it_tells(world: Desk, spoiled: Path) -> None:
    lines = [f"{{'loss': {4 - n / 10:.1f}, 'learning_rate': 1e-4, 'epoch': {n / 100}}}\n" for n in range(29)]
    (spoiled / "train.log").write_text("".join(lines))
    found = check(world, world.other_config("epochs.toml", training={"log": "/data/spoiled/train.log"}))
    assert found.code == 0, found.failures
    assert ("training", "log") in found.places("warn")
    sentence = found.sentence("training", "log")
    assert "/data/spoiled/train.log: epoch, loss and learning rate are read" in sentence
    assert "no step is recognised, as in `{'loss': 1.2" in sentence
    assert "let the trainer print its step, too" in sentence


def test_a_checkpoints_folder_that_is_empty_is_a_warning(world: Desk, spoiled: Path) -> None:
    found = check(world, world.other_config("empty.toml", training={"checkpoints": "/data/spoiled"}))
    assert found.code == 0, found.failures
    assert ("training", "checkpoints") in found.places("warn")
    assert "/data/spoiled is empty; eval and fetch wait for the first" in found.sentence("training", "checkpoints")
    assert found.sentence("evaluation", "drafter") == "not tried: there is no complete checkpoint to look at"


def test_a_folder_that_holds_something_else_than_checkpoints(world: Desk, spoiled: Path) -> None:
    (spoiled / "photos").mkdir()
    (spoiled / "notes.txt").write_text("x")
    found = check(world, world.other_config("strange.toml", training={"checkpoints": "/data/spoiled"}))
    sentence = found.only("training", "checkpoints")
    assert "holds no checkpoint; found notes.txt, photos, expected step_N, checkpoint-N" in sentence


def test_a_half_written_newest_checkpoint_is_a_warning(world: Desk) -> None:
    whole = world.save(10, "half")
    newest = world.save(20, "half")
    newest.write_bytes(newest.read_bytes()[:5000])
    try:
        found = check(world, world.other_config("half.toml", training={"checkpoints": "/data/half/checkpoints"}))
    finally:
        shutil.rmtree(whole.parents[2])
    assert found.code == 0, found.failures
    sentence = found.sentence("training", "newest checkpoint")
    assert "step_20" in sentence
    assert "step 10 is used until it is whole" in sentence


def test_arguments_that_are_no_json(world: Desk, spoiled: Path) -> None:
    (spoiled / "args.json").write_text("block_size: 32\n")
    found = check(world, world.other_config("args.toml", training={"arguments": "/data/spoiled/args.json"}))
    assert "ct200:/data/spoiled/args.json: not a JSON text" in found.only("training", "arguments")
