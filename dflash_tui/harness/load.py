"""A checkpoint's files to a drafter that can be run: audited, scanned, identified, mapped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from dflash_tui.checkpoints.audit import audit
from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.family import DRAFT_TO_TARGET, EMBEDDING, HEAD
from dflash_tui.checkpoints.files import LocalFiles, local_files
from dflash_tui.checkpoints.identity import WeightsId
from dflash_tui.checkpoints.keys import Part, canonical_tensors
from dflash_tui.checkpoints.opening import read_structure
from dflash_tui.checkpoints.structure import Structure
from dflash_tui.harness.drafter import Drafter
from dflash_tui.harness.errors import HarnessError, Refused
from dflash_tui.harness.mapped import Maps, fill
from dflash_tui.harness.target_files import TargetFiles
from dflash_tui.harness.vocabulary import Vocabulary, target_vocabulary
from dflash_tui.records.checkpoint import Audit
from dflash_tui.records.settings import DrafterSettings


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint: headers read, data mapped on use. `parts` are its tensors by canonical name."""

    path: Path
    files: LocalFiles
    structure: Structure
    parts: Mapping[str, Part]
    maps: Maps

    def tensor(self, name: str) -> Tensor:
        """A canonical tensor in its stored dtype: mapped, or put together in memory where it lies in pieces."""
        part = self.parts[name]
        info = part.info
        root = self.files.root
        if info.pieces:
            row = info.nbytes // info.shape[0]
            rows = [
                self.maps.tensor(root / piece.file, info.dtype, (piece.nbytes // row, *info.shape[1:]), piece.offset)
                for piece in info.pieces
            ]
            whole = torch.cat(rows)
        else:
            whole = self.maps.tensor(root / info.file, info.dtype, info.shape, info.offset, info.strides)
        return whole if part.row_stop is None else whole[part.row_start : part.row_stop]


def open_checkpoint(path: Path, maps: Maps) -> Checkpoint:
    """Read a checkpoint's headers. Raises Refused with the reader's sentence."""
    files = local_files(path)
    try:
        structure = read_structure(files)
        return Checkpoint(path, files, structure, canonical_tensors(structure), maps)
    except CheckpointError as error:
        raise Refused(f"{path}: {error}") from error


def audit_data(checkpoint: Checkpoint, settings: DrafterSettings) -> Audit:
    """The audit of names and shapes, with `nonfinite` filled in by a scan of every tensor that is used."""
    try:
        found = audit(checkpoint.structure, {"num_hidden_layers": settings.num_hidden_layers})
    except CheckpointError as error:
        raise Refused(f"{checkpoint.path}: {error}") from error
    used = [*found.drafter, *(name for name in (EMBEDDING, HEAD) if name in checkpoint.parts)]
    return replace(found, nonfinite=tuple(name for name in used if not _finite(checkpoint.tensor(name))))


def check_audit(checkpoint: Checkpoint, found: Audit) -> None:
    """Refuse what cannot be evaluated. Raises Refused with one sentence."""
    if found.family != "dflash":
        raise Refused(f"{checkpoint.path}: its keys are those of {found.family}; this harness evaluates dflash v1 only")
    for names, what in (
        (found.missing, "tensors are missing"),
        (found.mismatched, "tensors have another shape than the rest implies"),
        (found.nonfinite, "tensors hold NaN or infinity"),
    ):
        if names:
            raise Refused(f"{checkpoint.path}: {len(names)} {what}: {'; '.join(names[:4])}")


def build(
    checkpoint: Checkpoint, settings: DrafterSettings, target: TargetFiles, weights: WeightsId
) -> tuple[Drafter, Vocabulary]:
    """The drafter with its stored weights, and the vocabulary it is used with: the target's, except for a pair of its
    own that differs from it. Raises Refused (settings and weights contradict each other) and HarnessError."""
    with torch.device("meta"):
        drafter = Drafter(settings)
    wanted = set(dict(drafter.named_parameters()))
    stored = {name for name in checkpoint.parts if name.startswith("layers.")}
    strangers = sorted(stored - wanted)
    if strangers:
        raise Refused(
            f"{checkpoint.path}: {', '.join(strangers[:4])} would be left out with these settings "
            f"({settings.num_hidden_layers} layers, attention_bias {settings.attention_bias}); check the config"
        )
    try:
        fill(drafter, {name: checkpoint.tensor(name) for name in wanted & set(checkpoint.parts)})
    except HarnessError as error:
        raise Refused(f"{checkpoint.path}: {error}") from error
    return drafter, _vocabulary(checkpoint, settings, target, weights)


def _vocabulary(
    checkpoint: Checkpoint, settings: DrafterSettings, target: TargetFiles, weights: WeightsId
) -> Vocabulary:
    own_embedding, own_head = weights.embedding == "own", weights.head == "own"
    if own_embedding and own_head:
        found = Vocabulary(checkpoint.tensor(EMBEDDING), checkpoint.tensor(HEAD))
    else:
        found = target_vocabulary(target, checkpoint.maps)
        if own_embedding:
            found = replace(found, embedding=checkpoint.tensor(EMBEDDING))
        if own_head:
            found = replace(found, head=checkpoint.tensor(HEAD))
    if DRAFT_TO_TARGET in checkpoint.parts:
        found = replace(found, target_ids=_target_ids(checkpoint, found.embedding.shape[0]))
    for name, tensor in (("embedding", found.embedding), ("head", found.head)):
        if tensor.dim() != 2 or tensor.shape[1] != settings.hidden_size:
            raise Refused(
                f"{target.folder}: the {name} is {tuple(tensor.shape)}, the drafter's vectors have "
                f"{settings.hidden_size}; is it the drafter's target?"
            )
    rows = found.embedding.shape[0] if found.target_ids is None else found.target_ids.shape[0]
    if found.head.shape[0] != rows:
        raise Refused(f"{checkpoint.path}: the head has {found.head.shape[0]} rows for a vocabulary of {rows}")
    if not 0 <= settings.mask_token_id < found.embedding.shape[0]:
        raise Refused(f"mask_token_id {settings.mask_token_id} is outside the vocabulary of {found.embedding.shape[0]}")
    return found


def _target_ids(checkpoint: Checkpoint, vocabulary: int) -> Tensor:
    shift = checkpoint.tensor(DRAFT_TO_TARGET).long()
    ids = torch.arange(shift.shape[0]) + shift
    if ids.shape[0] == 0 or int(ids[0]) < 0 or int(ids[-1]) >= vocabulary or not bool((ids[1:] > ids[:-1]).all()):
        raise Refused(
            f"{checkpoint.path}: i + d2t[i] does not ascend within 0 … {vocabulary - 1}; does d2t hold absolute ids?"
        )
    return ids


def _finite(tensor: Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    if tensor.element_size() == 1:
        tensor = tensor.half()  # torch finds no extremes of float8; all its values are float16's too
    low, high = torch.aminmax(tensor)  # 40 times faster than isfinite().all(); NaN and infinity both show in it
    return bool(torch.isfinite(low)) and bool(torch.isfinite(high))
