"""Folders that torch.distributed.checkpoint writes (DCP, FSDP): each tensor is found in the files it is spread over."""

from __future__ import annotations

import argparse
import io
import os
import pickle
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint._extension import StreamTransformExtension
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat
from torch.distributed.checkpoint.state_dict_saver import save

from dflash_tui.checkpoints import dcp as reader
from dflash_tui.checkpoints.content import logical_bytes, part_extent, part_extents
from dflash_tui.checkpoints.dcp_metadata import shard_extents
from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointIncomplete, CheckpointUnsupported
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.keys import Part
from dflash_tui.checkpoints.opening import read_directories, read_structure, weight_file
from dflash_tui.checkpoints.structure import Structure
from tests.checkpoints.found import outcome
from tests.checkpoints.sharded import save_with_two_ranks, whole_tensors
from tests.checkpoints.test_torch_files import awkward_tensors, raw


def saved(folder: Path, state: dict[str, Any], **options: Any) -> tuple[Structure, LocalFiles]:
    save(state, checkpoint_id=folder, no_dist=True, **options)
    files = LocalFiles(folder)
    return read_structure(files), files


def check(structure: Structure, files: LocalFiles, tensors: dict[str, torch.Tensor]) -> None:
    assert set(structure.tensors) == set(tensors)
    for name, tensor in tensors.items():
        info = structure.tensors[name]
        assert (info.shape, info.nbytes) == (tuple(tensor.shape), tensor.nbytes), name
        assert b"".join(logical_bytes(files, Part(info))) == raw(tensor), name


def test_every_tensor_is_found_at_its_bytes(tmp_path: Path) -> None:
    tensors = awkward_tensors()
    structure, files = saved(tmp_path, {"model": tensors, "optimizer": {"state": {"w": torch.ones(3)}}})
    check(structure, files, tensors)
    assert structure.container == "torch distributed"
    assert structure.files == (".metadata", "__0_0.distcp")
    assert structure.namespace == "model"
    assert read_directories(files) == structure.directory
    assert shard_extents(files) == {"__0_0.distcp": (tmp_path / "__0_0.distcp").stat().st_size}


def test_a_tensor_tells_its_record_and_its_checksum(tmp_path: Path) -> None:
    structure, files = saved(tmp_path, {"model": {"w": torch.randn(5, 3)}})
    info = structure.tensors["w"]
    stored = info.storage
    assert info.storage_crc == zlib.crc32(files.read(stored.file, stored.offset, stored.nbytes))
    assert stored.nbytes == info.nbytes


