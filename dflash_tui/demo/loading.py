"""What a training starts from, read from the folders it lies in by the harness's own loaders."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from dflash_tui.checkpoints.opening import read_configs
from dflash_tui.checkpoints.settings import resolve_settings
from dflash_tui.demo.training import TargetParts
from dflash_tui.harness.drafter import Drafter
from dflash_tui.harness.load import open_checkpoint
from dflash_tui.harness.mapped import Maps
from dflash_tui.harness.target import Target, load_target
from dflash_tui.harness.target_files import open_target


def load_in_float(folder: Path) -> tuple[Target, Tensor]:
    """A target with tied embeddings and its embedding, float32; raises the harness's `Refused` naming the file."""
    model, vocabulary = load_target(open_target(folder), Maps())
    return model.float(), vocabulary.embedding.float()


def borrowed(model: Target, embedding: Tensor, taps: tuple[int, ...]) -> TargetParts:
    """What a drafter with these taps borrows from a target."""

    def features(tokens: Tensor) -> Tensor:
        with torch.no_grad():
            states: Tensor = model(embedding[tokens], 0, None, taps)[2]
        return states

    return TargetParts(features, embedding, embedding)


def load_drafter(folder: Path) -> Drafter:
    """A trainable float32 drafter; raises the harness's `Refused` or a `CheckpointError` that names what is missing."""
    checkpoint = open_checkpoint(folder, Maps())
    drafter = Drafter(resolve_settings(checkpoint.structure, read_configs(checkpoint.files), {}))
    drafter.load_state_dict({name: checkpoint.tensor(name).float() for name in drafter.state_dict()})
    return drafter
