"""What is left of us on an evaluation host beside run directories, as it is asked for and answered there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CleanRequest:
    """What the program is asked: `harness` is the name of the one to keep, `features` the folders in which hidden
    states are made, `checkpoints` whether fetched ones go too, `remove` whether anything goes."""

    root: str
    harness: str
    features: tuple[str, ...]
    checkpoints: bool
    remove: bool


@dataclass(frozen=True)
class Leftover:
    """`kind`: transfer piece, temporary file, harness, checkpoint, record or empty folder. `bytes` that the disk gets
    back: none where a hard link keeps them."""

    path: str
    kind: str
    bytes: int
    reason: str


@dataclass(frozen=True)
class Kept:
    """What looks like a leftover and stays."""

    path: str
    reason: str


@dataclass(frozen=True)
class Leftovers:
    """What has gone, or would go, and what stays though it looks like it."""

    found: tuple[Leftover, ...]
    kept: tuple[Kept, ...]
