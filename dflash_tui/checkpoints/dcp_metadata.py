"""What the `.metadata` of a torch.distributed.checkpoint folder says: its tensors, their chunks, and where each lies.

A pickle of the dataclasses of `torch.distributed.checkpoint.metadata`: `state_dict_metadata` has each tensor's dtype,
shape and chunks by key; `storage_data` a file, an offset and a length for each chunk; `planner_data` the path in the
trainer's nested dict whose parts, joined by dots, are a key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointIncomplete, CheckpointUnsupported, guarded
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.pickles import MAX_BYTES, Global, Opaque, read_pickle
from dflash_tui.checkpoints.sentences import shown
from dflash_tui.checkpoints.statedict import NAMESPACES, NOT_MODEL

METADATA = ".metadata"
"""Name of the file that describes a folder; its writer renames it into place when all else is there."""

_ROOM = "torch.distributed.checkpoint."
_MAX_DEPTH = 32
_MAX_NAME = 8192  # characters of a key and its file


@dataclass(frozen=True)
class Place:
    """Where a chunk or an item lies: a range of a file, of `transformed` bytes if the writer compressed it."""

    file: str
    offset: int
    length: int
    transformed: bool


@dataclass(frozen=True)
class Chunk:
    """A box of a tensor (first index and size along each dimension) and its place."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    place: Place


@dataclass(frozen=True)
class Entry:
    """A tensor of the folder. `dtype` is torch's name for it."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class Metadata:
    """What `.metadata` says, by key: tensors, other items, and the paths of keys that aren't their own."""

    name: str
    tensors: Mapping[str, Entry]
    items: Mapping[str, Place]
    paths: Mapping[str, tuple[str, ...]]

    def path(self, key: str) -> tuple[str, ...]:
        """Where the key was in the trainer's nested dict."""
        return self.paths.get(key, (key,))


@guarded
def read_metadata(files: Files, name: str) -> Metadata:
    """Read the description of a folder. Raises CheckpointIncomplete, CheckpointDamaged, CheckpointUnsupported."""
    size = files.size(name)
    if size > MAX_BYTES:
        raise CheckpointUnsupported(f"{name}: {size} bytes; more than {MAX_BYTES} are not read")
    if size == 0:
        raise CheckpointIncomplete(f"{name}: is empty; still being written?")
    root = read_pickle(files.read(name, 0, size), name)
    if not isinstance(root, Opaque) or not root.name.startswith(_ROOM) or root.state is None:
        raise CheckpointDamaged(f"{name}: not the description of a torch.distributed.checkpoint folder")
    described, stored = root.state.get("state_dict_metadata"), root.state.get("storage_data")
    if not isinstance(described, dict) or not isinstance(stored, dict):
        raise CheckpointUnsupported(f"{name}: doesn't say where its tensors lie; was it written by another storage?")
    folder = name[: -len(name.rpartition("/")[2])]
    places = _stored_places(name, folder, stored)
    tensors: dict[str, Entry] = {}
    items: dict[str, Place] = {}
    for key, item in described.items():
        if not isinstance(key, str) or not isinstance(item, Opaque):
            continue
        if item.state is not None and "chunks" in item.state:
            tensors[key] = _entry(name, key, item.state, places)
        elif (key, None) in places:
            items[key] = places[key, None]
    said = root.state.get("planner_data")
    paths = _paths(said) if isinstance(said, dict) else {}
    return Metadata(name, tensors, items, paths or _guessed_paths(list(tensors), list(items)))


