"""Which weights a checkpoint on this host holds, told from the target's where it stores copies. Torch-free."""

from __future__ import annotations

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.family import EMBEDDING, HEAD
from dflash_tui.checkpoints.files import Files, LocalFiles
from dflash_tui.checkpoints.identity import WeightsId, part_sha256, weights_id
from dflash_tui.checkpoints.keys import Part, canonical_tensors
from dflash_tui.checkpoints.structure import Structure
from dflash_tui.harness.errors import Refused
from dflash_tui.harness.target_files import TargetFiles


def identify(structure: Structure, files: Files, target: TargetFiles) -> WeightsId:
    """`checkpoints.identity.weights_id`, hashing the target's embedding and head only where the checkpoint stores its
    own. Reads every tensor once. Raises Refused with the reader's sentence."""
    try:
        stored = canonical_tensors(structure)
        embedding = _target_sha256(target, EMBEDDING) if EMBEDDING in stored else None
        head = _target_sha256(target, EMBEDDING if target.tied else HEAD) if HEAD in stored else None
        return weights_id(structure, files, target_embedding=embedding, target_head=head)
    except CheckpointError as error:
        raise Refused(str(error)) from error


def _target_sha256(target: TargetFiles, name: str) -> str:
    return part_sha256(LocalFiles(target.folder), Part(target.info(name)))
