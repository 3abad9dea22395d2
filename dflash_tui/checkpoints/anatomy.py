"""What a checkpoint's bytes are: the drafter, the frozen pair of its target, the optimizer, and the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from dflash_tui.checkpoints.errors import CheckpointError, CheckpointIncomplete, CheckpointUnsupported
from dflash_tui.checkpoints.family import DRAFT_TO_TARGET, EMBEDDING, HEAD, TARGET_TO_DRAFT, Family, family_of
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.identity import own_names
from dflash_tui.checkpoints.keys import canonical_name, canonical_tensors
from dflash_tui.checkpoints.namespace import model_entries
from dflash_tui.checkpoints.opening import is_dcp, read_structure
from dflash_tui.checkpoints.pickles import Opaque, Storage, Tensor
from dflash_tui.checkpoints.sentences import shown
from dflash_tui.checkpoints.slim_extras import Keeping
from dflash_tui.checkpoints.statedict import ARGS, storage_nbytes
from dflash_tui.checkpoints.structure import Structure

Kind = Literal["drafter", "embedding", "head", "verifier", "optimizer", "state", "other"]
KINDS: tuple[Kind, ...] = ("drafter", "embedding", "head", "verifier", "optimizer", "state", "other")

FRAME = "headers and padding"
"""Name of the piece that is no content of anybody's."""

_OPTIMIZER = re.compile(r"optim|adam|zero_pp_rank", re.I)
_STATE = re.compile(
    r"sched|(^|[_.-])(rng|ema|amp|random|grad)|scaler|rank_?\d|train(ing|er)?_state|_extra_state$|data_?loader|sampler",
    re.I,
)
_VERIFIER = re.compile(r"^(verifier|teacher|target_model)", re.I)
_OBJECTS = "objects that can't be looked into"


@dataclass(frozen=True)
class Piece:
    """A part of the checkpoint: a stored tensor by its raw name, a top-level entry of its file, or another file.

    Bytes that several tensors share count for the first of them.
    """

    name: str
    nbytes: int
    kind: Kind


@dataclass(frozen=True)
class Anatomy:
    """`total` bytes in all of the checkpoint's files, and what they are. `structure` is None where it can't be read;
    `problem` says why, or why its names can't be told apart; `incomplete` where a file ends too early. `tensors` are
    pieces of the model, `entries` what else the file with the weights holds, `files` those beside it. `extras` are
    top-level entries that are plain data, by their own keys, `kept` the names that these have among `entries`, and
    `changed` says where one is not as it was saved. `unknown` are tensors in `entries` that may be anything."""

    total: int
    structure: Structure | None
    problem: str
    family: Family
    tensors: tuple[Piece, ...]
    entries: tuple[Piece, ...]
    files: tuple[Piece, ...]
    extras: Mapping[Any, Any] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    changed: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[Piece, ...] = ()
    incomplete: bool = False

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All of them, in the order tensors, entries, files."""
        return self.tensors + self.entries + self.files

    @property
    def weights(self) -> int:
        """Bytes of the drafter's own tensors: what an evaluation can't do without."""
        return self.nbytes("drafter")

    def nbytes(self, kind: Kind) -> int:
        """Bytes of all pieces of a kind."""
        return sum(piece.nbytes for piece in self.pieces if piece.kind == kind)


def read_anatomy(files: Files) -> Anatomy:
    """What the checkpoint that these files are consists of. What can't be read as a checkpoint has its files as
    pieces, and a `problem`. Raises only what the backing raises."""
    sizes = {name: files.size(name) for name in files.names()}
    total = sum(sizes.values())
    try:
        structure = read_structure(files)
    except CheckpointError as error:
        incomplete = isinstance(error, CheckpointIncomplete)
        return Anatomy(total, None, str(error), "unknown", (), (), _files(sizes), incomplete=incomplete)
    try:
        kinds, family, problem = *_kinds(structure), ""
    except CheckpointUnsupported as error:
        kinds, family, problem = {}, "unknown", str(error)
    tensors = tuple(_tensors(structure, kinds))
    found = _items(structure) if is_dcp(structure.files[0]) else _entries(structure)
    entries = tuple(found.pieces)
    own = sum(sizes.get(name, 0) for name in structure.files)
    frame = own - sum(piece.nbytes for piece in (*tensors, *entries))
    if frame > 0:
        entries = (*entries, Piece(FRAME, frame, "other"))
    beside = {name: size for name, size in sizes.items() if name not in structure.files}
    return Anatomy(
        total, structure, problem, family, tensors, entries, _files(beside),
        found.extras, frozenset(found.kept), found.changed, tuple(found.unknown),
    )  # fmt: skip


def kind_of_entry(name: str) -> Kind:
    """What a top-level entry or a file beside the weights is, told from its name."""
    if _OPTIMIZER.search(name):
        return "optimizer"
    if _VERIFIER.search(name):
        return "verifier"
    return "state" if _STATE.search(name) else "other"


@dataclass
class _Found:
    """What lies beside the model's tensors, as it is collected."""

    pieces: list[Piece] = field(default_factory=list)
    extras: dict[Any, Any] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    changed: dict[str, str] = field(default_factory=dict)
    unknown: list[Piece] = field(default_factory=list)


