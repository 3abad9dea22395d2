"""Where the reference vectors and real-world cases lie."""

from __future__ import annotations

import os
from pathlib import Path

OWN = Path(__file__).parent / "data"


def case_root() -> Path:
    """The folder with `golden/` and `cases/`: what DFLASH_CASES names, else the copies in this repository. Tests over
    cases take every one that is there."""
    return Path(os.environ.get("DFLASH_CASES") or OWN)


def all_are_expected() -> bool:
    """Whether the cases are this repository's own, of which every kind must be there."""
    return case_root() == OWN


def known(place: str) -> Path:
    """A case that a test arranges things with: where `case_root` has it, else this repository's own."""
    path = case_root() / place
    return path if path.exists() else OWN / place
