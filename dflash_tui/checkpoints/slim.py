"""A checkpoint without what an evaluation never reads: its optimizer, and a frozen pair that its target has anyway."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from dflash_tui.checkpoints.anatomy import FRAME, Anatomy, Kind, Piece
from dflash_tui.checkpoints.errors import CheckpointIncomplete, CheckpointUnsupported
from dflash_tui.checkpoints.family import EMBEDDING, HEAD, Family, body_keys, layer_count
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.keys import canonical_name, canonical_tensors
from dflash_tui.checkpoints.opening import is_dcp
from dflash_tui.checkpoints.segments import Output
from dflash_tui.checkpoints.slim_safetensors import safetensors_output
from dflash_tui.checkpoints.slim_torch import torch_output, unused
from dflash_tui.checkpoints.statedict import NAMESPACES
from dflash_tui.checkpoints.structure import Structure

LEAVABLE = frozenset((EMBEDDING, HEAD))
_NEVER_READ = "verifier_lm_head.weight"
_INDEX = ".index.json"

_HEADERS, _FRAME = 512, 1 << 14  # bytes that a new file may spend on each tensor and on itself
_UNKNOWN = 1 << 16  # bytes of tensors of unknown use that may be left: counters and averages, no weights

_WHY: dict[Kind, str] = {
    "optimizer": "optimizer state, of use to the training alone",
    "state": "state of the training, of use to it alone",
    "other": "not plain data, and of no use that is known here",
    "embedding": "frozen: the target has the same",
    "head": "frozen: the target has the same",
    "verifier": "the target's own, which an evaluation takes from the target",
}
_WORDS: tuple[tuple[Kind, str], ...] = (
    ("optimizer", "optimizer"), ("state", "training state"), ("verifier", "verifier_lm_head"), ("other", "other data"),
)  # fmt: skip
_UNITS = ((10**9, "GB", 2), (10**6, "MB", 1), (10**3, "kB", 1))


@dataclass(frozen=True)
class Left:
    """What is not in the slim copy, its bytes in the source, and why it isn't needed."""

    name: str
    nbytes: int
    kind: Kind
    why: str


@dataclass(frozen=True)
class Slim:
    """The slim copy of the file (or shards) with the weights. `left` is empty where leaving out would save nothing:
    then the source is better copied whole. `total` is the bytes of the source's files that it stands for. `changed`
    says of small plain data that is kept what is not as it is in the source."""

    output: Output
    kept: tuple[Piece, ...]
    left: tuple[Left, ...]
    total: int
    step: int | None = None
    changed: Mapping[str, str] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """Like "3.46 of 15.47 GB: drafter; optimizer, frozen embed/lm_head left"."""
        left = left_words(item for item in self.left if item.nbytes)
        return f"{portion(self.output.size, self.total)}: {kept_words(self.kept)}; {left} left"


def slim(files: Files, anatomy: Anatomy, leave: frozenset[str]) -> Slim:
    """The slim copy. `leave` names those of LEAVABLE that were found equal to the target's; a reduced vocabulary's own
    head stays in whatever it says.

    All other tensors of the model are kept under their raw names, with step, epoch, arguments and other small plain
    data. Raises CheckpointUnsupported when the checkpoint can't be taken apart, when its model is no whole drafter that
    is known, or when it is not known what would be left: then it is copied whole; and CheckpointIncomplete when it is
    cut or still being written: then it isn't copied at all.
    """
    structure = _readable(anatomy)
    where = structure.files[0]
    if anatomy.problem:
        raise CheckpointUnsupported(anatomy.problem)
    if anatomy.family == "unknown":
        raise CheckpointUnsupported(f"{where}: its tensors are of no drafter that is known here, all else might be one")
    absent = _missing(anatomy.family, canonical_tensors(structure))
    if absent:
        raise CheckpointUnsupported(
            f"{where}: {len(absent)} tensors of a {anatomy.family} drafter are missing among its model's, first "
            f"{absent[0]}; they may be elsewhere in it"
        )
    unknown = {piece.name: piece.nbytes for piece in anatomy.unknown}
    if sum(unknown.values()) > _UNKNOWN:
        largest = max(unknown, key=lambda name: unknown[name])
        raise CheckpointUnsupported(
            f"{where}: {largest} holds {unknown[largest]:,} bytes of which it is not known whether an evaluation needs "
            "them"
        )
    return without(files, anatomy, leave)


