"""The structure of a folder that torch.distributed.checkpoint wrote (DCP, as FSDP trainings save), read without torch.

`.metadata` (see dcp_metadata) names a file, an offset and a length for each chunk of each tensor. What lies there is a
torch.save archive of the chunk alone; or, where the writer was asked for safetensors, the file ends in a safetensors
file of all its chunks, which begins there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from dflash_tui.checkpoints.dcp_metadata import METADATA, Chunk, Entry, Metadata, Place, directory, read_metadata
from dflash_tui.checkpoints.errors import (
    CheckpointDamaged,
    CheckpointError,
    CheckpointIncomplete,
    CheckpointUnsupported,
    guarded,
)
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.namespace import model_tensors
from dflash_tui.checkpoints.pickles import Storage, Tensor
from dflash_tui.checkpoints.safetensors import read_safetensors
from dflash_tui.checkpoints.statedict import ARGS, NAMESPACES, NOT_MODEL, STEPS, known_dtype, words
from dflash_tui.checkpoints.structure import DirectoryLine, Extent, Structure, TensorInfo, c_strides
from dflash_tui.checkpoints.torchzip import read_root, tensor_places
from dflash_tui.checkpoints.window import Window, read_ahead

_HEAD, _TAIL = 1 << 12, 1 << 12  # of a chunk's archive: all but the data of its one tensor
_BATCH = 256  # archives whose ends are held together
_MAX_CHUNKS = 1 << 15
_MAX_WORD = 1 << 16  # bytes of an item that may be an argument or the step
_MAX_WORDS = 512


@guarded
def read_dcp(files: Files, metadata: str = METADATA) -> Structure:
    """Structure of a DCP folder whose description is the file `metadata`.

    Raises CheckpointIncomplete (a file is absent or short), CheckpointDamaged, CheckpointUnsupported naming a tensor
    that is sharded along another dimension than the first, or compressed.
    """
    known = read_metadata(files, metadata)
    shards = sorted({place.file for _, place in directory(known)})
    _check_files(files, known)
    namespace, chosen = model_tensors(_tree(known, {}), metadata)
    entries = {name: known.tensors[tensor.storage.key] for name, tensor in chosen.items()}
    return Structure(
        container="torch distributed",
        tensors=_tensor_infos(files, entries),
        files=(metadata, *shards),
        namespace=namespace,
        directory=_lines(known),
        **_words(files, known),
    )


@guarded
def dcp_directory(files: Files, metadata: str = METADATA) -> tuple[DirectoryLine, ...]:
    """`Structure.directory` alone, from the folder's description. Raises CheckpointError."""
    return _lines(read_metadata(files, metadata))


def _lines(known: Metadata) -> tuple[DirectoryLine, ...]:
    return tuple((place.file, f"{place.offset} {key}", place.length, None) for key, place in directory(known))


def _check_files(files: Files, known: Metadata) -> None:
    names = set(files.names())
    sizes: dict[str, int] = {}
    for key, place in directory(known):
        if place.file not in sizes:
            if place.file not in names:
                raise CheckpointIncomplete(f"{known.name}: {key} lies in {place.file}, which is not there")
            sizes[place.file] = files.size(place.file)
        if place.offset + place.length > sizes[place.file]:
            raise CheckpointIncomplete(
                f"{place.file}: has {sizes[place.file]} bytes, {key} reaches to byte {place.offset + place.length}; "
                "cut, or still being written?"
            )


def _tree(known: Metadata, values: Mapping[str, Any]) -> dict[str, Any]:
    """The trainer's nested dict, with stand-ins for tensors (their storage's key is the folder's key for them) and the
    `values` of those items that were read."""
    root: dict[str, Any] = {}
    leaves: list[tuple[str, Any]] = [
        (key, Tensor(Storage(entry.dtype, key, 0), 0, entry.shape, ())) for key, entry in known.tensors.items()
    ]
    for key, value in (*leaves, *values.items()):
        *parents, last = known.path(key)
        inner = root
        for part in parents:
            child = inner.setdefault(part, {})
            if isinstance(child, Tensor):
                raise _twice(known, child.storage.key, key)
            if not isinstance(child, dict):
                child = inner[part] = {}
            inner = child
        there = inner.get(last)
        if isinstance(there, Tensor) and there.storage.key != key:
            raise _twice(known, there.storage.key, key)
        if isinstance(there, dict) and isinstance(value, Tensor):
            raise _twice(known, f"what is below {'.'.join(known.path(key))}", key)
        inner[last] = value
    return root


