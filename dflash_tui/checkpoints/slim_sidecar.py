"""What lies beside a slim copy: which file it was made from, what was left out of it and why."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dflash_tui.checkpoints.anatomy import Piece
from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointUnsupported
from dflash_tui.checkpoints.sentences import shown
from dflash_tui.checkpoints.slim import Left, Slim

SUFFIX = ".slim.json"
VERSION = 1


@dataclass(frozen=True)
class Sidecar:
    """`source` is what its writer knew of the source (host, path, size, mtime, inode, quick_id, …); `output` the slim
    file's name and size in bytes; `compared` says with what a left embedding or head was found equal; `left` all that
    is not in the copy, other files of the checkpoint too; `changed` what small plain data is not as in the source."""

    source: Mapping[str, Any]
    output: str
    size: int
    step: int | None = None
    kept: tuple[Piece, ...] = ()
    left: tuple[Left, ...] = ()
    compared: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)


def sidecar_name(weights: str) -> str:
    """The sidecar's name, beside the weights file of this name."""
    return f"{weights}{SUFFIX}"


def is_sidecar(name: str) -> bool:
    """Whether a file name is a sidecar's."""
    return name.endswith(SUFFIX)


def slim_sidecar(
    slim: Slim, source: Mapping[str, Any], compared: Mapping[str, str] | None = None, files: Sequence[Left] = ()
) -> bytes:
    """The sidecar's bytes (JSON). `source` must be plain data; `compared` as in `Sidecar`; `files` are those that stay
    where they are."""
    data = {
        "version": VERSION,
        "output": {"name": slim.output.name, "size": slim.output.size},
        "source": dict(source),
        "step": slim.step,
        "compared": dict(compared or {}),
        "left": [asdict(item) for item in (*slim.left, *files)],
        "kept": [asdict(item) for item in slim.kept],
        "changed": dict(slim.changed),
    }
    return (json.dumps(data, indent=1) + "\n").encode("ascii")


def read_sidecar(data: bytes, name: str = "the sidecar of a slim copy") -> Sidecar:
    """What a sidecar says. Raises CheckpointDamaged, or CheckpointUnsupported for one of a later version."""
    try:
        said = json.loads(data)
        version = said["version"]
        if type(version) is not int or version < 1:
            raise ValueError(f"version is {shown(version)}")
        if version > VERSION:
            raise CheckpointUnsupported(
                f"{name}: is of version {version}, this dflash-tui reads up to {VERSION}; update it"
            )
        return Sidecar(
            source=_mapping(said["source"]),
            output=str(said["output"]["name"]),
            size=int(said["output"]["size"]),
            step=None if said["step"] is None else int(said["step"]),
            kept=tuple(Piece(str(item["name"]), int(item["nbytes"]), item["kind"]) for item in said["kept"]),
            left=tuple(
                Left(str(item["name"]), int(item["nbytes"]), item["kind"], str(item["why"])) for item in said["left"]
            ),
            compared={key: str(value) for key, value in _mapping(said["compared"]).items()},
            changed={key: str(value) for key, value in _mapping(said.get("changed", {})).items()},
        )
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise CheckpointDamaged(f"{name}: not a slim copy's sidecar ({type(error).__name__}: {error})") from error


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"a JSON {type(value).__name__} where an object should be")
    return value
