"""Files whose parts contradict each other are refused before a byte of their data is used."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest

from dflash_tui.checkpoints.content import logical_bytes
from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointIncomplete
from dflash_tui.checkpoints.files import LocalFiles
from dflash_tui.checkpoints.keys import Part
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.structure import Structure, TensorInfo
from tests.checkpoints.written import drafter, safetensors_bytes


def text(word: str) -> bytes:
    return b"X" + struct.pack("<I", len(word)) + word.encode()


def one_tensor(
    folder: Path,
    *,
    count: int = 6,
    stored: int = 24,
    offset: int = 0,
    shape: int = 6,
    stride: int = 1,
    record: str = "0",
) -> Structure:
    """A torch zip with one float32 vector, whose pickle claims what is asked."""
    storage = (
        b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K" + bytes((count,)) + b"tQ"
    )
    view = b"K" + bytes((offset,)) + b"K" + bytes((shape,)) + b"\x85" + b"K" + bytes((stride,)) + b"\x85\x89}"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + view + b"tR"
    with zipfile.ZipFile(folder / "x.pt", "w") as file:
        file.writestr("x/data.pkl", b"\x80\x02}" + text("weight") + tensor + b"s.")
        file.writestr("x/byteorder", "little")
        file.writestr(f"x/data/{record}", bytes(range(stored)))
    return read_structure(LocalFiles(folder))


def test_a_tensor_within_its_storage_is_read(tmp_path: Path) -> None:
    info = one_tensor(tmp_path, offset=2, shape=2, stride=3).tensors["weight"]
    assert b"".join(logical_bytes(LocalFiles(tmp_path), Part(info))) == bytes((8, 9, 10, 11, 20, 21, 22, 23))


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"offset": 1}, "reaches byte 28 of a storage of 24"),
        ({"stride": 2}, "reaches byte 44 of a storage of 24"),
        ({"shape": 7}, "reaches byte 28"),
        ({"shape": 200, "stride": 0}, "expanded"),
        ({"count": 5}, "24 bytes, expected 20"),
        ({"stored": 23}, "23 bytes, expected 24"),
        ({"record": "1"}, "'x/data/0'"),
    ],
)
def test_a_tensor_that_does_not_fit_its_record_is_refused(tmp_path: Path, claims: dict[str, int], words: str) -> None:
    with pytest.raises(CheckpointDamaged, match=words):
        one_tensor(tmp_path, **claims)  # type: ignore[arg-type]


def test_bytes_lost_from_the_middle_are_noticed_at_the_end(tmp_path: Path) -> None:
    one_tensor(tmp_path)
    path = tmp_path / "x.pt"
    data = path.read_bytes()
    path.write_bytes(data[:60] + data[61:])
    with pytest.raises(CheckpointIncomplete, match="zip directory should end at byte"):
        read_structure(LocalFiles(tmp_path))


@pytest.mark.parametrize("spans", [[(0, 8), (4, 12)], [(0, 8), (12, 20)], [(4, 12), (12, 20)]])
def test_safetensors_with_gaps_or_overlaps_are_refused(tmp_path: Path, spans: list[tuple[int, int]]) -> None:
    header = {f"t{i}": {"dtype": "F32", "shape": [2], "data_offsets": list(span)} for i, span in enumerate(spans)}
    encoded = json.dumps(header).encode()
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(encoded)) + encoded + bytes(spans[-1][1]))
    with pytest.raises(CheckpointDamaged, match="no gaps"):
        read_structure(LocalFiles(tmp_path))


def test_a_shard_that_lacks_a_tensor_of_the_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(safetensors_bytes(drafter()))
    weight_map = {name: "a.safetensors" for name in [*drafter(), "layers.9.lost"]}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(CheckpointDamaged, match=r"layers\.9\.lost"):
        read_structure(LocalFiles(tmp_path))


class CountedReads(LocalFiles):
    reads = 0

    def read(self, name: str, offset: int, length: int) -> bytes:
        self.reads += 1
        return super().read(name, offset, length)


def test_a_transposed_matrix_is_read_along_the_file(tmp_path: Path) -> None:
    """200 columns of 5,000 rows, stored column after column: one read a column, not one a row."""
    (tmp_path / "t.bin").write_bytes(bytes(2 * 5000 * 200))
    files = CountedReads(tmp_path)
    info = TensorInfo("t", "BF16", (5000, 200), "t.bin", 0, (1, 5000), 2 * 5000 * 200, 0)
    assert sum(map(len, logical_bytes(files, Part(info)))) == info.nbytes
    assert files.reads == 200