def _twice(known: Metadata, one: str, other: str) -> CheckpointUnsupported:
    place = ".".join(known.path(other))
    return CheckpointUnsupported(f"{known.name}: {one} and {other} are both at {place}; which is the model's?")


def _tensor_infos(files: Files, entries: Mapping[str, Entry]) -> dict[str, TensorInfo]:
    """By the model's name. Chunks are looked at file after file, the ends of many archives read together."""
    rows = {name: _rows(name, entry) for name, entry in entries.items()}
    wanted: dict[str, list[tuple[str, int]]] = {}
    for name, chunks in rows.items():
        for number, chunk in enumerate(chunks):
            wanted.setdefault(chunk.place.file, []).append((name, number))
    if sum(map(len, wanted.values())) > _MAX_CHUNKS:
        raise CheckpointUnsupported(f"{min(wanted)}: more than {_MAX_CHUNKS} chunks hold the model; use --full")
    found: dict[tuple[str, int], TensorInfo] = {}
    for file, several in wanted.items():
        several.sort(key=lambda item: rows[item[0]][item[1]].place.offset)
        for first in range(0, len(several), _BATCH):
            batch = several[first : first + _BATCH]
            reader = _Chunks(files, file, [rows[name][number].place for name, number in batch])
            for name, number in batch:
                found[name, number] = reader.info(name, entries[name], rows[name][number])
    return {
        name: _assembled(name, entries[name], [found[name, number] for number in range(len(chunks))])
        for name, chunks in rows.items()
    }


def _rows(name: str, entry: Entry) -> list[Chunk]:
    """The chunks that hold something, in order along the first dimension. Raises unless they are the whole tensor."""
    if not entry.chunks:
        raise CheckpointDamaged(f"{name}: has no chunks; was it saved by every rank?")
    place = entry.chunks[0].place
    if prod(entry.shape) == 0:
        return [entry.chunks[0]]
    boxes = {(chunk.offsets, chunk.sizes): chunk for chunk in entry.chunks if prod(chunk.sizes)}
    chunks = [boxes[box] for box in sorted(boxes)]  # ranks that keep the same rows may each list them
    if any(any(chunk.offsets[1:]) or chunk.sizes[1:] != entry.shape[1:] for chunk in chunks):
        raise CheckpointUnsupported(
            f"{place.file}: {name} is sharded along another dimension than its first, which can't be read in place; "
            "use --full and convert the folder with torch.distributed.checkpoint.format_utils dcp_to_torch"
        )
    row = 0
    for chunk in chunks if entry.shape else []:
        if chunk.offsets[0] != row:
            raise CheckpointDamaged(
                f"{chunk.place.file}: {name}: a chunk of it begins at row {chunk.offsets[0]}, expected row {row}"
            )
        row += chunk.sizes[0]
    if entry.shape and row != entry.shape[0]:
        raise CheckpointDamaged(f"{place.file}: {name}: its chunks hold {row} of {entry.shape[0]} rows")
    return chunks if entry.shape else chunks[:1]


def _assembled(name: str, entry: Entry, infos: list[TensorInfo]) -> TensorInfo:
    """A tensor of its chunks, each a tensor of its own, in the order of their rows."""
    if len(infos) == 1:
        only = infos[0]
        return only if only.shape == entry.shape else replace(only, shape=entry.shape, strides=c_strides(entry.shape))
    for info in infos:
        if not info.contiguous:
            raise CheckpointUnsupported(
                f"{info.file}: {name}: a chunk of it is not dense in its archive, which can't be read in place; "
                "use --full"
            )
    pieces = tuple(
        Extent(info.file, info.offset, info.nbytes, info.storage_crc if info.nbytes == info.storage_nbytes else None)
        for info in infos
    )
    first = infos[0]
    return TensorInfo(
        name=name,
        dtype=first.dtype,
        shape=entry.shape,
        file=first.file,
        offset=first.offset,
        strides=c_strides(entry.shape),
        storage_nbytes=sum(piece.nbytes for piece in pieces),
        storage_offset=first.offset,
        pieces=pieces,
    )