def _stored_places(
    name: str, folder: str, stored: Mapping[Any, Any]
) -> dict[tuple[str, tuple[int, ...] | None], Place]:
    """(key, first index or None) → where it lies."""
    places: dict[tuple[str, tuple[int, ...] | None], Place] = {}
    for index, info in stored.items():
        where, what = _state(index), _state(info)
        key, first = where.get("fqn"), where.get("offset")
        file, offset, length = what.get("relative_path"), what.get("offset"), what.get("length")
        if not isinstance(key, str) or not isinstance(file, str) or not _is_natural(offset) or not _is_natural(length):
            raise CheckpointDamaged(f"{name}: an entry of storage_data is not readable")
        if len(key) + len(file) > _MAX_NAME:
            raise CheckpointUnsupported(f"{name}: a key or a file name of more than {_MAX_NAME} characters")
        if file.startswith("/") or ".." in file.split("/"):
            raise CheckpointDamaged(f"{name}: {key} lies in {shown(file)}, outside its folder")
        begins = None if first is None else _naturals(first)
        place = Place(folder + file, offset, length, bool(what.get("transform_descriptors")))
        places[key, begins] = place
        if begins is not None and not any(begins):
            places.setdefault((key, None), place)
    return places


def _entry(
    name: str, key: str, state: Mapping[Any, Any], places: Mapping[tuple[str, tuple[int, ...] | None], Place]
) -> Entry:
    properties, shape = state.get("properties"), _naturals(state.get("size"))
    said: Any = properties.parts[0] if isinstance(properties, Opaque) and properties.parts else None
    if said is None:
        said = _state(properties).get("dtype")
    if shape is None or not isinstance(said, Global) or not isinstance(state.get("chunks"), list):
        raise CheckpointDamaged(f"{name}: {key}: its dtype, shape or chunks are not readable")
    chunks: list[Chunk] = []
    for item in state["chunks"]:
        offsets, sizes = _naturals(_state(item).get("offsets")), _naturals(_state(item).get("sizes"))
        if offsets is None or sizes is None or not len(offsets) == len(sizes) == len(shape):
            raise CheckpointDamaged(f"{name}: {key}: a chunk of it is not readable")
        place = places.get((key, offsets))
        if place is None and len(state["chunks"]) == 1:
            place = places.get((key, None))
        if place is None:
            raise CheckpointDamaged(f"{name}: {key}: nothing says where its chunk at {offsets} lies")
        chunks.append(Chunk(offsets, sizes, place))
    return Entry(key, said.name, shape, tuple(chunks))


def _paths(said: Mapping[Any, Any]) -> dict[str, tuple[str, ...]]:
    return {
        key: tuple(str(part) for part in path)
        for key, path in said.items()
        if isinstance(key, str)
        and isinstance(path, tuple)
        and 0 < len(path) <= _MAX_DEPTH
        and all(isinstance(part, str) or _is_natural(part) for part in path)
    }


def _guessed_paths(tensors: Sequence[str], items: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Paths of keys that were joined before they were saved: under the one namespace that all the model's share."""
    model = [key for key in tensors if not any(NOT_MODEL.match(part) for part in key.split(".")[:2])]
    for depth in (1, 2):
        heads = {tuple(key.split(".")[:depth]) for key in model}
        if len(heads) == 1 and heads.pop()[-1] in NAMESPACES:
            return {key: tuple(key.split(".", depth)) for key in (*tensors, *items)}
    return {}


@guarded
def shard_extents(files: Files, metadata: str = METADATA) -> dict[str, int]:
    """The bytes that each data file of a DCP folder has at least, from its description alone; exact where chunks are
    torch.save archives. Raises CheckpointError."""
    extents: dict[str, int] = {}
    for _, place in directory(read_metadata(files, metadata)):
        extents[place.file] = max(extents.get(place.file, 0), place.offset + place.length)
    return extents


def directory(known: Metadata) -> list[tuple[str, Place]]:
    """Every chunk and item as (key, place), in the order of the files."""
    found = [(entry.key, chunk.place) for entry in known.tensors.values() for chunk in entry.chunks]
    found.extend(known.items.items())
    return sorted(found, key=lambda item: (item[1].file, item[1].offset, item[0]))


def _state(value: Any) -> Mapping[Any, Any]:
    return value.state if isinstance(value, Opaque) and value.state is not None else {}


def _is_natural(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 62


def _naturals(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, (tuple, list)) and len(value) <= 16 and all(_is_natural(item) for item in value):
        return tuple(value)
    return None
