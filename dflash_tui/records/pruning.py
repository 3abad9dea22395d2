"""Which fetched checkpoints go from an evaluation host, as that is asked there; answered as `records.leftovers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class Protected:
    """A checkpoint that stays, and `why`. It is known by its `path` there, or by where it came from: the name of a
    `host` and its path on it (`source`; a folder stands for its files)."""

    why: str
    path: str = ""
    host: str = ""
    source: str = ""


@dataclass(frozen=True)
class PruneRequest:
    """What the program is asked about the folder ``checkpoints/<training>`` of a root: the `keep` newest stay, and with
    `older_than` (seconds since they were saved) all younger ones; `remove` whether anything goes."""

    root: str
    training: str
    keep: int
    older_than: Optional[float]
    protected: Tuple[Protected, ...]
    remove: bool
