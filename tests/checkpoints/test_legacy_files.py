"""Torch files from before the zip format, as torch still writes them: read by byte ranges, their end known exactly."""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import struct
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_tui.checkpoints import legacy
from dflash_tui.checkpoints.content import logical_bytes, part_extent
from dflash_tui.checkpoints.errors import (
    CheckpointDamaged,
    CheckpointError,
    CheckpointIncomplete,
    CheckpointUnsupported,
)
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.identity import quick_id, weights_id
from dflash_tui.checkpoints.keys import Part
from dflash_tui.checkpoints.legacy import legacy_extent
from dflash_tui.checkpoints.opening import read_directories, read_structure
from dflash_tui.checkpoints.structure import Structure, TensorInfo
from tests.checkpoints.found import outcome
from tests.checkpoints.test_torch_files import awkward_tensors, raw


def saved(folder: Path, data: Any, name: str = "checkpoint.pt", **options: Any) -> tuple[Structure, LocalFiles]:
    torch.save(data, folder / name, _use_new_zipfile_serialization=False, **options)
    files = LocalFiles(folder)
    return read_structure(files), files


def content(files: LocalFiles, info: TensorInfo) -> bytes:
    return b"".join(logical_bytes(files, Part(info)))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_tensor_is_found_at_its_bytes(tmp_path: Path, protocol: int) -> None:
    tensors = awkward_tensors()
    structure, files = saved(tmp_path, {"model_state_dict": tensors, "step": 12}, pickle_protocol=protocol)
    assert (structure.container, structure.namespace, structure.step) == ("torch legacy", "model_state_dict", 12)
    assert set(structure.tensors) == set(tensors)
    for name, tensor in tensors.items():
        info = structure.tensors[name]
        assert info.shape == tuple(tensor.shape)
        assert content(files, info) == raw(tensor), name
    assert legacy_extent(files, "checkpoint.pt") == (tmp_path / "checkpoint.pt").stat().st_size


def test_tied_tensors_and_views_lie_in_one_storage(tmp_path: Path) -> None:
    base = torch.arange(12.0)
    state = {"weight": base.view(3, 4), "tied": base.view(3, 4), "tail": base[8:], "other": torch.ones(2)}
    found = saved(tmp_path, state)[0].tensors
    assert found["weight"].storage == found["tied"].storage == found["tail"].storage != found["other"].storage
    assert found["weight"].offset == found["tied"].offset == found["weight"].storage_offset
    assert found["tail"].offset - found["tail"].storage_offset == 32
    assert found["weight"].storage_nbytes == 48
    assert found["weight"].storage_crc is None


def test_arguments_and_step_are_read_and_the_optimizer_is_not_the_model(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    arguments = argparse.Namespace(block_size=16, resume=None)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "global_step": 7, "args": arguments}
    structure, files = saved(tmp_path, state)
    assert set(structure.tensors) == {"weight", "bias"}
    assert (structure.step, structure.args) == (7, {"block_size": 16, "resume": None})
    assert structure.sources == {"args": "checkpoint.pt: args", "step": "checkpoint.pt: global_step"}
    assert read_directories(files) == structure.directory
    assert len(structure.directory) == 2 + 3 * 2


