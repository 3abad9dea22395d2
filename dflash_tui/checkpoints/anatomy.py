"""What a checkpoint's bytes are: the drafter, the frozen pair of its target, the optimizer, and the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dflash_tui.checkpoints.errors import CheckpointError, CheckpointIncomplete, CheckpointUnsupported
from dflash_tui.checkpoints.family import DRAFT_TO_TARGET, EMBEDDING, HEAD, TARGET_TO_DRAFT, Family, family_of
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.identity import own_names
from dflash_tui.checkpoints.keys import canonical_name, canonical_tensors
from dflash_tui.checkpoints.opening import is_dcp, read_structure
from dflash_tui.checkpoints.pickles import Opaque, Storage, Tensor, plain
from dflash_tui.checkpoints.pickling import MAX_INT_BITS
from dflash_tui.checkpoints.statedict import ARGS, storage_nbytes
from dflash_tui.checkpoints.structure import Structure

Kind = Literal["drafter", "embedding", "head", "verifier", "optimizer", "state", "other"]
KINDS: tuple[Kind, ...] = ("drafter", "embedding", "head", "verifier", "optimizer", "state", "other")

FRAME = "headers and padding"
"""Name of the piece that is no content of anybody's."""

_OPTIMIZER = re.compile(r"optim|adam|zero_pp_rank", re.I)
_STATE = re.compile(r"sched|(^|[_.-])(rng|ema|amp|random|grad)|scaler|rank_?\d|train(ing|er)_state", re.I)
_MAX_ITEMS, _MAX_TEXT, _MAX_DEPTH = 2000, 1 << 16, 12


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
    top-level entries that are small plain data."""

    total: int
    structure: Structure | None
    problem: str
    family: Family
    tensors: tuple[Piece, ...]
    entries: tuple[Piece, ...]
    files: tuple[Piece, ...]
    extras: Mapping[str, Any] = field(default_factory=dict)
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
    entries, extras = _items(structure) if is_dcp(structure.files[0]) else _entries(structure)
    own = sum(sizes.get(name, 0) for name in structure.files)
    frame = own - sum(piece.nbytes for piece in (*tensors, *entries))
    if frame > 0:
        entries = (*entries, Piece(FRAME, frame, "other"))
    beside = {name: size for name, size in sizes.items() if name not in structure.files}
    return Anatomy(total, structure, problem, family, tensors, entries, _files(beside), extras)


def kind_of_entry(name: str) -> Kind:
    """What a top-level entry or a file beside the weights is, told from its name."""
    if _OPTIMIZER.search(name):
        return "optimizer"
    return "state" if _STATE.search(name) else "other"


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


def _entries(structure: Structure) -> tuple[tuple[Piece, ...], dict[str, Any]]:
    """What a torch file holds beside the model's tensors, by top-level key: (pieces, those that are plain data)."""
    root = structure.root
    if not isinstance(root, dict):
        return (), {}
    namespace = structure.namespace
    model = root[namespace] if namespace else root
    seen = {
        value.storage.key
        for name, value in model.items()
        if isinstance(value, Tensor) and str(name) in structure.tensors
    }
    pieces: list[Piece] = []
    extras: dict[str, Any] = {}
    for key, value in root.items():
        name = str(key)
        if (namespace and key == namespace) or (not namespace and name in structure.tensors):
            continue
        kind = kind_of_entry(name)
        nbytes = _storages(value, seen)
        pieces.append(Piece(name, nbytes, "state" if nbytes and kind == "other" else kind))
        kept = _extra(name, value, kind)
        if kept is not None or value is None:
            extras[name] = kept
    return tuple(pieces), extras


def _items(structure: Structure) -> tuple[tuple[Piece, ...], dict[str, Any]]:
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
    return tuple(Piece(name, nbytes, kind_of_entry(name)) for name, nbytes in sums.items()), extras


def _is_within(structure: Structure, word: str) -> bool:
    """Whether the files of the weights themselves say it, and none beside them."""
    return structure.sources.get(word, "").partition(": ")[0] in structure.files


def _extra(name: str, value: Any, kind: Kind) -> Any:
    """The entry as plain data; None where it is state, or an object that only its own class could read back."""
    if isinstance(value, (dict, list, tuple)) and kind in ("optimizer", "state"):
        return None
    if _is_plain(value, [_MAX_ITEMS, _MAX_TEXT], _MAX_DEPTH):
        return value
    if name in ARGS and (isinstance(value, dict) or (isinstance(value, Opaque) and value.state is not None)):
        words = plain(value, _MAX_ITEMS)
        return words if _is_plain(words, [2 * _MAX_ITEMS, 1 << 24], _MAX_DEPTH + 2) else None
    return None


def _is_plain(value: Any, budget: list[int], depth: int) -> bool:
    """Whether a value is small data without objects; `budget` is [items, characters] that it may still have."""
    budget[0] -= 1
    if budget[0] < 0 or depth < 0:
        return False
    if isinstance(value, str):
        budget[1] -= len(value)
        return budget[1] >= 0
    if value is None or isinstance(value, (bool, float)):
        return True
    if isinstance(value, int):
        return value.bit_length() <= MAX_INT_BITS
    if isinstance(value, dict):
        parts: Iterable[Any] = (part for item in value.items() for part in item)
        return all(not isinstance(key, tuple) for key in value) and _all_plain(parts, budget, depth)
    return isinstance(value, (list, tuple)) and _all_plain(value, budget, depth)


def _all_plain(values: Iterable[Any], budget: list[int], depth: int) -> bool:
    return all(_is_plain(value, budget, depth - 1) for value in values)


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
