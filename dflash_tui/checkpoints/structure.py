"""What every container format is reduced to: named tensors at places in files, and the trainer's own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointDamaged

ITEMSIZE: Mapping[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "F8_E8M0": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
    "C64": 8, "C128": 16,
}  # fmt: skip
"""Bytes of one element, by the safetensors spelling of its dtype."""


@dataclass(frozen=True)
class Extent:
    """A byte range of a file; `crc` is the CRC-32 of exactly these bytes where the file's own directory states it."""

    file: str
    offset: int
    nbytes: int
    crc: int | None = None


@dataclass(frozen=True)
class TensorInfo:
    """A tensor and where it lies: `offset` is the file position of element [0, …, 0]; `strides` are in elements.

    `storage_offset` and `storage_nbytes` are the whole record that it is a view of (the tensor itself unless it is a
    view; tied tensors share one), `storage_crc` that record's CRC-32 as the file's own directory states it (None where
    it states none). A tensor that lies in several places has `pieces`: byte ranges that, one after the other, are its
    logical bytes (C order); its `file` and `offset` are then the first piece's and it has no storage but itself.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    offset: int
    strides: tuple[int, ...]
    storage_nbytes: int
    storage_offset: int
    storage_crc: int | None = None
    pieces: tuple[Extent, ...] = ()

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return ITEMSIZE[self.dtype]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's logical extent (C order, nothing in between)."""
        return prod(self.shape) * self.itemsize

    @property
    def contiguous(self) -> bool:
        """Whether the logical bytes are exactly the file's bytes from `offset` on."""
        return not self.pieces and (
            self.nbytes == 0
            or all(
                size == 1 or stride == expected
                for size, stride, expected in zip(self.shape, self.strides, c_strides(self.shape), strict=True)
            )
        )

    @property
    def storage(self) -> Extent:
        """The whole record that the tensor is a view of; the same for tied tensors. Not for one in pieces."""
        return Extent(self.file, self.storage_offset, self.storage_nbytes, self.storage_crc)


DirectoryLine = tuple[str, str, int, int | None]
"""(file, record, size in bytes, CRC-32; None where the format keeps no CRC)."""


@dataclass(frozen=True)
class Structure:
    """A checkpoint without its data.

    `container` names the format; `namespace` is the top-level key that held the weights ("" when flat); `tensors` are
    the model's by their raw names, never the optimizer's. `args` is plain data of the trainer's own arguments, `step`
    its step counter; `sources` says where each of the two was read. `directory` lists what a quick identity hashes.
    `root` is all that one torch file says it holds (see `pickles`); None of other containers.
    """

    container: str
    tensors: Mapping[str, TensorInfo]
    files: tuple[str, ...]
    namespace: str = ""
    args: dict[str, Any] | None = None
    step: int | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    directory: tuple[DirectoryLine, ...] = ()
    root: Any = field(default=None, repr=False, compare=False)


def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a dense row-major tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def tensor_extent(info: TensorInfo) -> Extent:
    """The smallest byte range that holds every element of the tensor (of one that is not in pieces)."""
    if info.nbytes == 0:
        return Extent(info.file, info.offset, 0)
    last = sum((size - 1) * stride for size, stride in zip(info.shape, info.strides, strict=True))
    return Extent(info.file, info.offset, (last + 1) * info.itemsize)


def check_view(info: TensorInfo, storage_offset: int) -> None:
    """Raise CheckpointDamaged unless the tensor, `storage_offset` elements into its storage, lies within it."""
    if storage_offset < 0 or any(n < 0 for n in info.shape + info.strides) or len(info.shape) != len(info.strides):
        raise CheckpointDamaged(f"{info.file}: {info.name}: shape {info.shape} can't have strides {info.strides}")
    end = storage_offset * info.itemsize + tensor_extent(info).nbytes
    if end > info.storage_nbytes:
        raise CheckpointDamaged(
            f"{info.file}: {info.name}: reaches byte {end} of a storage of {info.storage_nbytes} bytes; "
            "the file is damaged, fetch it again"
        )
    if info.nbytes > max(info.storage_nbytes, 1):
        raise CheckpointDamaged(
            f"{info.file}: {info.name}: is {info.nbytes} bytes expanded from {info.storage_nbytes}; "
            "save it with .contiguous()"
        )