class _Chunks:
    """Reads what chunks' archives in a file, or the safetensors file that they lie in, say of them."""

    def __init__(self, files: Files, file: str, places: Sequence[Place]) -> None:
        self._files, self._file = files, file
        ranges: list[tuple[int, int]] = []
        for place in places:
            head, tail = min(_HEAD, place.length), min(_TAIL, place.length)
            ranges += [(place.offset, head), (place.offset + place.length - tail, tail)]
        self._ahead = read_ahead(files, file, ranges)
        self._starts = [position for position, _ in self._ahead]
        self._blobs: dict[int, Structure] = {}

    def info(self, name: str, entry: Entry, chunk: Chunk) -> TensorInfo:
        """The chunk as a tensor of its own. Raises CheckpointError."""
        place, dtype = chunk.place, known_dtype(entry.dtype)
        if dtype is None:
            raise CheckpointUnsupported(f"{place.file}: {name} is of type {entry.dtype}, which can't be read here")
        if place.transformed:
            raise CheckpointUnsupported(f"{place.file}: {name} is compressed, which can't be read in place; use --full")
        window = self._window(place)
        if place.length >= 4 and window.read(place.file, 0, 4) == b"PK\x03\x04":
            root, directory, prefix = read_root(window, place.file, _TAIL)
            if not isinstance(root, Tensor):
                raise CheckpointUnsupported(
                    f"{place.file}: {name} is no plain tensor at byte {place.offset}; save a full state dict"
                )
            found = tensor_places(window, directory, prefix, {name: root})[name]
        else:
            inside = self._blob(place.offset).tensors.get(entry.key)
            if inside is None:
                raise CheckpointDamaged(f"{place.file}: {name} is not at byte {place.offset}; fetch the file again")
            found = replace(inside, name=name)
        if found.shape != chunk.sizes or found.dtype != dtype:
            raise CheckpointDamaged(
                f"{place.file}: {name} is {found.dtype} {found.shape} at byte {place.offset}, expected {dtype} "
                f"{chunk.sizes}; fetch the file again"
            )
        begin = place.offset
        return replace(found, offset=found.offset + begin, storage_offset=found.storage_offset + begin)

    def _window(self, place: Place) -> Window:
        first = max(bisect_right(self._starts, place.offset) - 1, 0)
        last = bisect_right(self._starts, place.offset + place.length)
        return Window(self._files, self._file, place.offset, place.length, self._ahead[first:last])

    def _blob(self, offset: int) -> Structure:
        """The safetensors file that reaches from there to the file's end."""
        if offset not in self._blobs:
            rest = self._files.size(self._file) - offset
            self._blobs[offset] = read_safetensors(Window(self._files, self._file, offset, rest), self._file)
        return self._blobs[offset]


def _words(files: Files, known: Metadata) -> dict[str, Any]:
    """args and step, from items at the top or one level below. What can't be read adds nothing."""
    wanted = {
        key: place
        for key, place in known.items.items()
        if place.length <= _MAX_WORD and not place.transformed and _is_word(known.path(key))
    }
    values: dict[str, Any] = {}
    ranges: dict[str, list[tuple[int, int]]] = {}
    for place in list(wanted.values())[:_MAX_WORDS]:
        ranges.setdefault(place.file, []).append((place.offset, place.length))
    ahead = {file: read_ahead(files, file, parts) for file, parts in ranges.items()}
    for key, place in list(wanted.items())[:_MAX_WORDS]:
        try:
            window = Window(files, place.file, place.offset, place.length, ahead[place.file])
            values[key] = read_root(window, place.file, _TAIL)[0]
        except CheckpointError:
            continue
    values.update(_scalar_steps(files, known))
    root = _tree(known, values)
    found = words(root, known.name)
    for key, inner in root.items():
        if isinstance(inner, dict) and not NOT_MODEL.match(key) and key not in NAMESPACES:
            below = words(inner, known.name, f"{key}.")
            for word in ("args", "step"):
                if found[word] is None and below[word] is not None:
                    found[word], found["sources"][word] = below[word], below["sources"][word]
    return found


def _scalar_steps(files: Files, known: Metadata) -> dict[str, int]:
    """Step counters that are whole numbers in tensors without dimensions."""
    found: dict[str, int] = {}
    for key, entry in known.tensors.items():
        path = known.path(key)
        if entry.shape != () or path[-1] not in STEPS or len(path) > 2 or NOT_MODEL.match(path[0]):
            continue
        try:
            info = _tensor_infos(files, {key: entry})[key]
            if info.dtype in ("I64", "I32"):
                found[key] = int.from_bytes(files.read(info.file, info.offset, info.nbytes), "little", signed=True)
        except CheckpointError:
            continue
    return found


def _is_word(path: tuple[str, ...]) -> bool:
    if NOT_MODEL.match(path[0]) or path[0] in NAMESPACES:
        return False
    return path[0] in (*ARGS, *STEPS) or (len(path) > 1 and path[1] in (*ARGS, *STEPS))
