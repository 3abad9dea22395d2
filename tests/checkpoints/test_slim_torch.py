"""Slim copies of what torch saved, read back by torch itself: the same tensors, fewer bytes."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_tui.checkpoints import slim_zip
from dflash_tui.checkpoints.anatomy import read_anatomy
from dflash_tui.checkpoints.crc import crc32_joined
from dflash_tui.checkpoints.errors import CheckpointIncomplete, CheckpointUnsupported
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.segments import Late, Literal, Range
from dflash_tui.checkpoints.slim import Slim, slim
from dflash_tui.checkpoints.slim_torch import torch_output
from dflash_tui.checkpoints.structure import TensorInfo
from tests.checkpoints.composed import composed, is_in_order, slim_copy
from tests.checkpoints.sharded import save_with_two_ranks, whole_tensors
from tests.checkpoints.test_torch_files import awkward_tensors, raw

STATE = {"optimizer": {"state": {0: {"exp_avg": torch.ones(900)}}, "param_groups": [{"lr": 1e-3}]}}


def slimmed(folder: Path, data: Any, **options: Any) -> tuple[Slim, Path]:
    """A slim copy of what torch.save writes, and the path of the copy; the directory's CRCs are right."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(data, folder / "checkpoint.pt", **options)
    made, files = slim_copy(LocalFiles(folder, ["checkpoint.pt"]), folder / "slim")
    path = files.root / made.output.name
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    assert is_in_order(made.output)
    return made, path


