"""Files that torch itself writes: every tensor is found at its bytes, and what can't be read is refused by name."""

from __future__ import annotations

import argparse
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from dflash_tui.checkpoints import content
from dflash_tui.checkpoints.complete import file_completeness
from dflash_tui.checkpoints.content import logical_bytes, part_extent
from dflash_tui.checkpoints.errors import CheckpointError, CheckpointUnsupported
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.identity import quick_id
from dflash_tui.checkpoints.keys import Part
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.structure import Structure, tensor_extent
from dflash_tui.checkpoints.zipdir import data_offsets, read_directory
from tests.checkpoints.found import outcome


def saved(folder: Path, data: Any, **options: Any) -> tuple[Structure, LocalFiles]:
    torch.save(data, folder / "checkpoint.pt", **options)
    files = LocalFiles(folder)
    return read_structure(files), files


def raw(tensor: torch.Tensor) -> bytes:
    dense = tensor.detach().clone(memory_format=torch.contiguous_format)
    return bytes(dense.reshape(-1).view(torch.uint8).numpy().tobytes()) if dense.numel() else b""


def awkward_tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    base = torch.randn(7, 11)
    shared = torch.randn(40)
    return {
        "dense": base.clone(),
        "transposed": base.t(),
        "rows": base[2:5],
        "columns": base[:, 3:7],
        "every other": base[::2, ::3],
        "cube": torch.randn(3, 4, 5).permute(2, 0, 1),
        "one of a shared storage": shared[4:20],
        "another of it": shared[10:38].reshape(4, 7),
        "number": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "bf16": torch.randn(5, 3).bfloat16().t(),
        "f16": torch.randn(9).half(),
        "f64": torch.randn(3, 2, dtype=torch.float64).t(),
        "int": torch.arange(12).reshape(3, 4),
        "bool": torch.tensor([True, False, True]),
        "fp8": torch.randn(8).to(torch.float8_e4m3fn),
        "u16": torch.arange(5).to(torch.uint16),
        "complex": torch.randn(3, 4, dtype=torch.complex128).t(),
        "parameter": torch.nn.Parameter(torch.randn(4, 2)),
    }


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("chunk", [8, 100, 8 << 20])
def test_every_tensor_is_found_at_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int, chunk: int
) -> None:
    monkeypatch.setattr(content, "CHUNK", chunk)
    tensors = awkward_tensors()
    structure, files = saved(tmp_path, {"model_state_dict": tensors, "step": 12}, pickle_protocol=protocol)
    assert structure.step == 12
    assert set(structure.tensors) == set(tensors)
    for name, tensor in tensors.items():
        info = structure.tensors[name]
        assert info.shape == tuple(tensor.shape)
        assert b"".join(logical_bytes(files, Part(info))) == raw(tensor), name
        if part_extent(Part(info)) is not None:
            extent = tensor_extent(info)
            assert files.read(extent.file, extent.offset, extent.nbytes) == raw(tensor), name


def test_a_row_range_of_a_strided_tensor_is_its_rows(tmp_path: Path) -> None:
    tensor = torch.randn(6, 10).t()
    structure, files = saved(tmp_path, {"weight": tensor})
    part = Part(structure.tensors["weight"], 3, 8)
    assert part_extent(part) is None
    assert b"".join(logical_bytes(files, part)) == raw(tensor[3:8])


def test_optimizer_state_is_never_the_model(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "global_step": 7,
        "args": argparse.Namespace(block_size=16, lr=6e-4, betas=(0.9, 0.95), save_dir=Path("out"), resume=None),
    }
    structure, _ = saved(tmp_path, state)
    assert set(structure.tensors) == {"weight", "bias"}
    assert structure.namespace == "model"
    assert structure.step == 7
    assert structure.args is not None
    assert structure.args["block_size"] == 16
    assert structure.args["betas"] == [0.9, 0.95]
    assert structure.sources == {"args": "checkpoint.pt: args", "step": "checkpoint.pt: global_step"}


@pytest.mark.parametrize(
    "namespace", ["model", "state_dict", "model_state_dict", "draft_state_dict", "draft_model", "module", ""]
)
def test_the_model_is_found_under_any_usual_key(tmp_path: Path, namespace: str) -> None:
    tensors = OrderedDict(weight=torch.ones(2), other=torch.zeros(3))
    structure, _ = saved(tmp_path, {namespace: tensors} if namespace else tensors)
    assert structure.namespace == namespace
    assert set(structure.tensors) == {"weight", "other"}


def test_a_drafter_is_preferred_to_the_model_beside_it(tmp_path: Path) -> None:
    structure, _ = saved(tmp_path, {"model": {"target": torch.ones(1)}, "draft_state_dict": {"fc": torch.ones(1)}})
    assert set(structure.tensors) == {"fc"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.eye(3).to_sparse(), "_rebuild_sparse_tensor"),
        (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "_rebuild_qtensor"),
        (lambda: argparse.ArgumentError(None, "x"), "ArgumentError"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_that_is_no_plain_one_is_refused_by_name(tmp_path: Path, make: Callable[[], Any], words: str) -> None:
    with pytest.raises(CheckpointUnsupported, match=rf"checkpoint\.pt: model\.weight is a .*{words}"):
        saved(tmp_path, {"model": {"weight": make(), "bias": torch.ones(2)}})


def test_a_sharded_tensor_is_refused_by_name(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        sharded = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
        with pytest.raises(CheckpointUnsupported, match=r"model\.weight is a .*DTensor, not a plain tensor"):
            saved(tmp_path, {"model": {"weight": sharded}})
        with pytest.raises(CheckpointUnsupported, match=r"fc\.weight is a .*DTensor, not a plain tensor"):
            saved(tmp_path, {"fc.weight": sharded, "args": argparse.Namespace()})
    finally:
        torch.distributed.destroy_process_group()


def test_a_model_that_is_a_pickled_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnsupported, match=r"model is a pickled .*Linear"):
        saved(tmp_path, {"model": torch.nn.Linear(2, 2), "step": 3})


def test_a_pickled_module_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnsupported, match="Linear"):
        saved(tmp_path, torch.nn.Linear(2, 2))


