"""Drafters of no watched training: wherever they lie and however they are kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.state_dict_saver import save

from dflash_tui.console import events as happened
from dflash_tui.console.acts.evaluate import evaluate
from dflash_tui.console.acts.found import drafter_name, placed
from dflash_tui.console.acts.shown import show_newest
from dflash_tui.console.errors import TROUBLE, ConsoleError
from dflash_tui.evals.errors import EvaluationRefused
from dflash_tui.records.codec import loads
from dflash_tui.records.manifest import Manifest
from dflash_tui.results.caveats import caveats_of
from dflash_tui.results.report import report
from tests.console.world import Bench, bench


@pytest.fixture
async def tiny(tmp_path: Path) -> AsyncIterator[Bench]:
    made = bench(tmp_path)
    made.console.config = replace(made.console.config, baselines=())
    yield made
    await made.console.close()


def published(tiny: Bench, folder: Path) -> Path:
    """A drafter's folder as it is published."""
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny.lab.case.folder / name, folder / name)
    (folder / "README.md").write_text("a model card")
    return folder


def manifest_of(tiny: Bench, run_id: str) -> Manifest:
    path = tiny.root / "lab" / "eval" / "runs" / run_id / "manifest.json"
    return loads(Manifest, path.read_bytes(), str(path))


def linked(tiny: Bench, run_id: str) -> Path:
    return tiny.root / "lab" / "eval" / "runs" / run_id / manifest_of(tiny, run_id).checkpoint.linked


async def test_a_folder_on_the_evaluation_host_is_linked_as_it_lies(tiny: Bench) -> None:
    folder = published(tiny, tiny.root / "lab" / "models" / "z-lab")
    done = await evaluate(tiny.console, model=f"lab:{folder}")
    link = linked(tiny, done.run_id)
    assert {path.name for path in link.iterdir()} == {"config.json", "model.safetensors"}
    assert (link / "model.safetensors").samefile(folder / "model.safetensors")
    assert not tiny.of(happened.TransferStarted)
    manifest = manifest_of(tiny, done.run_id)
    assert (manifest.checkpoint.training, manifest.checkpoint.step) == ("", None)
    assert done.run_id.startswith("z-lab-drafter-quick-")
    codes = {finding.code for finding in caveats_of(done.evaluation)}
    assert not {"STEP_BEHIND_LIVE", "WRONG_MODEL", "SKIPPED_WEIGHTS"} & codes
    assert "A drafter of no watched training." in report(done.evaluation)
    assert any("z-lab, a drafter of no watched training" in line for line in tiny.console.state.evaluation.plan)
    show_newest(tiny.console)
    assert tiny.console.state.results.current == done.evaluation


async def test_the_same_weights_in_another_folder_are_answered_by_the_first_and_it_says_so(tiny: Bench) -> None:
    first = await evaluate(tiny.console, model=f"lab:{published(tiny, tiny.root / 'lab' / 'models' / 'z-lab')}")
    other = published(tiny, tiny.root / "lab" / "models" / "other")
    done = await evaluate(tiny.console, model=f"lab:{other}")
    assert (done.existing, done.run_id) == (True, first.run_id)
    (found,) = [item for item in caveats_of(done.evaluation) if item.code == "SAME_WEIGHTS_OTHER_FILE"]
    assert found.values[0].startswith(f"lab:{other}")
    assert f"holds the same weights as {first.evaluation.checkpoint_path}, which was evaluated" in found.sentence
    assert f"lab:{other}" in tiny.console.state.evaluation.plan[0]


async def test_the_anchors_are_those_of_a_checkpoint(tiny: Bench) -> None:
    tiny.save(4000)
    checkpoint = await evaluate(tiny.console)
    model = await evaluate(tiny.console, model=str(published(tiny, tiny.root / "lab" / "models" / "z-lab")))
    assert [(block.prompt, block.anchor) for block in model.evaluation.blocks] == [
        (block.prompt, block.anchor) for block in checkpoint.evaluation.blocks
    ]