def _files(sizes: Mapping[str, int]) -> tuple[Piece, ...]:
    return tuple(Piece(name, size, kind_of_entry(name)) for name, size in sizes.items())


def _kinds(structure: Structure) -> tuple[dict[str, Kind], Family]:
    """Kind of each stored tensor by its raw name. Raises CheckpointUnsupported when names collide."""
    parts = canonical_tensors(structure)
    own = set(own_names(parts))
    reduced = DRAFT_TO_TARGET in parts or TARGET_TO_DRAFT in parts
    by_name: dict[str, Kind] = {name: _kind(name, own, reduced) for name in parts}
    kinds: dict[str, Kind] = {}
    for name, part in parts.items():
        kinds[part.info.name] = by_name[name]
    for raw in structure.tensors:
        kinds.setdefault(raw, by_name.get(canonical_name(raw), "other"))
    return kinds, family_of(parts)


def _kind(name: str, own: set[str], reduced: bool) -> Kind:
    if name in own or (name == HEAD and reduced):
        return "drafter"
    if name in (EMBEDDING, HEAD):
        return "embedding" if name == EMBEDDING else "head"
    return "verifier" if name.startswith("verifier_") else "other"


def _tensors(structure: Structure, kinds: Mapping[str, Kind]) -> Iterable[Piece]:
    seen: set[tuple[object, ...]] = set()
    for raw, info in structure.tensors.items():
        place = (info.file, info.offset, info.shape, info.strides, info.dtype, info.pieces)
        yield Piece(raw, 0 if place in seen else info.nbytes, kinds.get(raw, "other"))
        seen.add(place)


def _entries(structure: Structure) -> _Found:
    """What a torch file holds beside the model's tensors, by top-level key."""
    found = _Found()
    root = structure.root
    if not isinstance(root, dict):
        return found
    namespace = structure.namespace
    top, model = model_entries(root, namespace)
    around = root[top] if top != namespace and top in root else {}
    tensors = {
        name: value for name, value in model.items() if isinstance(value, Tensor) and str(name) in structure.tensors
    }
    storages = {tensor.storage.key for tensor in tensors.values()}
    views = {_view(tensor) for tensor in tensors.values()}
    beside = {key: value for key, value in root.items() if (key != top if namespace else key not in tensors)}
    outer = {key: value for key, value in around.items() if value is not model}
    within = {key: value for key, value in model.items() if key not in tensors} if namespace else {}
    opaque: list[tuple[str, Kind]] = []
    for name, value in (*_named(beside, ""), *_named(outer, f"{top}."), *_named(within, f"{namespace}.")):
        kind = kind_of_entry(name)
        found.pieces.append(Piece(name, _storages(value, storages), kind))
        if kind == "other" and (nbytes := _unknown(name, value, views)):
            found.unknown.append(Piece(name, nbytes, kind))
        if name not in ARGS and _has_objects(value):
            opaque.append((name, kind))
    for key, value in beside.items():
        _keep(found, key, value)
    hidden = sum(nbytes for key, nbytes in _stored(structure) if key not in storages)
    if hidden:
        known = next((kind for _, kind in opaque), None) if all(kind != "other" for _, kind in opaque) else None
        piece = Piece(_OBJECTS, hidden, known or "other")
        found.pieces.append(piece)
        found.unknown += [] if known else [piece]
    return found


def _named(entries: Mapping[Any, Any], prefix: str) -> Iterable[tuple[str, Any]]:
    return ((f"{prefix}{_name(key)}", value) for key, value in entries.items())


def _name(key: Any) -> str:
    return key if isinstance(key, str) else f"key {shown(key)}"