def without(files: Files, anatomy: Anatomy, leave: frozenset[str]) -> Slim:
    """As `slim`, of a model of any kind: all tensors of whatever is taken for the model are kept, and only those."""
    structure = _readable(anatomy)
    left = [_left(piece) for piece in anatomy.tensors if _is_left(piece, leave)]
    away = {item.name for item in left}
    kept = tuple(piece for piece in anatomy.tensors if piece.name not in away)
    if not kept:
        raise CheckpointUnsupported(f"{structure.files[0]}: no tensor would be kept in a slim copy")
    tensors = {piece.name: structure.tensors[piece.name] for piece in kept}
    name = _output_name(structure)
    stays = set(anatomy.kept)
    if structure.container.startswith("safetensors"):
        sources = [file for file in structure.files if not file.endswith(_INDEX)]
        output = safetensors_output(files, name, tensors, sources)
    else:
        space = _namespace(structure)
        taken = {space} if space else set(tensors)
        extras = {key: value for key, value in anatomy.extras.items() if key not in taken}
        output = torch_output(name, tensors, structure.files, space, extras)
        stays -= taken
    left += [_left(piece) for piece in anatomy.entries if piece.name != FRAME and piece.name not in stays]
    spare = unused(structure.tensors)
    if spare:
        left.append(Left("parts of storages", spare, "other", "no tensor of the model uses them"))
    total = sum(files.size(file) for file in structure.files)
    if output.size > total + len(tensors) * _HEADERS + _FRAME:
        raise CheckpointUnsupported(
            f"{structure.files[0]}: a slim copy would have {output.size} bytes, more than the {total} of its files, of "
            "which some are then several tensors at once"
        )
    if output.size >= total or not any(item.nbytes for item in left):
        left = []
    return Slim(output, kept, tuple(left), total, structure.step, anatomy.changed)


def _readable(anatomy: Anatomy) -> Structure:
    if anatomy.incomplete:
        raise CheckpointIncomplete(anatomy.problem)
    if anatomy.structure is None:
        raise CheckpointUnsupported(f"no slim copy can be made: {anatomy.problem}")
    return anatomy.structure


def portion(part: int, whole: int) -> str:
    """Like "3.46 of 15.47 GB", both in the unit of the whole."""
    for unit, name, digits in _UNITS:
        if whole >= unit:
            return f"{part / unit:.{digits}f} of {whole / unit:.{digits}f} {name}"
    return f"{part} of {whole} bytes"


def left_words(left: Iterable[Left]) -> str:
    """Like "optimizer, frozen embed/lm_head"; "nothing"."""
    items = list(left)
    kinds = {item.kind for item in items}
    words = [word for kind, word in _WORDS if kind in kinds]
    if any(item.kind == "verifier" and not item.name.endswith(_NEVER_READ) for item in items):
        words[words.index("verifier_lm_head")] = "verifier"
    frozen = [word for kind, word in (("embedding", "embed"), ("head", "lm_head")) if kind in kinds]
    if frozen:
        words.append(f"frozen {'/'.join(frozen)}")
    return ", ".join(words) or "nothing"


def kept_words(kept: Iterable[Piece]) -> str:
    """Like "drafter, embed_tokens"."""
    kinds = {piece.kind for piece in kept}
    words = (("drafter", "drafter"), ("embedding", "embed_tokens"), ("head", "lm_head"), ("verifier", "verifier norm"))
    return ", ".join(word for kind, word in words if kind in kinds) or "its tensors"


def _is_left(piece: Piece, leave: frozenset[str]) -> bool:
    name = canonical_name(piece.name)
    return name == _NEVER_READ or (piece.kind in ("embedding", "head") and name in leave & LEAVABLE)


def _missing(family: Family, names: Collection[str]) -> list[str]:
    """Names that a drafter of the family must have and this one has not. An Eagle drafter has no norms of its heads."""
    layers = layer_count(names)
    if not layers:
        return ["layers.0"]
    needed = body_keys(family, layers, names)
    if family == "eagle":
        needed = [name for name in needed if name == "fc.weight" or name.endswith("_proj.weight")]
    return [name for name in needed if name not in names]


def _left(piece: Piece) -> Left:
    return Left(piece.name, piece.nbytes, piece.kind, _WHY.get(piece.kind, ""))


def _output_name(structure: Structure) -> str:
    """The source's own name; shards become the one file that their index is named after, a DCP folder checkpoint.pt."""
    first = structure.files[0]
    if is_dcp(first):
        return "checkpoint.pt"
    return first[: -len(_INDEX)] if first.endswith(_INDEX) else first


def _namespace(structure: Structure) -> str:
    """The key that readers will find the model under: the source's, or the one that stands for its nested ones."""
    if not structure.namespace:
        return ""
    if isinstance(structure.root, dict) and structure.namespace in structure.root:
        return structure.namespace
    last = structure.namespace.rpartition(".")[2]
    return last if last in NAMESPACES else "model"