async def test_a_hugging_face_snapshot_is_links_and_its_real_files_are_linked(tiny: Bench) -> None:
    hub = tiny.root / "lab" / "hub" / "models--z-lab--Tiny-DFlash"
    blobs = published(tiny, hub / "blobs")
    snapshot = hub / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).symlink_to(Path("../../blobs") / name)
    done = await evaluate(tiny.console, model=str(snapshot))
    for name in ("config.json", "model.safetensors"):
        link = linked(tiny, done.run_id) / name
        assert not link.is_symlink()
        assert link.samefile(blobs / name)
        assert link.stat().st_nlink == 2
    assert done.run_id.startswith("z-lab-Tiny-DFlash-drafter-")
    with pytest.raises(ConsoleError, match=f"no weights in it; .*its newest snapshot is {snapshot}$"):
        await evaluate(tiny.console, model=str(hub))


async def test_one_file_is_evaluated_with_the_config_beside_it(tiny: Bench) -> None:
    folder = published(tiny, tiny.root / "lab" / "models" / "two")
    shutil.copy(folder / "model.safetensors", folder / "other.safetensors")
    done = await evaluate(tiny.console, model=f"lab:{folder / 'other.safetensors'}")
    assert {path.name for path in linked(tiny, done.run_id).iterdir()} == {"config.json", "other.safetensors"}


async def test_shards_come_with_their_index(tiny: Bench) -> None:
    folder = published(tiny, tiny.workspace / "sharded")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for shard, inside in shards.items():
        save_file({name: tensors[name] for name in inside}, folder / shard)
    index = {"weight_map": {name: shard for shard, inside in shards.items() for name in inside}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "optimizer.pt").write_bytes(b"gigabytes")
    done = await evaluate(tiny.console, model=f"ct200:{folder}")
    assert {path.name for path in linked(tiny, done.run_id).iterdir()} == {
        "config.json", "model.safetensors.index.json", *shards,
    }  # fmt: skip


@pytest.mark.parametrize("way", ["legacy", "distributed"])
async def test_what_only_torch_wrote_is_evaluated_and_known_as_the_same_weights(tiny: Bench, way: str) -> None:
    plain = await evaluate(tiny.console, model=f"lab:{published(tiny, tiny.root / 'lab' / 'models' / 'z-lab')}")
    folder = published(tiny, tiny.root / "lab" / "models" / way)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    if way == "legacy":
        torch.save({"model": weights}, folder / "checkpoint.pt", _use_new_zipfile_serialization=False)
    else:
        save({"app": {"model": weights, "optim": {"m": torch.ones(9)}}}, checkpoint_id=folder, no_dist=True)
    known = await evaluate(tiny.console, model=f"lab:{folder}")
    assert (known.existing, known.run_id) == (True, plain.run_id)
    done = await evaluate(tiny.console, model=f"lab:{folder}", again=True)
    names = {"config.json", *({"checkpoint.pt"} if way == "legacy" else {".metadata", "__0_0.distcp"})}
    assert {path.name for path in linked(tiny, done.run_id).iterdir()} == names
    assert done.evaluation.pooled == plain.evaluation.pooled


async def test_what_answers_for_a_drafter_of_no_training_is_no_answer_for_its_checkpoint(tiny: Bench) -> None:
    console = tiny.console
    folder = tiny.root / "lab" / "models" / "a-copy"
    folder.mkdir(parents=True)
    shutil.copy(tiny.save(4000), folder)
    shutil.copy(tiny.lab.case.folder / "config.json", folder)
    model = await evaluate(console, model=str(folder))
    trained = await evaluate(console)
    assert not trained.existing
    assert (model.evaluation.training, trained.evaluation.training) == (None, "slammed5")
    codes = [{finding.code for finding in caveats_of(done.evaluation)} for done in (model, trained)]
    assert ["STEP_BEHIND_LIVE" in found for found in codes] == [False, True]
    assert (await evaluate(console, model=str(folder))).run_id == model.run_id