def test_a_legacy_trainer_state_beside_weights_tells_the_step(tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    assert saved(tmp_path, {"global_step": 9}, "training_state.pt")[0].step == 9


def test_the_same_weights_are_the_same_whatever_the_format(tmp_path: Path) -> None:
    state = {"model": {"fc.weight": torch.randn(3, 5).t(), "norm.weight": torch.ones(4).bfloat16()}}
    ids = set()
    for folder, zipped in ((tmp_path / "zip", True), (tmp_path / "legacy", False)):
        folder.mkdir()
        torch.save(state, folder / "x.pt", _use_new_zipfile_serialization=zipped)
        files = LocalFiles(folder)
        ids.add(weights_id(read_structure(files), files, target_embedding=None, target_head=None).sha256)
    assert len(ids) == 1


def test_quick_id_tells_layouts_apart_and_not_contents(tmp_path: Path) -> None:
    found = quick_id(saved(tmp_path, {"weight": torch.zeros(4)})[0].directory)
    assert found is not None
    assert found.startswith("header-")


@pytest.mark.parametrize("zipped", [True, False])
def test_shards_of_torch_files_are_one_checkpoint(tmp_path: Path, zipped: bool) -> None:
    parts = {"a.weight": torch.randn(3, 2), "b.weight": torch.randn(4).half()}
    weight_map = {}
    for number, (name, tensor) in enumerate(parts.items(), 1):
        weight_map[name] = f"pytorch_model-0000{number}-of-00002.bin"
        torch.save({name: tensor}, tmp_path / weight_map[name], _use_new_zipfile_serialization=zipped)
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    files = LocalFiles(tmp_path)
    structure = read_structure(files)
    assert structure.container == ("torch zip shards" if zipped else "torch legacy shards")
    assert {name: content(files, info) for name, info in structure.tensors.items()} == {
        name: raw(tensor) for name, tensor in parts.items()
    }
    assert read_directories(files) == structure.directory


class OldStorage:
    """A storage, or a view of `view` = (first, count) of it, as torch before 0.4 pickled them."""

    def __init__(self, key: str, count: int, view: tuple[int, int] | None = None) -> None:
        self.key, self.count, self.view = key, count, view

    @property
    def identifier(self) -> tuple[Any, ...]:
        view = None if self.view is None else (f"{self.key} from {self.view[0]}", *self.view)
        return "storage", torch.FloatStorage, self.key, "cpu", self.count, view


class OldTensor:
    def __init__(self, storage: OldStorage, offset: int, *shape: int) -> None:
        strides = [1]
        for size in reversed(shape[1:]):
            strides.insert(0, strides[0] * size)
        self.arguments: tuple[Any, ...] = (storage, offset, shape, tuple(strides), False, OrderedDict())

    def __reduce__(self) -> tuple[Any, ...]:
        return torch._utils._rebuild_tensor_v2, self.arguments


def written(path: Path, state: Any, storages: dict[str, bytes], machine: dict[str, Any] | None = None) -> None:
    """A legacy file written from the format's description: what torch no longer writes but still reads."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, item: Any) -> Any:
            return item.identifier if isinstance(item, OldStorage) else None

    stream = io.BytesIO()
    for value in (legacy.MAGIC, legacy.VERSION, machine or {"little_endian": True, "protocol_version": 1001}):
        pickle.dump(value, stream, protocol=2)
    Pickler(stream, protocol=2).dump(state)
    pickle.dump(list(storages), stream, protocol=2)
    for data in storages.values():
        stream.write(struct.pack("<q", len(data) // 4) + data)
    path.write_bytes(stream.getvalue())


def floats(count: int, first: float = 0) -> bytes:
    return struct.pack(f"<{count}f", *(first + i for i in range(count)))


def test_a_view_of_a_storage_is_found_where_torch_finds_it(tmp_path: Path) -> None:
    state = {
        "whole": OldTensor(OldStorage("7", 12), 1, 2, 5),
        "first": OldTensor(OldStorage("7", 12, (2, 6)), 0, 6),
        "second": OldTensor(OldStorage("7", 12, (4, 8)), 2, 3, 2),
        "other": OldTensor(OldStorage("3", 2), 0, 2),
    }
    written(tmp_path / "x.pt", state, {"7": floats(12), "3": floats(2, 50)})
    files = LocalFiles(tmp_path)
    structure = read_structure(files)
    loaded = torch.load(tmp_path / "x.pt")
    for name, tensor in loaded.items():
        assert content(files, structure.tensors[name]) == raw(tensor), name
    assert structure.tensors["first"].storage == structure.tensors["whole"].storage


@pytest.mark.parametrize(
    ("storage", "offset", "words"),
    [
        (OldStorage("7", 12, (2, 6)), 1, "reaches byte 28 of a storage of 24"),
        (OldStorage("7", 12, (8, 6)), 0, "v is a .*, not a plain tensor"),
        (OldStorage("7", 13), 0, "has 48 bytes, expected 52"),
        (OldStorage("8", 12), 0, "'8', which the file does not hold"),
    ],
    ids=["past its view", "a view past its storage", "another size", "absent"],
)
def test_a_view_that_does_not_fit_is_refused(tmp_path: Path, storage: OldStorage, offset: int, words: str) -> None:
    state = {"w": OldTensor(OldStorage("7", 12), 0, 12), "v": OldTensor(storage, offset, 6)}
    written(tmp_path / "x.pt", {"model": state}, {"7": floats(12)})
    with pytest.raises(CheckpointError, match=rf"x\.pt: .*{words}"):
        read_structure(LocalFiles(tmp_path))


def test_another_number_of_elements_before_a_storage_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "x.pt", {"w": OldTensor(OldStorage("7", 12), 0, 12)}, {"7": floats(12)})
    data = (tmp_path / "x.pt").read_bytes()
    (tmp_path / "x.pt").write_bytes(data[:-56] + struct.pack("<q", 11) + data[-48:])
    with pytest.raises(CheckpointDamaged, match="has 11 elements, expected 12"):
        read_structure(LocalFiles(tmp_path))


def test_a_big_endian_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "byteorder", "big")
        torch.save({"weight": torch.ones(2)}, tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointUnsupported, match=r"x\.pt: was written on a big-endian machine"):
        read_structure(LocalFiles(tmp_path))


def test_a_pickled_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnsupported, match="Linear"):
        saved(tmp_path, torch.nn.Linear(2, 2))


class Runs:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def test_a_command_in_it_is_named_and_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    structure, _ = saved(tmp_path, {"weight": torch.ones(2), "args": {"x": Runs(f"touch {trace}")}})
    assert structure.args == {"x": "<opaque posix.system>"}
    assert not trace.exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("legacy")
    saved(folder, {"model": awkward_tensors(), "args": argparse.Namespace(a=1), "optimizer": {"m": torch.ones(99)}})
    return (folder / "checkpoint.pt").read_bytes()


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_cut_file_is_never_read_and_its_size_never_misjudged(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "cut.pt").write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    files = LocalFiles(folder, ["cut.pt"])
    with pytest.raises(CheckpointError, match=r"cut\.pt"):
        read_structure(files)
    extent, _ = outcome(lambda: legacy_extent(files, "cut.pt"))
    assert extent in (None, len(whole))


def test_a_cut_anywhere_is_incomplete(tmp_path: Path, whole: bytes) -> None:
    for length in range(40, len(whole), 97):
        (tmp_path / "x.pt").write_bytes(whole[:length])
        with pytest.raises(CheckpointIncomplete, match=r"x\.pt"):
            read_structure(LocalFiles(tmp_path))


def test_bytes_behind_the_last_storage_are_refused(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "x.pt").write_bytes(whole + b"\0")
    with pytest.raises(CheckpointDamaged, match=f"has {len(whole) + 1} bytes, its storages end at byte {len(whole)}"):
        read_structure(LocalFiles(tmp_path))


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_file_is_read_or_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(whole)
    for place in data.draw(st.lists(st.integers(0, min(6000, len(whole) - 1)), min_size=1, max_size=6)):
        damaged[place] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.getbasetemp()
    (folder / "damaged.pt").write_bytes(damaged)
    structure, refusal = outcome(lambda: read_structure(LocalFiles(folder, ["damaged.pt"])))
    if structure is None:
        assert "damaged.pt" in refusal
    else:
        assert all(info.storage_offset + info.storage_nbytes <= len(whole) for info in structure.tensors.values())


class CountedFiles(LocalFiles):
    taken = 0

    def read(self, name: str, offset: int, length: int) -> bytes:
        self.taken += length
        return super().read(name, offset, length)


def test_a_file_of_many_gigabytes_is_read_in_its_first_bytes(tmp_path: Path) -> None:
    count = 3 << 29
    state = {"large": OldTensor(OldStorage("1", count), 0, count), "small": OldTensor(OldStorage("2", 2), 0, 2)}
    written(tmp_path / "x.pt", state, {"1": b"", "2": b""})
    head = (tmp_path / "x.pt").read_bytes()[:-16]
    with (tmp_path / "x.pt").open("wb") as stream:
        stream.write(head + struct.pack("<q", count))
        stream.seek(4 * count, os.SEEK_CUR)
        stream.write(struct.pack("<q", 2) + floats(2, 5))
    files = CountedFiles(tmp_path)
    small = read_structure(files).tensors["small"]
    assert small.offset > 6 << 30
    assert files.read("x.pt", small.offset, 8) == floats(2, 5)
    assert files.taken < 1 << 18


@pytest.mark.parametrize("piece", [1, 7, 64, 1 << 16])
def test_a_pickle_is_read_on_in_pieces_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(legacy, "_FIRST", piece)
    monkeypatch.setattr(legacy, "_MOST", max(piece, 4096))
    structure, files = saved(tmp_path, {"weight": torch.arange(3.0), "args": {"notes": "x" * 3000, "n": 1 << 4000}})
    assert structure.args is not None
    assert structure.args["notes"] == "x" * 3000
    assert content(files, structure.tensors["weight"]) == floats(3)


def test_a_pickle_without_end_is_not_read_on_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "MAX_BYTES", 1 << 17)
    start = pickle.dumps(legacy.MAGIC, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
    for filling in (b"N0" * (1 << 20), b"S'" + b"a" * (1 << 20), b"X\xff\xff\x0f\x00" + bytes(1 << 20)):
        (tmp_path / "x.pt").write_bytes(start + b"\x80\x02" + filling)
        files = CountedFiles(tmp_path)
        with pytest.raises(CheckpointUnsupported, match="more than 131072 bytes"):
            read_structure(files)
        assert files.taken < 1 << 19


@pytest.mark.parametrize(
    ("keys", "words"),
    [(["7", "7"], "listed twice"), (["7", "9"], "'9' is none"), ("7", "no list"), ([7], "no list")],
)
def test_a_list_of_storages_that_can_not_be_is_refused(tmp_path: Path, keys: Any, words: str) -> None:
    written(tmp_path / "x.pt", {"w": OldTensor(OldStorage("7", 12), 0, 12)}, {"7": floats(12)})
    data = (tmp_path / "x.pt").read_bytes()
    listed = pickle.dumps(["7"], 2)
    at = data.index(listed)
    (tmp_path / "x.pt").write_bytes(data[:at] + pickle.dumps(keys, 2) + data[at + len(listed) :])
    with pytest.raises(CheckpointDamaged, match=words):
        read_structure(LocalFiles(tmp_path))


dtypes = st.sampled_from(
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64]
)


@st.composite
def strided_tensors(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    """Some views, of any shape and strides, of some storages."""
    found: dict[str, torch.Tensor] = {}
    for number in range(draw(st.integers(1, 3))):
        count = draw(st.integers(0, 60))
        dtype = draw(dtypes)
        base = torch.arange(count).to(dtype)
        for view in range(draw(st.integers(1, 3))):
            shape = draw(st.lists(st.integers(0, 4), max_size=3))
            strides = draw(st.lists(st.integers(0, 12), min_size=len(shape), max_size=len(shape)))
            reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
            if 0 in shape or reach > count:
                shape, strides, reach = [0, 3], [3, 1], 0
            offset = draw(st.integers(0, count - reach))
            found[f"s{number}.v{view}"] = base.as_strided(shape, strides, offset)
    return found


@given(tensors=strided_tensors(), zipped=st.booleans())
@settings(max_examples=150, deadline=None)
def test_tensors_of_any_shape_and_strides_are_found(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, torch.Tensor], zipped: bool
) -> None:
    folder = tmp_path_factory.getbasetemp()
    torch.save({"model": tensors}, folder / "any.pt", _use_new_zipfile_serialization=zipped)
    files = LocalFiles(folder, ["any.pt"])
    structure, refusal = outcome(lambda: read_structure(files))
    if structure is None:
        assert "expanded" in refusal
        assert any(t.numel() > t.untyped_storage().size() // t.element_size() for t in tensors.values())
        return
    for name, tensor in tensors.items():
        info = structure.tensors[name]
        assert content(files, info) == raw(tensor)
        assert (part_extent(Part(info)) is not None) == (tensor.is_contiguous() or tensor.numel() == 0)
