"""The structure of a safetensors file: a length, a JSON header, then the data (format of the safetensors project)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointIncomplete, CheckpointUnsupported, guarded
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.jsontext import read_object
from dflash_tui.checkpoints.sentences import is_text, shown
from dflash_tui.checkpoints.structure import ITEMSIZE, Structure, TensorInfo, c_strides

MAX_HEADER = 100_000_000
"""The format's own limit for the header, in bytes."""

MAX_TENSORS = 200_000
"""Tensors of a file that are read: some hundred times those of the largest drafters."""

_FIRST = 1 << 16
_MAX_DIMENSIONS = 64  # as many as torch's tensors have


@dataclass(frozen=True)
class _Row:
    """What the header says of a tensor; `start` and `stop` count from the beginning of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@guarded
def read_safetensors(files: Files, file: str) -> Structure:
    """Structure of one safetensors file. Raises CheckpointIncomplete when the file is shorter than its header says,
    CheckpointDamaged when the header contradicts itself, CheckpointUnsupported for a dtype that is not known or more
    tensors than are read."""
    rows = _rows(files, file)
    return Structure(
        container="safetensors",
        tensors={
            row.name: TensorInfo(
                row.name, row.dtype, row.shape, file, row.start, c_strides(row.shape), row.stop - row.start, row.start
            )
            for row in rows
        },
        files=(file,),
        directory=tuple(
            (file, f"{row.name} {row.dtype} {row.shape} {row.start}", row.stop - row.start, None) for row in rows
        ),
    )


@guarded
def check_safetensors(files: Files, file: str) -> None:
    """Raise what `read_safetensors` raises, without making a structure."""
    _rows(files, file)


def _rows(files: Files, file: str) -> list[_Row]:
    """The header's tensors in its order, whose data fill the file."""
    total = files.size(file)
    header, data_start = read_header(files, file)
    rows = [_row(file, name, entry, data_start) for name, entry in header.items() if name != "__metadata__"]
    end = data_start
    for row in sorted(rows, key=lambda row: (row.start, row.stop, row.name)):
        if row.start != end:
            raise CheckpointDamaged(
                f"{file}: {row.name} begins at byte {row.start}, expected {end} (data must have no gaps)"
            )
        end = row.stop
    if end > total:
        raise CheckpointIncomplete(f"{file}: has {total} bytes of {end}; cut, or still being written?")
    if end < total:
        raise CheckpointDamaged(f"{file}: has {total} bytes, its header describes {end}")
    return rows


def read_header(files: Files, file: str) -> tuple[dict[str, Any], int]:
    """(the header as it is written, the position where the data begins). Raises CheckpointIncomplete, CheckpointDamaged
    when there is no such header, CheckpointUnsupported when it names more tensors than are read."""
    total = files.size(file)
    if total < 8:
        raise CheckpointIncomplete(f"{file}: has {total} bytes, too few for a safetensors header; still being written?")
    first = files.read(file, 0, min(total, _FIRST))
    length = int.from_bytes(first[:8], "little")
    if length > MAX_HEADER:
        raise CheckpointDamaged(f"{file}: claims a header of {length} bytes; not a safetensors file")
    if 8 + length > total:
        raise CheckpointIncomplete(f"{file}: has {total} bytes, its header alone needs {8 + length}; cut?")
    text = first[8 : 8 + length] if 8 + length <= len(first) else files.read(file, 8, length)
    tensors = text.count(b'"data_offsets"')
    if tensors > MAX_TENSORS:
        raise CheckpointUnsupported(f"{file}: its header names {tensors} tensors; more than {MAX_TENSORS} are not read")
    return read_object(text, f"{file}: its header"), 8 + length


def _row(file: str, name: str, entry: Any, data_start: int) -> _Row:
    if not isinstance(entry, dict):
        raise CheckpointDamaged(f"{file}: {name}: its header entry is no object")
    dtype, shape, offsets = entry.get("dtype"), _naturals(entry.get("shape")), _naturals(entry.get("data_offsets"))
    if shape is None or offsets is None or len(offsets) != 2:
        raise CheckpointDamaged(f"{file}: {name}: its shape or data_offsets in the header is not readable")
    if not isinstance(dtype, str) or dtype not in ITEMSIZE:
        raise CheckpointUnsupported(f"{file}: {name} is of type {shown(dtype)}, which can't be read here")
    if not name.isascii() and not is_text(name):
        raise CheckpointUnsupported(f"{file}: {shown(name)} is a tensor whose name is no text; rename it")
    needed, held = prod(shape) * ITEMSIZE[dtype], offsets[1] - offsets[0]
    if needed != held:
        raise CheckpointDamaged(
            f"{file}: {name}: {dtype} of shape {shape} needs {needed} bytes, its offsets hold {held}"
        )
    return _Row(name, dtype, shape, data_start + offsets[0], data_start + offsets[1])


def _naturals(value: Any) -> tuple[int, ...] | None:
    if (
        isinstance(value, list)
        and len(value) <= _MAX_DIMENSIONS
        and all(type(item) is int and 0 <= item < 1 << 62 for item in value)
    ):
        return tuple(value)
    return None
