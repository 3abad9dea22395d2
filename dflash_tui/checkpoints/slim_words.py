"""What a trainer's state beside the weights says of the model, in a file of its own: the state itself stays behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.opening import weight_file
from dflash_tui.checkpoints.segments import Output
from dflash_tui.checkpoints.slim_torch import torch_output
from dflash_tui.checkpoints.structure import Structure

TORCH_STATE = "training_state.pt"
"""The file that readers look into first for arguments and step when the weights tell none."""

_STATES = (TORCH_STATE, "trainer_state.json", "training_state.json")


def is_state(name: str) -> bool:
    """Whether a file beside the weights may tell a trainer's arguments or step and is not brought for itself."""
    return name in _STATES


def words_beside(structure: Structure, taken: Sequence[str]) -> list[Output]:
    """A small TORCH_STATE with the arguments and the step that files beside the weights say which are not among those
    `taken`; none where nothing is lost, or where such a file would itself be taken for the weights."""
    if TORCH_STATE in taken:
        return []
    said: dict[str, Any] = {}
    for word, value in (("args", structure.args), ("step", structure.step)):
        file, _, key = structure.sources.get(word, "").partition(": ")
        if value is not None and file and file not in taken and file not in structure.files:
            said[key] = value
    if not said or not _stays_the_weights([*taken, TORCH_STATE], taken):
        return []
    return [torch_output(TORCH_STATE, {}, [], "", said)]


def _stays_the_weights(names: Sequence[str], taken: Sequence[str]) -> bool:
    try:
        return weight_file(names) == weight_file(taken)
    except CheckpointError:
        return False
