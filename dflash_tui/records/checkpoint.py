"""What is known of a checkpoint: where it lies, which run and step it is, and what its keys say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Literal, Optional, Tuple

Completeness = Literal["complete", "saving", "truncated", "unknown"]


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint as found on a host.

    `path` is what is opened (a file, or a folder for folder formats); `files` are the files it consists of, relative
    to `folder`. `size` is their sum in bytes, `mtime` the newest, POSIX seconds. `reason` says what is missing when
    `completeness` is not "complete".
    """

    host: str
    path: str
    folder: str
    files: Tuple[str, ...]
    step: Optional[int]
    size: int
    mtime: float
    inode: int
    completeness: Completeness
    reason: str = ""
    quick_id: Optional[str] = None


@dataclass(frozen=True)
class Audit:
    """The checkpoint's keys against what its family needs. Names are canonical (prefixes stripped, fused split).

    `mismatched` holds sentences "name: found (a, b), expected (c, d)". `nonfinite` is only known after a read of the
    data. `embedding`, `head`: whose is used: "target" (none stored), "equal" (stored, equal to the target's),
    "own" (stored, differs: used, and said), "unknown" (stored, not compared yet).
    """

    family: str
    container: str
    tensors: int
    drafter: Tuple[str, ...]
    unused: Tuple[str, ...] = ()
    missing: Tuple[str, ...] = ()
    mismatched: Tuple[str, ...] = ()
    nonfinite: Tuple[str, ...] = ()
    embedding: Literal["target", "equal", "own", "unknown"] = "target"
    head: Literal["target", "equal", "own", "unknown"] = "target"
    dtype: str = ""
    inferred: Dict[str, int] = field(default_factory=dict)
