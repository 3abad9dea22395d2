"""Which names in a folder are checkpoints, in which order, and of which run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dflash_tui.checkpoints.complete import completeness
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.listing import Candidate, Listed, candidates
from tests.cases import all_are_expected, case_root
from tests.checkpoints.found import checkpoints_in


def found(entries: Sequence[Listed], inside: Mapping[str, Sequence[str]] | None = None) -> list[Candidate]:
    folders = inside or {}

    def listing(path: str) -> list[Listed]:
        return [Listed(name, "file") for name in folders.get(path.rpartition("/")[2], ("checkpoint.pt",))]

    return candidates("/runs/x", entries, listing)


def folders(*names: str) -> list[Listed]:
    return [Listed(name, "folder") for name in names]


@pytest.mark.parametrize(
    ("name", "step", "run"),
    [
        ("step_4000", 4000, ""),
        ("step-4000", 4000, ""),
        ("checkpoint-500", 500, ""),
        ("epoch_0_step_100", 100, ""),
        ("draft_step_40", 40, ""),
        ("iter_0001000", 1000, ""),
        ("global_step100", 100, ""),
        ("tiny-v1-small-step100", 100, "tiny-v1-small"),
        ("run-step4000", 4000, "run"),
        ("0", None, ""),
        ("epoch_3", None, ""),
        ("interrupted", None, ""),
    ],
)
def test_folder_names_tell_step_and_run(name: str, step: int | None, run: str) -> None:
    (item,) = found(folders(name))
    assert (item.name, item.step, item.run) == (name, step, run)
    assert item.path == item.folder == f"/runs/x/{name}"
    assert item.files == ("checkpoint.pt",)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_00500.pt", 500),
        ("model_000500.pt", 500),
        ("epoch=2-step=300.ckpt", 300),
        ("step-00000500.safetensors", 500),
        ("drafter.pt", None),
        ("step_00600.pt.tmp", 600),
    ],
)
def test_plain_files_are_checkpoints(name: str, step: int | None) -> None:
    (item,) = found([Listed(name, "file")])
    assert (item.step, item.path, item.folder, item.files) == (step, f"/runs/x/{name}", "/runs/x", (name,))


@pytest.mark.parametrize(
    "name",
    [
        "optim_000500_rank0.pt", "optimizer.pt", "scheduler.pt", "rng_state_0.pth", "training_args.bin",
        "meta_000500.json", "train.log", "latest_checkpointed_iteration.txt", "training_state_rank0.pt",
        "training_state.rank0.pt", ".hidden.pt",
    ],
)  # fmt: skip
def test_other_files_are_not(name: str) -> None:
    assert found([Listed(name, "file")]) == []


def test_folders_without_weights_are_not_unless_their_name_has_a_step() -> None:
    inside = {"logs": ["train.log"], "draft_config_a": ["config.json"], "2": [], "step_5": ["config.json"], "wandb": []}
    assert [item.name for item in found(folders(*inside), inside)] == ["step_5"]


def test_hidden_and_staging_folders_are_not() -> None:
    assert found(folders(".reserving-step_5", "tmp-checkpoint-500", ".cache")) == []


def test_the_newest_step_is_last_and_steps_are_numbers() -> None:
    names = [item.name for item in found(folders("step_10000", "step_900", "step_2000"))]
    assert names == ["step_900", "step_2000", "step_10000"]
    assert [item.name for item in found(folders("10", "9", "0"))] == ["0", "9", "10"]


def test_links_beside_their_target_are_no_checkpoints() -> None:
    links = [
        Listed("step_latest", "link", "step_300"),
        Listed("checkpoint_best", "link", "0"),
        Listed("LATEST", "link", "step_300"),
        Listed("epoch_1_step_300", "link", "step_300"),
        Listed("step_latest_absolute", "link", "/runs/x/step_300"),
        Listed("dangling-latest", "link", "gone"),
    ]
    assert [item.name for item in found([*folders("step_300"), *links])] == ["step_300"]


def test_a_numbered_link_to_another_disk_is_a_checkpoint() -> None:
    (item,) = found([Listed("step_300", "link", "/big/disk/step_300")])
    assert item.step == 300


def test_a_link_that_names_an_epochs_step_gives_it() -> None:
    (item,) = found([*folders("0"), Listed("epoch0_step16626", "link", "0")])
    assert item.step == 16626


def test_runs_that_share_a_folder_follow_one_another_by_their_newest_file() -> None:
    entries = [Listed(f"{run}-step{step}", "folder") for run in ("old", "new") for step in (100, 200)]

    def listing(path: str) -> list[Listed]:
        return [Listed("training_state.pt", "file", mtime=2.0 if "/new" in path else 1.0)]

    names = [item.name for item in candidates("/runs", entries, listing)]
    assert names == ["old-step100", "old-step200", "new-step100", "new-step200"]


def test_a_model_folder_is_one_checkpoint() -> None:
    entries = [Listed(name, "file") for name in ("config.json", "model.safetensors", "optimizer.pt")]
    (item,) = found(entries)
    assert (item.path, item.folder, item.name) == ("/runs/x", "/runs/x", "x")
    assert item.files == ("config.json", "model.safetensors", "optimizer.pt")


def test_a_step_folder_given_as_the_root_keeps_its_step() -> None:
    (item,) = candidates("/runs/x/step_4000", [Listed("checkpoint.pt", "file")], lambda _: [])
    assert (item.path, item.step) == ("/runs/x/step_4000/checkpoint.pt", 4000)


def test_an_interrupted_save_is_listed_as_saving(tmp_path: Path) -> None:
    for name in ("step_10", "step_20"):
        (tmp_path / name).mkdir()
    (tmp_path / "step_20" / "training_state.pt.tmp").write_bytes(b"half")
    newest = checkpoints_in(tmp_path)[-1]
    assert newest.step == 20
    assert completeness(LocalFiles(Path(newest.folder)), newest.files)[0] == "saving"


def test_public_cases_of_unfinished_and_pruned_saves() -> None:
    seen = 0
    for folder in sorted((case_root() / "cases" / "findings").glob("*")):
        if folder.name.endswith("saved-step-behind-live"):
            states = {
                item.step: completeness(LocalFiles(Path(item.folder)), item.files)[0]
                for item in checkpoints_in(folder / "outputs")
            }
            assert states == {4000: "unknown", 5000: "saving"}
            seen += 1
        if folder.name.endswith("dangling-latest-symlink"):
            (item,) = checkpoints_in(folder / "ckpt")
            assert item.name == "step_2000"
            assert completeness(LocalFiles(Path(item.folder)), item.files) == ("complete", "")
            seen += 1
    assert seen or not all_are_expected()
