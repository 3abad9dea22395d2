"""A checkpoint's kept tensors as one file that `torch.load` reads: their storages copied, their pickle written anew."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dflash_tui.checkpoints.pickles import Storage, Tensor
from dflash_tui.checkpoints.pickling import TORCH_NAMES, TYPED_STORAGES, pickled
from dflash_tui.checkpoints.segments import Output
from dflash_tui.checkpoints.slim_zip import Record, zip_segments
from dflash_tui.checkpoints.structure import Extent, TensorInfo, c_strides, tensor_extent

_WORTH = 256  # a storage is trimmed when what no kept tensor uses is more than one part in this of what is used
_STEP = 16  # a trimmed storage begins at a multiple of the largest element


@dataclass(frozen=True)
class _Stored:
    """A storage to be written: bytes `start` … of the source's (`start` counts from its beginning)."""

    extents: tuple[Extent, ...]
    start: int
    untyped: bool

    @property
    def nbytes(self) -> int:
        return sum(extent.nbytes for extent in self.extents)


def torch_output(
    name: str, tensors: Mapping[str, TensorInfo], files: Sequence[str], namespace: str, extras: Mapping[str, Any]
) -> Output:
    """The file `name` with these tensors, under `namespace` where there is one, and plain `extras` beside them.

    Storages are in the order of the source (`files`, then position), so that what lies together is read together.
    Tensors of one storage share one again; of a storage that is used in part, the part that is used is taken.
    """
    stored = [(_stored(members), members) for members in _groups(tensors)]
    order = {file: number for number, file in enumerate(files)}
    stored.sort(key=lambda item: _place(order, item))
    described: dict[int, Tensor] = {}
    records: list[Record] = []
    folder = posixpath.basename(name).partition(".")[0]
    if not folder or any("\udc80" <= sign <= "\udcff" for sign in folder):  # a zip's names are UTF-8
        folder = "archive"
    for number, (storage, members) in enumerate(stored):
        records.append(Record(f"{folder}/data/{number}", extents=storage.extents))
        for info in members:
            described[id(info)] = _described(str(number), storage, info)
    model = {raw: described[id(info)] for raw, info in tensors.items()}
    root = {**extras, namespace: model} if namespace else {**model, **extras}
    head = [Record(f"{folder}/data.pkl", pickled(root)), Record(f"{folder}/byteorder", b"little")]
    return Output(name, zip_segments([*head, *records, Record(f"{folder}/version", b"3\n")]))


def unused(tensors: Mapping[str, TensorInfo]) -> int:
    """Bytes of these tensors' storages that none of them uses, and that a copy of all of them therefore lacks."""
    whole = [(members[0], _stored(members)) for members in _groups(tensors) if not members[0].pieces]
    return sum(max(first.storage_nbytes - stored.nbytes, 0) for first, stored in whole)


def _groups(tensors: Mapping[str, TensorInfo]) -> list[list[TensorInfo]]:
    """The tensors by the storage that they are views of, in order of first use."""
    groups: dict[tuple[str, ...] | Extent, list[TensorInfo]] = {}
    for raw, info in tensors.items():
        groups.setdefault(("in pieces", raw) if info.pieces else info.storage, []).append(info)
    return list(groups.values())


def _place(order: Mapping[str, int], item: tuple[_Stored, list[TensorInfo]]) -> tuple[int, int]:
    storage, members = item
    first = storage.extents[0] if storage.extents else members[0].storage
    return order.get(first.file, len(order)), first.offset


def _stored(members: Sequence[TensorInfo]) -> _Stored:
    """What of a storage is needed for the tensors that are views of it."""
    first = members[0]
    untyped = len({info.dtype for info in members}) > 1 or any(info.dtype not in TYPED_STORAGES for info in members)
    if first.pieces:
        return _Stored(tuple(extent for extent in first.pieces if extent.nbytes), 0, untyped)
    extents = [tensor_extent(info) for info in members if info.nbytes]
    if not extents:
        return _Stored((), 0, untyped)
    start = min(extent.offset for extent in extents) - first.storage_offset
    stop = max(extent.offset + extent.nbytes for extent in extents) - first.storage_offset
    start -= start % _STEP
    if (first.storage_nbytes - (stop - start)) * _WORTH <= stop - start:
        return _Stored((first.storage,), 0, untyped or first.storage_nbytes % first.itemsize != 0)
    return _Stored((Extent(first.file, first.storage_offset + start, stop - start),), start, untyped)


def _described(key: str, storage: _Stored, info: TensorInfo) -> Tensor:
    if storage.untyped:
        kind, count, dtype = "torch.storage.UntypedStorage", storage.nbytes, f"torch.{TORCH_NAMES[info.dtype]}"
    else:
        kind, count, dtype = f"torch.{TYPED_STORAGES[info.dtype]}", storage.nbytes // info.itemsize, None
    within = 0 if info.pieces or not info.nbytes else info.offset - info.storage_offset - storage.start
    strides = c_strides(info.shape) if info.pieces else info.strides
    return Tensor(Storage(kind, key, count), within // info.itemsize, info.shape, strides, dtype)