class Application:
    """As torch's own examples save: one object whose state dict holds model and optimizer."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optim": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])


def stepped() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_the_model_is_found_below_an_application(tmp_path: Path) -> None:
    model, optimizer = stepped()
    structure, files = saved(tmp_path, {"app": Application(model, optimizer), "step": 40})
    check(structure, files, model.state_dict())
    assert (structure.namespace, structure.step) == ("app.model", 40)


@pytest.mark.parametrize("namespace", ["", "model", "state_dict", "draft_model", "drafter"])
def test_the_model_is_found_under_any_usual_key(tmp_path: Path, namespace: str) -> None:
    model, optimizer = stepped()
    state = {namespace: model.state_dict()} if namespace else dict(model.state_dict())
    structure, files = saved(tmp_path, {**state, "optimizer": optimizer.state_dict(), "train_state": {"step": 3}})
    check(structure, files, model.state_dict())
    assert structure.namespace == namespace
    assert (structure.step, structure.sources) == (3, {"step": ".metadata: train_state.step"})


@pytest.mark.parametrize("prefix", ["model.", "app.model.", ""])
def test_keys_that_were_joined_before_are_told_apart(tmp_path: Path, prefix: str) -> None:
    tensors = {"layers.0.weight": torch.randn(2, 3), "lm_head.weight": torch.randn(4)}
    room = prefix.removesuffix("model.")
    state: dict[str, Any] = {f"{prefix}{name}": tensor for name, tensor in tensors.items()}
    state |= {f"{room}optim.state.layers.0.weight.exp_avg": torch.ones(2, 3), f"{room}step": 8}
    structure, files = saved(tmp_path, state, planner=DefaultSavePlanner(flatten_state_dict=False))
    check(structure, files, tensors)
    assert structure.namespace == prefix[:-1]
    assert structure.step == 8


@pytest.mark.parametrize("step", [12, torch.tensor(12), torch.tensor(12, dtype=torch.int32)])
@pytest.mark.parametrize(
    "arguments", [{"lr": 0.5, "taps": [1, 2]}, argparse.Namespace(lr=0.5, taps=[1, 2])], ids=["dict", "namespace"]
)
def test_arguments_and_step_are_read(tmp_path: Path, step: Any, arguments: Any) -> None:
    structure, _ = saved(tmp_path, {"model": {"w": torch.ones(1)}, "args": arguments, "global_step": step})
    assert structure.args is not None
    assert structure.args["lr"] == 0.5
    assert (structure.step, structure.sources["step"]) == (12, ".metadata: global_step")
    assert structure.sources["args"] == ".metadata: args"


def test_a_folder_below_holds_the_weights_and_the_optimizer_has_its_own(tmp_path: Path) -> None:
    tensors = {"w": torch.randn(3, 3)}
    save({"model": tensors}, checkpoint_id=tmp_path / "model", no_dist=True)
    save({"state": {"w": torch.ones(9)}}, checkpoint_id=tmp_path / "optimizer", no_dist=True)
    files = LocalFiles(tmp_path)
    structure = read_structure(files)
    check(structure, files, tensors)
    assert structure.files == ("model/.metadata", "model/__0_0.distcp")


def test_weights_of_their_own_beside_a_folder_are_preferred(tmp_path: Path) -> None:
    assert weight_file(["pytorch_model.bin", "optimizer/.metadata", "optimizer/__0_0.distcp"]) == "pytorch_model.bin"
    assert weight_file(["rng.pt", ".metadata", "__0_0.distcp", "extra.pt"]) == ".metadata"
    with pytest.raises(CheckpointUnsupported, match="name one"):
        weight_file(["actor/.metadata", "critic/.metadata"])
    with pytest.raises(CheckpointIncomplete, match="still being written"):
        weight_file(["__0_0.distcp", ".metadata.tmp"])


@pytest.mark.parametrize("threads", [0, 1, 2], ids=["a file each", "one file", "two files"])
def test_files_in_the_safetensors_format_are_read(tmp_path: Path, threads: int) -> None:
    shared = ("one of a shared storage", "another of it")
    tensors = {key: tensor for key, tensor in awkward_tensors().items() if tensor.is_contiguous() and key not in shared}
    form = SerializationFormat.SAFETENSORS
    writer = FileSystemWriter(
        tmp_path, thread_count=max(threads, 1), single_file_per_rank=threads > 0, serialization_format=form
    )
    state = {"model": tensors, "optimizer": {"m": torch.ones(5)}, "step": 6}
    structure, files = saved(tmp_path, state, storage_writer=writer)
    check(structure, files, tensors)
    assert structure.step == 6
    assert len(structure.files) - 1 == (threads or len(tensors) + 2)
    assert all(end <= (tmp_path / name).stat().st_size for name, end in shard_extents(files).items())


class Masked(StreamTransformExtension):
    """Writes every byte inverted: what a compressor or a cipher is to one who can't undo it."""

    @staticmethod
    def registry_name() -> str:
        return "stream.masked"

    @staticmethod
    def from_descriptor(version: str) -> Masked:
        return Masked()

    def get_descriptor(self) -> str:
        return "stream.masked/1"

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        class Writer(io.RawIOBase):
            def writable(self) -> bool:
                return True

            def write(self, data: Any) -> int:
                return output.write(bytes(255 - byte for byte in bytes(data)))

        return Writer()  # type: ignore[return-value]

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:  # noqa: A002
        raise NotImplementedError


def test_a_transformed_folder_is_refused_by_name(tmp_path: Path) -> None:
    writer = FileSystemWriter(tmp_path, _extensions=[Masked()])
    with pytest.raises(CheckpointUnsupported, match="w is compressed, which can't be read in place; use --full"):
        saved(tmp_path, {"model": {"w": torch.ones(3)}}, storage_writer=writer)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks") / "step-31"
    save_with_two_ranks(folder, whole_tensors())
    return folder


