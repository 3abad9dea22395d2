"""A checkpoint's kept tensors as one safetensors file: a new header over the source's own bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from dflash_tui.checkpoints.errors import CheckpointUnsupported
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.safetensors import MAX_HEADER, read_header
from dflash_tui.checkpoints.segments import Literal, Output, Range
from dflash_tui.checkpoints.structure import TensorInfo

_ALIGNMENT = 8


def safetensors_output(files: Files, name: str, tensors: Mapping[str, TensorInfo], sources: Sequence[str]) -> Output:
    """The file `name` with these tensors of the safetensors files `sources`, and the metadata of those.

    Wide dtypes come first, so that every tensor lies at a multiple of its element; inside a width the order is the
    source's. Raises CheckpointUnsupported when the header would be longer than the format allows, CheckpointError.
    """
    header: dict[str, object] = {}
    metadata: dict[str, object] = {}
    for source in sources:
        found = read_header(files, source)[0].get("__metadata__")
        metadata = {**found, **metadata} if isinstance(found, dict) else metadata
    if metadata:
        header["__metadata__"] = metadata
    order = {source: number for number, source in enumerate(sources)}
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].itemsize, order[item[1].file], item[1].offset))
    at = 0
    for raw, info in ordered:
        header[raw] = {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": [at, at + info.nbytes]}
        at += info.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % _ALIGNMENT)
    if len(text) > MAX_HEADER:
        raise CheckpointUnsupported(f"{name}: its header would have {len(text)} bytes, more than the format allows")
    ranges = (Range(info.file, info.offset, info.nbytes) for _, info in ordered if info.nbytes)
    return Output(name, (Literal(len(text).to_bytes(8, "little") + text), *ranges))