def _keep(found: _Found, key: Any, value: Any) -> None:
    """Take an entry along as plain data, unless it is state, or an object that only its own class could read back."""
    name = _name(key)
    kind = kind_of_entry(name)
    if isinstance(value, (dict, list, tuple)) and kind in ("optimizer", "state"):
        return
    if isinstance(key, Opaque):
        return
    keeping = Keeping(name)
    told = key in ARGS and (isinstance(value, dict) or (isinstance(value, Opaque) and value.state is not None))
    if isinstance(value, (Opaque, Tensor, Storage)) and not told:
        return
    words = keeping.keep(value)
    if keeping.changed and not told:
        return
    found.extras[key] = words
    found.kept.add(name)
    found.changed.update(keeping.changed)


def _stored(structure: Structure) -> Iterable[tuple[str, int]]:
    """(storage's key, bytes) of all that a torch file stores."""
    for _, record, nbytes, _ in structure.directory:
        if structure.container == "torch legacy":
            yield record.partition(" ")[0], nbytes
        elif "/data/" in f"/{record}":
            yield f"/{record}".rpartition("/data/")[2], nbytes


def _view(tensor: Tensor) -> tuple[object, ...]:
    return tensor.storage.key, tensor.offset, tensor.shape, tensor.strides


def _unknown(name: str, value: Any, views: set[tuple[object, ...]]) -> int:
    """Bytes of tensors that are none of the model's and that nothing is said of by the names that lead to them."""
    nbytes = 0
    visited: set[int] = set()
    pending: list[tuple[str, Any]] = [(name, value)]
    while pending:
        name, item = pending.pop()
        if kind_of_entry(name) != "other" or (isinstance(item, Tensor) and _view(item) in views):
            continue
        if isinstance(item, Tensor):
            width = (storage_nbytes(item.storage) or 0) // max(item.storage.count, 1)
            nbytes += prod(item.shape) * max(width, 1)
        elif isinstance(item, Storage):
            nbytes += storage_nbytes(item) or 0
        elif isinstance(item, (dict, list, tuple, Opaque)) and id(item) not in visited:
            visited.add(id(item))
            pending.extend((str(key) if isinstance(key, str) else "", part) for key, part in _within(item))
    return nbytes


def _within(item: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(item, Opaque):
        return [("", item.state), ("", item.parts)]
    return item.items() if isinstance(item, dict) else (("", part) for part in item)


def _has_objects(value: Any) -> bool:
    """Whether it reaches an object of which it isn't known what it was made from."""
    visited: set[int] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Opaque) and item.state is None and item.parts is None:
            return True
        if isinstance(item, (dict, list, tuple, Opaque)) and id(item) not in visited:
            visited.add(id(item))
            pending.extend(part for _, part in _within(item))
    return False


def _items(structure: Structure) -> _Found:
    """What a DCP folder holds beside the model's tensors: its items' archives, summed up by the key they are under."""
    within = f"{structure.namespace}." if structure.namespace else ""
    depth = max(1, within.count("."))
    extras = {
        word: value
        for word, value in (("step", structure.step), ("args", structure.args))
        if value is not None and _is_within(structure, word)
    }
    told = {structure.sources[word].partition(": ")[2] for word in extras}
    sums: dict[str, int] = {}
    for _, record, nbytes, _ in structure.directory:
        key = record.partition(" ")[2]
        top = ".".join(key.split(".")[:depth])
        is_model = key.startswith(within) and key[len(within) :] in structure.tensors
        if not is_model and top not in told:
            sums[top] = sums.get(top, 0) + nbytes
    pieces = [Piece(name, nbytes, kind_of_entry(name)) for name, nbytes in sums.items()]
    return _Found(pieces, extras, set(extras), {}, [piece for piece in pieces if piece.kind == "other"])


def _is_within(structure: Structure, word: str) -> bool:
    """Whether the files of the weights themselves say it, and none beside them."""
    return structure.sources.get(word, "").partition(": ")[0] in structure.files


def _storages(value: Any, seen: set[str]) -> int:
    """Bytes of the storages that a value reaches and that are not in `seen`, to which they are added."""
    nbytes = 0
    visited: set[int] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Tensor):
            item = item.storage
        if isinstance(item, Storage):
            if item.key not in seen:
                seen.add(item.key)
                nbytes += storage_nbytes(item) or 0
        elif isinstance(item, (dict, list, tuple, Opaque)) and id(item) not in visited:
            visited.add(id(item))
            if isinstance(item, dict):
                pending.extend(item.values())
            else:
                pending.extend((item.state,) if isinstance(item, Opaque) else item)
    return nbytes