def test_tensors_that_two_ranks_saved_by_rows_are_whole(sharded: Path) -> None:
    files = LocalFiles(sharded)
    structure = read_structure(files)
    check(structure, files, whole_tensors())
    assert structure.files == (".metadata", "__0_0.distcp", "__1_0.distcp")
    assert (structure.namespace, structure.step) == ("app.model", 31)
    assert len(structure.tensors["layer.uneven"].pieces) == 2
    assert {piece.file for piece in structure.tensors["layer.uneven"].pieces} == {"__0_0.distcp", "__1_0.distcp"}
    assert structure.tensors["copy"].pieces == structure.tensors["layer.one row"].pieces == ()
    assert shard_extents(files) == {name: (sharded / name).stat().st_size for name in structure.files[1:]}


def test_two_ranks_files_in_the_safetensors_format_are_read(tmp_path: Path) -> None:
    save_with_two_ranks(tmp_path / "step-2", whole_tensors(), form="SAFETENSORS")
    files = LocalFiles(tmp_path / "step-2")
    structure = read_structure(files)
    check(structure, files, whole_tensors())
    assert len(structure.tensors["layer.bf16"].pieces) == 2
    assert structure.step == 31


def test_rows_of_a_tensor_in_pieces_are_its_rows(sharded: Path) -> None:
    files = LocalFiles(sharded)
    info = read_structure(files).tensors["layer.even"]
    tensor = whole_tensors()["layer.even"]
    for start in range(9):
        for stop in range(start, 9):
            part = Part(info, start, stop)
            assert b"".join(logical_bytes(files, part)) == raw(tensor[start:stop])
            assert (part_extent(part) is None) == (start < 4 < stop or start == stop)
    extents = part_extents(Part(info))
    assert extents is not None
    for extent in extents:
        assert extent.crc == zlib.crc32(files.read(extent.file, extent.offset, extent.nbytes))


def test_a_tensor_sharded_by_columns_is_refused_by_name(tmp_path: Path) -> None:
    save_with_two_ranks(tmp_path / "step-1", whole_tensors(), columns=True)
    with pytest.raises(CheckpointUnsupported, match=r"layer\.even is sharded along another dimension .* use --full"):
        read_structure(LocalFiles(tmp_path / "step-1"))


def test_a_file_that_is_absent_or_short_is_incomplete(sharded: Path, tmp_path: Path) -> None:
    for name in (".metadata", "__0_0.distcp", "__1_0.distcp"):
        (tmp_path / name).write_bytes((sharded / name).read_bytes())
    with pytest.raises(CheckpointIncomplete, match=r"__1_0\.distcp, which is not there"):
        read_structure(LocalFiles(tmp_path, [".metadata", "__0_0.distcp"]))
    os.truncate(tmp_path / "__1_0.distcp", (tmp_path / "__1_0.distcp").stat().st_size - 1)
    with pytest.raises(CheckpointIncomplete, match=r"__1_0\.distcp: has \d+ bytes, .* still being written"):
        read_structure(LocalFiles(tmp_path))


def rewritten(folder: Path, change: Any) -> LocalFiles:
    """The folder with its description loaded by torch's classes, changed and written again."""
    description = pickle.loads((folder / ".metadata").read_bytes())
    change(description)
    (folder / ".metadata").write_bytes(pickle.dumps(description))
    return LocalFiles(folder)


def _lose_rows(description: Any) -> None:
    described = description.state_dict_metadata["model.w"]
    described.size = torch.Size((9, 2))


def _elsewhere(description: Any) -> None:
    for info in description.storage_data.values():
        info.relative_path = "../" + info.relative_path


def _another_type(description: Any) -> None:
    description.state_dict_metadata["model.w"].properties.dtype = torch.int32


def _another_place(description: Any) -> None:
    for info in description.storage_data.values():
        info.offset += 1
        info.length -= 1


def _nowhere(description: Any) -> None:
    description.storage_data = {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_lose_rows, "w: its chunks hold 4 of 9 rows"),
        (_elsewhere, "outside its folder"),
        (_another_type, r"w is F32 \(4, 2\) at byte \d+, expected I32"),
        (_another_place, "__0_0"),
        (_nowhere, "nothing says where"),
    ],
)
def test_a_description_that_contradicts_the_data_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    saved(tmp_path, {"model": {"w": torch.randn(4, 2)}})
    files = rewritten(tmp_path, change)
    with pytest.raises(CheckpointDamaged, match=words):
        read_structure(files)