def test_a_compressed_zip_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2000)}, tmp_path / "plain.pt")
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as source,
        zipfile.ZipFile(tmp_path / "checkpoint.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in source.namelist():
            packed.writestr(name, source.read(name))
    with pytest.raises(CheckpointUnsupported, match="compressed"):
        read_structure(LocalFiles(tmp_path, ["checkpoint.pt"]))


def test_quick_id_covers_content_and_is_unknown_without_checksums(tmp_path: Path) -> None:
    one = quick_id(saved(tmp_path, {"weight": torch.zeros(4)})[0].directory)
    other = quick_id(saved(tmp_path, {"weight": torch.ones(4)})[0].directory)
    assert one is not None
    assert one.startswith("zip-")
    assert one != other
    torch.serialization.set_crc32_options(False)
    try:
        assert quick_id(saved(tmp_path, {"weight": torch.ones(4)})[0].directory) is None
    finally:
        torch.serialization.set_crc32_options(True)


@pytest.fixture(scope="module")
def zip_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("zip")
    saved(folder, {"model": awkward_tensors(), "args": argparse.Namespace(a=1)})
    return (folder / "checkpoint.pt").read_bytes()


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_cut_zip_is_never_complete(
    tmp_path_factory: pytest.TempPathFactory, zip_bytes: bytes, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "checkpoint.pt").write_bytes(zip_bytes[: data.draw(st.integers(0, len(zip_bytes) - 1))])
    files = LocalFiles(folder, ["checkpoint.pt"])
    assert file_completeness(files, "checkpoint.pt")[0] == "truncated"
    with pytest.raises(CheckpointError):
        read_structure(files)


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_zip_is_read_or_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, zip_bytes: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(zip_bytes)
    near_end = st.integers(max(0, len(zip_bytes) - 4000), len(zip_bytes) - 1)
    for place in data.draw(st.lists(near_end | st.integers(0, 6000), min_size=1, max_size=6)):
        damaged[place] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.getbasetemp()
    (folder / "checkpoint.pt").write_bytes(damaged)
    structure, refusal = outcome(lambda: read_structure(LocalFiles(folder, ["checkpoint.pt"])))
    if structure is None:
        assert "checkpoint.pt" in refusal
    else:
        assert all(tensor_extent(info).nbytes <= len(damaged) for info in structure.tensors.values())


class CountedFiles(LocalFiles):
    """Counts round trips as a remote backing would have them."""

    trips = 0

    def read(self, name: str, offset: int, length: int) -> bytes:
        self.trips += 1
        return super().read(name, offset, length)

    def read_many(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.trips += 1
        return [LocalFiles.read(self, name, offset, length) for offset, length in ranges]


def test_the_structure_of_a_remote_file_takes_few_round_trips(tmp_path: Path) -> None:
    torch.save({"model": {f"t{i}": torch.ones(50) for i in range(300)}, "step": 1, "args": {}}, tmp_path / "x.pt")
    files = CountedFiles(tmp_path)
    assert len(read_structure(files).tensors) == 300
    assert files.trips <= 8


def test_records_beyond_four_gibibytes_are_found(tmp_path: Path) -> None:
    """A sparse zip64 file with a record of 5 GiB and another behind it, written from the format's description."""
    size, small = 5 << 30, b"behind"
    path = tmp_path / "large.pt"
    entries: list[tuple[bytes, int, int]] = []
    with path.open("wb") as file:
        for name, length, content_ in ((b"large", size, b""), (b"small", len(small), small)):
            entries.append((name, length, file.tell()))
            extra = struct.pack("<HHQQ", 1, 16, length, length)
            file.write(
                struct.pack("<4s5H3I2H", b"PK\x03\x04", 45, 0, 0, 0, 0, 0, 2**32 - 1, 2**32 - 1, len(name), len(extra))
            )
            file.write(name + extra)
            file.write(content_) if content_ else file.seek(length, 1)
        start = file.tell()
        for name, length, offset in entries:
            extra = struct.pack("<HHQQQ", 1, 24, length, length, offset)
            file.write(
                struct.pack(
                    "<4s6H3I5H2I",
                    b"PK\x01\x02",
                    45,
                    45,
                    0,
                    0,
                    0,
                    0,
                    0,
                    2**32 - 1,
                    2**32 - 1,
                    len(name),
                    len(extra),
                    0,
                    0,
                    0,
                    0,
                    2**32 - 1,
                )
            )
            file.write(name + extra)
        end = file.tell()
        file.write(struct.pack("<4sQ2H2I4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 2, 2, end - start, start))
        file.write(struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1))
        file.write(struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**32 - 1, 0))
    with zipfile.ZipFile(path) as other_reader:
        assert [info.file_size for info in other_reader.infolist()] == [size, len(small)]
    files = LocalFiles(tmp_path)
    directory = read_directory(files, "large.pt")
    offsets = data_offsets(files, directory, ["large", "small"])
    assert directory.records["large"].size == size
    assert files.read("large.pt", offsets["small"], len(small)) == small
    assert file_completeness(files, "large.pt") == ("complete", "")
