"""The structure of a safetensors file: a length, a JSON header, then the data (format of the safetensors project)."""

from __future__ import annotations

import json
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointIncomplete, CheckpointUnsupported
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.structure import ITEMSIZE, Structure, TensorInfo, c_strides

MAX_HEADER = 100_000_000
"""The format's own limit for the header, in bytes."""

_FIRST = 1 << 16


def read_safetensors(files: Files, file: str) -> Structure:
    """Structure of one safetensors file. Raises CheckpointIncomplete when the file is shorter than its header says,
    CheckpointDamaged when the header contradicts itself, CheckpointUnsupported for a dtype that is not known."""
    total = files.size(file)
    header, data_start = read_header(files, file)
    tensors: dict[str, TensorInfo] = {}
    spans: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        tensors[name] = info = _tensor(file, name, entry, data_start)
        spans.append((info.offset, info.offset + info.nbytes, name))
    end = data_start
    for start, stop, name in sorted(spans):
        if start != end:
            raise CheckpointDamaged(f"{file}: {name} begins at byte {start}, expected {end} (data must have no gaps)")
        end = stop
    if end > total:
        raise CheckpointIncomplete(f"{file}: has {total} bytes of {end}; cut, or still being written?")
    if end < total:
        raise CheckpointDamaged(f"{file}: has {total} bytes, its header describes {end}")
    return Structure(
        container="safetensors",
        tensors=tensors,
        files=(file,),
        directory=tuple(
            (file, f"{info.name} {info.dtype} {info.shape} {info.offset}", info.nbytes, None)
            for info in tensors.values()
        ),
    )


def read_header(files: Files, file: str) -> tuple[dict[str, Any], int]:
    """(the header as it is written, the position where the data begins). Raises CheckpointIncomplete, CheckpointDamaged
    when there is no such header."""
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
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointDamaged(f"{file}: its header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise CheckpointDamaged(f"{file}: its header is a JSON {type(header).__name__}, expected an object")
    return header, 8 + length


def _tensor(file: str, name: str, entry: Any, data_start: int) -> TensorInfo:
    if not isinstance(entry, dict):
        raise CheckpointDamaged(f"{file}: {name}: its header entry is no object")
    dtype, shape, offsets = entry.get("dtype"), _naturals(entry.get("shape")), _naturals(entry.get("data_offsets"))
    if shape is None or offsets is None or len(offsets) != 2:
        raise CheckpointDamaged(f"{file}: {name}: its shape or data_offsets in the header is not readable")
    if not isinstance(dtype, str) or dtype not in ITEMSIZE:
        raise CheckpointUnsupported(f"{file}: {name} is of type {dtype!r}, which can't be read here")
    start = data_start + offsets[0]
    info = TensorInfo(name, dtype, shape, file, start, c_strides(shape), offsets[1] - offsets[0], start)
    if info.nbytes != info.storage_nbytes:
        raise CheckpointDamaged(
            f"{file}: {name}: {dtype} of shape {shape} needs {info.nbytes} bytes, "
            f"its offsets hold {info.storage_nbytes}"
        )
    return info


def _naturals(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 62 for item in value):
        return tuple(value)
    return None