async def test_one_of_another_host_is_moved_once(tiny: Bench) -> None:
    folder = published(tiny, tiny.workspace / "z-lab")
    done = await evaluate(tiny.console, model=f"local:{folder}")
    (moved,) = (tiny.root / "lab" / "eval" / "checkpoints" / "models").iterdir()
    assert moved.name.startswith("z-lab-")
    assert (moved / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert (linked(tiny, done.run_id) / "model.safetensors").samefile(moved / "model.safetensors")
    assert manifest_of(tiny, done.run_id).checkpoint.host == "local"
    again = await evaluate(tiny.console, model=f"local:{folder}")
    assert again.existing
    ended = [event for event in tiny.told if isinstance(event, happened.TransferEnded)]
    assert [event.already_there for event in ended] == [False, True]


async def test_the_watched_training_s_settings_are_not_another_drafter_s(tiny: Bench) -> None:
    folder = published(tiny, tiny.root / "lab" / "models" / "bare")
    config = tiny.root / "lab" / "drafter.json"
    (folder / "config.json").rename(config)
    assert tiny.console.config.drafter["config"]
    with pytest.raises(EvaluationRefused, match=r"nothing says its .*block_size.*--drafter-config PATH"):
        await evaluate(tiny.console, model=str(folder))
    assert not (tiny.root / "lab" / "eval" / "runs").exists()
    done = await evaluate(tiny.console, model=str(folder), drafter_config=str(config))
    assert manifest_of(tiny, done.run_id).settings.sources["block_size"] == f"{config}: block_size"


async def test_a_config_that_was_named_and_not_needed_is_said(tiny: Bench) -> None:
    folder = published(tiny, tiny.root / "lab" / "models" / "z-lab")
    named = str(tiny.lab.case.folder / "config.json")
    await evaluate(tiny.console, model=str(folder), drafter_config=named)
    assert any(warning.startswith(f"{named} was not needed") for warning in tiny.console.state.evaluation.warnings)


async def test_what_is_no_drafter_is_one_sentence_and_leaves_nothing(tiny: Bench) -> None:
    lab = tiny.root / "lab"
    (lab / "empty").mkdir()
    (lab / "notes").mkdir()
    (lab / "notes" / "README.md").write_text("notes")
    (lab / "dangling").mkdir()
    (lab / "dangling" / "model.safetensors").symlink_to("/nowhere")
    (lab / "broken.pt").write_bytes(b"not a checkpoint")
    for model, reason in (
        (f"{lab}/nowhere", "nowhere: does not exist"),
        (f"{lab}/empty", "empty: no weights in it"),
        (f"{lab}/notes", "notes: no weights in it"),
        (f"{lab}/dangling", "dangling: no weights in it"),
        (f"{lab}/broken.pt", "broken.pt"),
        (f"ct200:{lab}/broken.pt", "broken.pt"),
        ("~/models/x", "expected an absolute one"),
        ("models/x", "expected an absolute one"),
        ("lab:models/x", "expected an absolute one"),
        ("labb:/models/x", "did you mean 'lab'"),
    ):
        with pytest.raises(TROUBLE, match=reason) as refused:
            await evaluate(tiny.console, model=model)
        assert "\n" not in str(refused.value)
    assert not (lab / "eval" / "runs").exists()


def test_a_path_may_hold_a_colon(tiny: Bench) -> None:
    host, path = placed(tiny.console, "/models/a:b")
    assert (host.name, path) == ("lab", "/models/a:b")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/models/Qwen3.6-27B-DFlash", "Qwen3.6-27B-DFlash"),
        ("/hub/models--z-lab--Qwen3-DFlash/snapshots/0123", "z-lab-Qwen3-DFlash"),
        ("/hub/models--z-lab--Qwen3-DFlash/snapshots/0123/model.safetensors", "z-lab-Qwen3-DFlash"),
        ("/runs/a/step_4000/checkpoint.pt", "step_4000"),
        ("/runs/a/best.pt", "best"),
        ("/models/b/model.safetensors.index.json", "b"),
        ("/models/ünï x", "n-x"),
        ("/", "drafter"),
    ],
)
def test_a_drafter_is_called_after_what_tells_it_apart(path: str, name: str) -> None:
    assert drafter_name(path) == name
