"""Which weights these are, whatever file they lie in: a hash of names, dtypes, shapes and logical bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dflash_tui.checkpoints.content import logical_bytes
from dflash_tui.checkpoints.errors import TargetUnknown
from dflash_tui.checkpoints.family import (
    DRAFT_TO_TARGET,
    EMBEDDING,
    HEAD,
    KNOWN_EXTRAS,
    TARGET_TO_DRAFT,
    body_keys,
    family_of,
    is_rotary_buffer,
    layer_count,
)
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.keys import Part, canonical_tensors
from dflash_tui.checkpoints.structure import DirectoryLine, Structure

Stored = Literal["target", "equal", "own"]


@dataclass(frozen=True)
class WeightsId:
    """`sha256` (hex) is the identity; `embedding` and `head` say whose is used: "target" (none stored), "equal"
    (stored, the target's bytes), "own" (stored and different, or a reduced vocabulary's: part of the identity)."""

    sha256: str
    embedding: Stored
    head: Stored
    tensors: tuple[str, ...]


def weights_id(
    structure: Structure, files: Files, *, target_embedding: str | None, target_head: str | None
) -> WeightsId:
    """Identity of the weights: SHA-256 over sorted lines of name, dtype, dims joined by x and SHA-256 of the bytes.

    `target_embedding`, `target_head` are the SHA-256 hex of the logical bytes of the target's own pair (None when not
    known). Reads every tensor that counts once, in bounded memory. Raises TargetUnknown when one is stored and can't
    be compared, CheckpointUnsupported (names collide), CheckpointError (reading).
    """
    parts = canonical_tensors(structure)
    reduced = DRAFT_TO_TARGET in parts or TARGET_TO_DRAFT in parts
    hashes = {name: part_sha256(files, parts[name]) for name in own_names(parts)}
    states: dict[str, Stored] = {}
    for name, target in ((EMBEDDING, target_embedding), (HEAD, target_head)):
        if name not in parts:
            states[name] = "target"
            continue
        own = reduced and name == HEAD
        if target is None and not own:
            raise TargetUnknown(
                f"{parts[name].info.file}: {name} is stored; whether it is the target's own is not known"
            )
        sha256 = part_sha256(files, parts[name])
        if own or sha256 != target:
            hashes[name] = sha256
            states[name] = "own"
        else:
            states[name] = "equal"
    names = sorted(hashes, key=str.encode)
    lines = b"".join(_line(name, parts[name], hashes[name]) for name in names)
    return WeightsId(hashlib.sha256(lines).hexdigest(), states[EMBEDDING], states[HEAD], tuple(names))


def own_names(parts: Mapping[str, Part]) -> list[str]:
    """The canonical tensors that are the drafter's whatever its target is: its body, a reduced vocabulary's maps."""
    family = family_of(parts)
    if family in ("eagle", "unknown"):
        own = [name for name in parts if name not in KNOWN_EXTRAS and not is_rotary_buffer(name)]
    else:
        own = [name for name in body_keys(family, layer_count(parts), parts) if name in parts]
    return own + [name for name in (DRAFT_TO_TARGET, TARGET_TO_DRAFT) if name in parts]


def part_sha256(files: Files, part: Part) -> str:
    """SHA-256 (hex) of a canonical tensor's logical bytes, streamed."""
    digest = hashlib.sha256()
    for piece in logical_bytes(files, part):
        digest.update(piece)
    return digest.hexdigest()


def quick_id(directory: Sequence[DirectoryLine]) -> str | None:
    """A hash of the files' own directory, without reading data; None when the writer kept no CRC-32s.

    "zip-…" covers the content through its CRCs; "header-…" (safetensors, which keeps none) tells layouts apart and
    not contents, so it may only confirm that something changed, never that nothing did.
    """
    if not directory:
        return None
    if any(crc == 0 and size > 0 for _, _, size, crc in directory):
        return None
    digest = hashlib.sha256()
    for _, record, size, crc in directory:
        digest.update(f"{record}\t{size}\t{'' if crc is None else f'{crc:08x}'}\n".encode())
    kind = "header" if all(crc is None for _, _, _, crc in directory) else "zip"
    return f"{kind}-{digest.hexdigest()}"


def _line(name: str, part: Part, sha256: str) -> bytes:
    return f"{name}\t{part.info.dtype}\t{'x'.join(map(str, part.shape))}\t{sha256}\n".encode()
