"""Memory is looked at when the turn has come, not only when a run was planned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dflash_tui.checkpoints.files import local_files
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.harness import memory, process, rundir
from dflash_tui.harness.features import read_features_header
from dflash_tui.records.process import ExitRecord
from dflash_tui.records.requests import CaptureRequest
from tests.harness.world import World, harness, world


@pytest.fixture
def tiny(tmp_path: Path) -> World:
    return world(tmp_path, prompts=1)


def error_of(run_dir: Path) -> str:
    return rundir.read(run_dir / rundir.EXIT, ExitRecord).error or ""


def test_an_evaluation_that_memory_has_no_room_for_is_refused_before_it_loads(tiny: World) -> None:
    run_dir = tiny.write(replace(tiny.manifest, drafter=replace(tiny.case.settings, hidden_size=1 << 23)))
    assert harness("evaluate", run_dir, "--foreground").returncode == 1
    assert "of memory left now, about 786442.8 GiB needed; end something there and evaluate again" in error_of(run_dir)
    assert not (run_dir / rundir.AUDIT).exists()


def test_a_capture_is_refused_likewise(tiny: World) -> None:
    config = json.loads((tiny.target.folder / "config.json").read_text())
    large = dict(hidden_size=1 << 20, num_hidden_layers=2, intermediate_size=1 << 22, num_key_value_heads=1, head_dim=1)
    (tiny.target.folder / "config.json").write_text(json.dumps({**config, **large}))
    run_dir = tiny.root / "runs" / "capture-1"
    run_dir.mkdir(parents=True)
    rundir.write(
        run_dir / rundir.CAPTURE,
        CaptureRequest(str(tiny.target.folder), str(tiny.root / "prompts.jsonl"), str(tiny.hidden_states), (1,)),
    )
    assert harness("capture", run_dir, "--foreground").returncode == 1
    assert "GiB needed; end something there and capture again" in error_of(run_dir)


def test_with_room_it_goes_on(tiny: World) -> None:
    run_dir = tiny.write()
    assert harness("evaluate", run_dir, "--foreground").returncode == 0
    assert process.state(run_dir) == "finished"


def test_weights_that_can_not_be_mapped_in_place_are_counted(tiny: World, tmp_path: Path) -> None:
    weights = tiny.case.tensors("model")
    weights["embed_tokens.weight"] = torch.ones(50, tiny.case.settings.hidden_size)
    needed = {}
    for zipped in (True, False):
        folder = tmp_path / f"zipped-{zipped}"
        folder.mkdir()
        torch.save(weights, folder / "x.pt", _use_new_zipfile_serialization=zipped)
        needed[zipped] = memory.copied(read_structure(local_files(folder)))
    assert needed[True] == 0
    assert 0 < needed[False] <= sum(tensor.nbytes for tensor in weights.values())
    settings = tiny.case.settings
    assert memory.drafting(settings, (), needed[False]) - memory.drafting(settings, ()) == needed[False]


def test_longer_prompts_take_more(tiny: World, tmp_path: Path) -> None:
    (tmp_path / "longer").mkdir()
    longer = world(tmp_path / "longer", prompts=1, repeat=8)
    short, long = (
        memory.drafting(made.case.settings, [read_features_header(path)])
        for made in (tiny, longer)
        for path in made.hidden_states.iterdir()
    )
    assert memory.TORCH_BYTES < short < long