def loaded(path: Path, mmap: bool = False) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def assert_same(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        other = found[name]
        assert (other.dtype, other.shape, other.stride()) == (tensor.dtype, tensor.shape, tensor.stride()), name
        assert raw(dense(other)) == raw(dense(tensor)), name


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("namespace", ["model_state_dict", ""])
@pytest.mark.parametrize("legacy", [False, True])
def test_every_kind_of_tensor_comes_back_bit_for_bit(tmp_path: Path, namespace: str, mmap: bool, legacy: bool) -> None:
    tensors = awkward_tensors()
    if legacy:
        del tensors["fp8"], tensors["u16"]  # torch reads neither back from its legacy format
    data = {namespace: OrderedDict(tensors), **STATE} if namespace else {**tensors, **STATE}
    made, path = slimmed(tmp_path, data, _use_new_zipfile_serialization=not legacy)
    found = loaded(path, mmap)
    assert_same(found[namespace] if namespace else found, tensors)
    assert "optimizer" not in found
    assert (made.left[0].name, made.left[0].nbytes, made.left[0].kind) == ("optimizer", 3600, "optimizer")
    assert {item.name for item in made.left[1:]} <= {"parts of storages"}


def test_ties_stay_ties_and_views_share_their_storage(tmp_path: Path) -> None:
    shared, head = torch.randn(1000), torch.randn(30, 20)
    tensors = {"a": shared[:400], "b": shared[300:900], "embed": head, "lm_head": head}
    _, path = slimmed(tmp_path, {"model": tensors, **STATE})
    found = loaded(path)["model"]
    assert found["embed"].data_ptr() == found["lm_head"].data_ptr()
    assert found["a"].untyped_storage().data_ptr() == found["b"].untyped_storage().data_ptr()
    with zipfile.ZipFile(path) as archive:
        assert len([name for name in archive.namelist() if "/data/" in name]) == 2


def test_of_a_storage_that_is_used_in_part_only_that_part_is_taken(tmp_path: Path) -> None:
    large = torch.arange(100_000, dtype=torch.float32)
    tensors = {"view": large[50_003:50_103].reshape(10, 10).t(), "row": large[50_010:50_013]}
    made, path = slimmed(tmp_path, {"model": tensors})
    assert_same(loaded(path)["model"], tensors)
    assert made.output.size < 4000
    assert sum(item.nbytes for item in made.left) > 390_000


def test_a_part_of_a_storage_seen_as_two_dtypes_is_still_seen_as_both(tmp_path: Path) -> None:
    """torch refuses to write such a file since 2.1; others have."""
    (tmp_path / "weights.bin").write_bytes(bytes(range(256)) * 4)
    infos = {
        "narrow": TensorInfo("narrow", "BF16", (5,), "weights.bin", 502, (1,), 1024, 0),
        "wide": TensorInfo("wide", "F64", (3,), "weights.bin", 520, (1,), 1024, 0),
    }
    output = torch_output("checkpoint.pt", infos, ["weights.bin"], "", {})
    (tmp_path / "checkpoint.pt").write_bytes(composed(LocalFiles(tmp_path), output))
    found = loaded(tmp_path / "checkpoint.pt")
    stored = bytes(range(256)) * 4
    assert raw(found["narrow"]) == stored[502:512]
    assert raw(found["wide"]) == stored[520:544]


def test_step_epoch_and_arguments_come_along_and_unknown_objects_do_not(tmp_path: Path) -> None:
    data = {
        "model": {"weight": torch.ones(3)},
        "step": 4000,
        "epoch": 2,
        "best": -1.5e300,
        "large": -(1 << 200),
        "note": "ein Hünengrab \ud800",
        "args": argparse.Namespace(block_size=16, betas=(0.9, 0.95), path=Path("x"), nested=argparse.Namespace(a=None)),
        "history": [{"loss": 2.0, "at": (1, 2)}, {}],
        "rng_state": torch.arange(100, dtype=torch.uint8),
        "object": argparse.Namespace(),
        "scheduler": {"last_epoch": 4000},
        **STATE,
    }
    made, path = slimmed(tmp_path, data)
    found = loaded(path)
    assert {key: found[key] for key in ("step", "epoch", "best", "large", "note", "history")} == {
        key: data[key] for key in ("step", "epoch", "best", "large", "note", "history")
    }
    assert found["args"]["block_size"] == 16
    assert list(found["args"]["betas"]) == [0.9, 0.95]
    assert found["args"]["nested"] == {"a": None}
    assert {item.name for item in made.left} == {"rng_state", "object", "scheduler", "optimizer"}
    assert made.step == 4000
    assert not set(found) & {item.name for item in made.left}
    original = read_structure(LocalFiles(tmp_path, ["checkpoint.pt"]))
    again = read_structure(LocalFiles(path.parent, ["checkpoint.pt"]))
    assert again.args == original.args
    assert (again.step, again.namespace) == (original.step, original.namespace)


def test_a_verifiers_head_is_always_left_and_its_norm_never(tmp_path: Path) -> None:
    tensors = {
        "fc.weight": torch.ones(4),
        "verifier_lm_head.weight": torch.ones(50),
        "verifier_norm.weight": torch.ones(4),
    }
    made, path = slimmed(tmp_path, {"model": tensors})
    assert set(loaded(path)["model"]) == {"fc.weight", "verifier_norm.weight"}
    assert [(item.name, item.nbytes, item.kind) for item in made.left] == [("verifier_lm_head.weight", 200, "verifier")]


def test_nothing_is_left_of_a_checkpoint_that_is_only_weights(tmp_path: Path) -> None:
    made, _ = slimmed(tmp_path, {"model": {"weight": torch.ones(300)}, "step": 1, "args": argparse.Namespace(a=1)})
    assert made.left == ()


def test_a_source_without_checksums_gets_right_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slim_zip, "CUT", 1 << 12)
    tensors = {f"t{i}": torch.randn(20 + 997 * i) for i in range(6)}
    torch.serialization.set_crc32_options(False)
    try:
        made, path = slimmed(tmp_path, {"model": tensors, **STATE})
    finally:
        torch.serialization.set_crc32_options(True)
    assert_same(loaded(path)["model"], tensors)
    assert isinstance(made.output.segments[-1], Late)
    at = 0
    for segment in made.output.segments:
        if isinstance(segment, Range):
            assert at // 4096 == (at + segment.nbytes - 1) // 4096, "a range lies whole between two cuts"
        at += segment.nbytes