def test_more_chunks_than_can_be_looked_at_are_refused(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_MAX_CHUNKS", 3)
    with pytest.raises(CheckpointUnsupported, match="more than 3 chunks hold the model; use --full"):
        read_structure(LocalFiles(sharded))


@pytest.mark.parametrize("batch", [1, 3])
def test_chunks_are_looked_at_a_few_at_a_time(sharded: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    files = LocalFiles(sharded)
    whole = read_structure(files)
    monkeypatch.setattr(reader, "_BATCH", batch)
    assert read_structure(files) == whole


def test_a_chunk_that_two_ranks_list_is_one(tmp_path: Path) -> None:
    weights = {"w": torch.randn(4, 2)}
    saved(tmp_path, {"model": weights})
    files = rewritten(
        tmp_path,
        lambda said: said.state_dict_metadata["model.w"].chunks.extend(
            list(said.state_dict_metadata["model.w"].chunks)
        ),
    )
    check(read_structure(files), files, weights)


class Runs:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


def test_a_command_in_the_description_is_not_run(tmp_path: Path) -> None:
    saved(tmp_path, {"model": {"w": torch.randn(4, 2)}})
    trace = tmp_path / "ran"
    data = pickle.loads((tmp_path / ".metadata").read_bytes())
    data.storage_meta = Runs(f"touch {trace}")
    (tmp_path / ".metadata").write_bytes(pickle.dumps(data))
    assert set(read_structure(LocalFiles(tmp_path)).tensors) == {"w"}
    assert not trace.exists()


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_folder_is_read_or_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, sharded: Path, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    chosen = data.draw(st.sampled_from([".metadata", "__0_0.distcp"]))
    for name in (".metadata", "__0_0.distcp", "__1_0.distcp"):
        (folder / name).write_bytes((sharded / name).read_bytes())
    content = bytearray((folder / chosen).read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(1, len(content) - 1)) :]
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=6)):
        content[place] = data.draw(st.integers(0, 255))
    (folder / chosen).write_bytes(content)
    files = LocalFiles(folder)
    structure, refusal = outcome(lambda: read_structure(files))
    if structure is None:
        assert "metadata" in refusal or "distcp" in refusal
        return
    for info in structure.tensors.values():
        for extent in part_extents(Part(info)) or ():
            assert extent.offset + extent.nbytes <= files.size(extent.file)


class CountedFiles(LocalFiles):
    """Counts round trips and bytes as a remote backing would have them."""

    trips = 0
    taken = 0

    def read(self, name: str, offset: int, length: int) -> bytes:
        self.trips += 1
        self.taken += length
        return super().read(name, offset, length)

    def read_many(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.trips += 1
        self.taken += sum(length for _, length in ranges)
        return [LocalFiles.read(self, name, offset, length) for offset, length in ranges]


def test_the_structure_of_a_remote_folder_takes_few_round_trips_and_little_data(tmp_path: Path) -> None:
    tensors = {f"layers.{i}.weight": torch.zeros(100_000) for i in range(100)}
    save({"model": tensors, "optimizer": {"m": tensors}, "step": 3}, checkpoint_id=tmp_path, no_dist=True)
    files = CountedFiles(tmp_path)
    structure = read_structure(files)
    assert (len(structure.tensors), structure.step) == (100, 3)
    assert files.trips <= 6
    assert files.taken < 2_000_000 < sum(info.nbytes for info in structure.tensors.values()) / 10


@given(
    shape=st.lists(st.integers(0, 5), max_size=3),
    order=st.permutations([0, 1, 2]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn]),
)
@settings(max_examples=40, deadline=None)
def test_tensors_of_any_shape_and_order_are_found(
    tmp_path_factory: pytest.TempPathFactory, shape: list[int], order: list[int], dtype: torch.dtype
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    tensor = torch.randn(shape).to(dtype).permute([axis for axis in order if axis < len(shape)])
    structure, files = saved(folder, {"model": {"w": tensor, "other": torch.ones(2)}})
    check(structure, files, {"w": tensor, "other": torch.ones(2)})
