"""JSON that a checkpoint brings: an object of bounded size, or a sentence."""

from __future__ import annotations

import json
from typing import Any

from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointUnsupported

_MAX_PARTS = 4_000_000
"""Commas and opening brackets: what a reader would make objects of. 200,000 tensors have half as many."""


def read_object(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object that `data` is; `where` begins the sentence of a refusal, as in "config.json".

    Raises CheckpointDamaged (no JSON, or no object), CheckpointUnsupported (too many parts to be read safely).
    """
    parts = data.count(b",") + data.count(b"{") + data.count(b"[")
    if parts > _MAX_PARTS:
        raise CheckpointUnsupported(f"{where}: about {parts} JSON values; more than {_MAX_PARTS} are not read")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError, MemoryError) as error:
        raise CheckpointDamaged(f"{where}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointDamaged(f"{where}: holds a JSON {type(value).__name__}, expected an object")
    return value