@pytest.mark.parametrize("stated", [True, False])
def test_another_zip_program_finds_nothing_wrong(tmp_path: Path, stated: bool) -> None:
    if shutil.which("unzip") is None:
        (pytest.fail if os.environ.get("DFLASH_REQUIRE_ALL") == "1" else pytest.skip)("there is no unzip here")
    torch.serialization.set_crc32_options(stated)
    try:
        _, path = slimmed(tmp_path, {"model": {f"t{i}": torch.randn(100 + i) for i in range(5)}, **STATE})
    finally:
        torch.serialization.set_crc32_options(True)
    done = subprocess.run(["unzip", "-t", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_checksums_of_the_source_are_stated_and_nothing_is_left_to_be_found_out(tmp_path: Path) -> None:
    made, _ = slimmed(tmp_path, {"model": {f"t{i}": torch.randn(100 + i) for i in range(9)}, **STATE})
    assert all(segment.crc is not None for segment in made.output.segments if isinstance(segment, Range))
    assert not any(isinstance(segment, Late) for segment in made.output.segments)


def test_a_realistic_slim_copy_is_its_weights_and_hardly_more(tmp_path: Path) -> None:
    tensors = {f"layers.{i}.weight": torch.randn(300, 70).bfloat16() for i in range(60)}
    made, _ = slimmed(tmp_path, {"model": tensors, "step": 4000, **STATE})
    assert made.output.size <= 1.01 * sum(piece.nbytes for piece in made.kept)


def test_what_two_ranks_saved_in_pieces_becomes_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slim_zip, "CUT", 64)
    save_with_two_ranks(tmp_path / "step-31", whole_tensors())
    made, copy = slim_copy(LocalFiles(tmp_path / "step-31"), tmp_path / "slim")
    found = loaded(copy.root / "checkpoint.pt")
    assert set(found["model"]) == set(whole_tensors())
    assert_same({name: found["model"][name] for name in whole_tensors()}, whole_tensors())
    assert found["step"] == 31
    with zipfile.ZipFile(copy.root / "checkpoint.pt") as archive:
        assert archive.testzip() is None
    assert {item.kind for item in made.left} == {"optimizer"}


def test_torch_shards_become_one_file(tmp_path: Path) -> None:
    tensors = {f"layers.{i}.weight": torch.randn(40 + i) for i in range(6)}
    names = [f"pytorch_model-0000{i + 1}-of-00002.bin" for i in range(2)]
    where = {name: names[i % 2] for i, name in enumerate(tensors)}
    for shard in names:
        torch.save({name: tensors[name] for name in tensors if where[name] == shard}, tmp_path / shard)
    index = {"metadata": {}, "weight_map": where}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    made, copy = slim_copy(LocalFiles(tmp_path), tmp_path / "slim")
    assert made.output.name == "pytorch_model.bin"
    assert is_in_order(made.output)
    found = loaded(copy.root / "pytorch_model.bin")
    assert_same({name: found[name] for name in tensors}, tensors)


@st.composite
def state_dicts(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    """Tensors that are views, ties, transposed or alone, of a few storages of any dtype."""
    dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float8_e4m3fn, torch.bool])
    bases = [
        torch.arange(draw(st.integers(0, 400))).remainder(7).to(draw(dtypes)) for _ in range(draw(st.integers(1, 4)))
    ]
    found: dict[str, torch.Tensor] = {}
    for number in range(draw(st.integers(1, 8))):
        base = draw(st.sampled_from(bases))
        start = draw(st.integers(0, len(base)))
        view = base[start : draw(st.integers(start, len(base)))]
        kind = draw(st.sampled_from(["plain", "strided", "matrix", "number", "parameter"]))
        if kind == "strided":
            view = view[:: draw(st.integers(1, 5))]
        elif kind == "matrix":
            columns = draw(st.integers(1, 6))
            view = view[: len(view) // columns * columns].reshape(-1, columns).t()
        elif kind == "number" and len(view):
            view = view[0]
        elif kind == "parameter":
            view = torch.nn.Parameter(view, requires_grad=False)
        found[draw(st.sampled_from(["", "model.", "layers.0."])) + f"t{number}"] = view
    return found


@given(tensors=state_dicts(), namespace=st.sampled_from(["", "model", "draft_state_dict"]), crc=st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_state_dict_comes_back(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, torch.Tensor], namespace: str, crc: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    data: dict[str, Any] = {namespace: tensors, "step": 3} if namespace else dict(tensors)
    torch.serialization.set_crc32_options(crc)
    try:
        _, path = slimmed(folder, {**data, **STATE})
    finally:
        torch.serialization.set_crc32_options(True)
    for mmap in (False, True):
        found = loaded(path, mmap)
        assert_same(found[namespace] if namespace else found, tensors)


@given(cut=st.integers(0, 20_000), place=st.integers(0, 20_000), value=st.integers(0, 255))
@settings(max_examples=80, deadline=None)
def test_a_cut_file_is_refused_and_a_damaged_one_never_breaks_the_plan(
    tmp_path_factory: pytest.TempPathFactory, cut: int, place: int, value: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    torch.save({"model": awkward_tensors(), "args": argparse.Namespace(a=1), **STATE}, folder / "checkpoint.pt")
    whole = (folder / "checkpoint.pt").read_bytes()
    (folder / "checkpoint.pt").write_bytes(whole[: min(cut, len(whole) - 1)])
    files = LocalFiles(folder, ["checkpoint.pt"])
    anatomy = read_anatomy(files)
    assert "checkpoint.pt" in anatomy.problem
    assert anatomy.incomplete or cut < 4
    with pytest.raises((CheckpointIncomplete, CheckpointUnsupported), match=r"checkpoint\.pt"):
        slim(files, anatomy, frozenset())

    damaged = bytearray(whole)
    damaged[place % len(whole)] = value
    (folder / "checkpoint.pt").write_bytes(damaged)
    anatomy = read_anatomy(files)
    try:
        made = slim(files, anatomy, frozenset())
    except (CheckpointIncomplete, CheckpointUnsupported):
        return
    for segment in made.output.segments:
        assert not isinstance(segment, Range) or segment.offset + segment.nbytes <= len(whole)


def test_a_pickle_that_would_run_something_runs_nothing(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "sprung",)

    made, path = slimmed(tmp_path, {"model": {"weight": torch.ones(3)}, "trap": Trap(), **STATE})
    assert not (tmp_path / "sprung").exists()
    assert set(loaded(path)) == {"model"}
    assert "trap" in {item.name for item in made.left}


def zeros_crc(nbytes: int) -> int:
    """CRC-32 of zeros: a block's, joined with itself."""
    parts = []
    while nbytes:
        length = 1 << (nbytes.bit_length() - 1)
        crc = zero_powers[length.bit_length() - 1]
        parts.append((crc, length))
        nbytes -= length
    return crc32_joined(parts)


zero_powers = [0xD202EF8D]  # of one zero byte; then of 2, 4, …
for power in range(40):
    zero_powers.append(crc32_joined([(zero_powers[-1], 1 << power)] * 2))


@pytest.mark.parametrize("stated", [True, False])
def test_records_and_files_beyond_four_gibibytes_are_written(tmp_path: Path, stated: bool) -> None:
    """Sparse: 5 GiB of zeros, then small tensors whose headers lie beyond 4 GiB."""
    size = 5 << 30
    crc = zeros_crc(size) if stated else None
    infos = {
        "large": TensorInfo("large", "F32", (size // 4,), "source", 0, (1,), size, 0, crc),
        "small": TensorInfo("small", "I64", (3,), "source", size, (1,), 24, size, zeros_crc(24) if stated else None),
        "fp8": TensorInfo("fp8", "F8_E5M2", (size - 1,), "source", 2 * size, (1,), size, 2 * size, crc),
    }
    output = torch_output("checkpoint.pt", infos, ["source"], "model", {"step": 1})
    path = tmp_path / "checkpoint.pt"
    with path.open("wb") as file:
        crcs = []
        for segment in output.segments:
            if isinstance(segment, Range):
                crcs.append(zeros_crc(segment.nbytes))
                file.seek(segment.nbytes, 1)
            else:
                file.write(segment.data if isinstance(segment, Literal) else segment.build(crcs))
        assert file.tell() == output.size > 2 * size
    with zipfile.ZipFile(path) as archive:
        by_size = {info.file_size: info.CRC for info in archive.infolist()}
        assert by_size[size] == zeros_crc(size)
        assert archive.read("checkpoint/data/1") == bytes(24)
    found = loaded(path, mmap=True)["model"]
    assert (found["large"].shape, found["fp8"].shape) == ((size // 4,), (size - 1,))
    assert found["small"].tolist() == [0, 0, 0]
    structure = read_structure(LocalFiles(tmp_path))
    assert structure.tensors["large"].storage_crc == zeros_crc(size)


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_joined_checksums_are_those_of_the_whole(parts: list[bytes]) -> None:
    assert crc32_joined([(zlib.crc32(part), len(part)) for part in parts]) == zlib.crc32(b"".join(parts))
