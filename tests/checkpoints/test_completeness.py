"""Half-written checkpoints are told from finished ones without reading their data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_tui.checkpoints.complete import completeness, file_completeness
from dflash_tui.checkpoints.errors import CheckpointError, CheckpointIncomplete
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.names import is_temporary
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.safetensors import read_safetensors
from tests.checkpoints.found import outcome
from tests.checkpoints.written import drafter, safetensors_bytes

WHOLE = safetensors_bytes(drafter())


def state(folder: Path) -> tuple[str, str]:
    files = LocalFiles(folder)
    return completeness(files, files.names())


def put(folder: Path, **texts: bytes) -> None:
    for name, data in texts.items():
        (folder / name.replace("__", ".")).write_bytes(data)


def shards(folder: Path, *, index: bool = True, leave_out: str = "") -> None:
    tensors = drafter()
    names = sorted(tensors)
    groups = {"model-00001-of-00002.safetensors": names[:6], "model-00002-of-00002.safetensors": names[6:]}
    for file, group in groups.items():
        if file != leave_out:
            (folder / file).write_bytes(safetensors_bytes({name: tensors[name] for name in group}))
    if index:
        weight_map = {name: file for file, group in groups.items() for name in group}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@given(length=st.integers(0, len(WHOLE) - 1))
@settings(max_examples=150, deadline=None)
def test_a_cut_safetensors_file_is_never_complete(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "cut.safetensors").write_bytes(WHOLE[:length])
    files = LocalFiles(folder, ["cut.safetensors"])
    assert file_completeness(files, "cut.safetensors")[0] == "truncated"
    with pytest.raises(CheckpointIncomplete):
        read_safetensors(files, "cut.safetensors")


@given(place=st.integers(0, 600), value=st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_a_damaged_header_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, place: int, value: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[place] = value
    folder = tmp_path_factory.getbasetemp()
    (folder / "damaged.safetensors").write_bytes(damaged)
    files = LocalFiles(folder, ["damaged.safetensors"])
    structure, refusal = outcome(lambda: read_safetensors(files, "damaged.safetensors"))
    if structure is None:
        assert "damaged.safetensors" in refusal
    else:
        assert all(info.offset + info.nbytes <= len(WHOLE) for info in structure.tensors.values())


def test_a_file_longer_than_its_header_says_is_not_complete(tmp_path: Path) -> None:
    put(tmp_path, model__safetensors=WHOLE + b"\0")
    assert state(tmp_path)[0] == "truncated"


def test_shards_and_their_index_are_complete(tmp_path: Path) -> None:
    shards(tmp_path)
    assert state(tmp_path) == ("complete", "")
    assert read_structure(LocalFiles(tmp_path)).container == "safetensors shards"


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    shards(tmp_path, leave_out="model-00002-of-00002.safetensors")
    found, reason = state(tmp_path)
    assert found == "truncated"
    assert "model-00002-of-00002.safetensors" in reason
    with pytest.raises(CheckpointIncomplete, match="model-00002-of-00002"):
        read_structure(LocalFiles(tmp_path))


def test_shards_without_their_index_are_still_being_saved(tmp_path: Path) -> None:
    shards(tmp_path, index=False)
    assert state(tmp_path)[0] == "saving"


def test_a_cut_shard_is_not_complete(tmp_path: Path) -> None:
    shards(tmp_path)
    path = tmp_path / "model-00001-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert state(tmp_path)[0] == "truncated"


def test_an_index_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../a.safetensors"}}))
    with pytest.raises(CheckpointError, match="outside its folder"):
        read_structure(LocalFiles(tmp_path))


@pytest.mark.parametrize(
    "name",
    [
        ".tmpAbC123",
        "training_state.pt.tmp",
        "checkpoint.pt.part",
        "config.json.tmp-4711",
        ".incomplete",
        "x.pt.partial",
    ],
)
def test_a_temporary_name_beside_whole_files_means_saving(tmp_path: Path, name: str) -> None:
    put(tmp_path, model__safetensors=WHOLE)
    assert state(tmp_path) == ("complete", "")
    (tmp_path / name).write_bytes(WHOLE)
    found, reason = state(tmp_path)
    assert found == "saving"
    assert name in reason


@pytest.mark.parametrize(
    "name", ["template.json", "tmp.json", "checkpoint.pt", "part-1.txt", "partner.pt", "attempts.log"]
)
def test_an_ordinary_name_is_not_temporary(name: str) -> None:
    assert not is_temporary(name)


def test_a_folder_without_weights_is_still_being_saved(tmp_path: Path) -> None:
    put(tmp_path, config__json=b"{}")
    assert state(tmp_path)[0] == "saving"
    with pytest.raises(CheckpointIncomplete, match="no weights"):
        read_structure(LocalFiles(tmp_path))


def test_whole_weights_beside_a_cut_optimizer_are_not_a_whole_checkpoint(tmp_path: Path) -> None:
    put(tmp_path, model__safetensors=WHOLE, optimizer_state_dict__safetensors=WHOLE[:-3])
    found, reason = state(tmp_path)
    assert found == "truncated"
    assert "optimizer" in reason


def test_a_writer_that_says_incomplete_is_believed(tmp_path: Path) -> None:
    put(tmp_path, model__safetensors=WHOLE, metadata__json=b'{"step": 40, "complete": false}')
    assert state(tmp_path)[0] == "saving"
    put(tmp_path, metadata__json=b'{"step": 40, "complete": true}')
    assert state(tmp_path) == ("complete", "")


def test_a_placeholder_is_never_complete(tmp_path: Path) -> None:
    put(tmp_path, checkpoint__pt=b"")
    assert state(tmp_path)[0] == "truncated"
    put(tmp_path, checkpoint__pt=b"anything else")
    assert state(tmp_path)[0] == "unknown"
