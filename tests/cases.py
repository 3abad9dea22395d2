"""Where the reference vectors and real-world cases lie."""

from __future__ import annotations

import os
from pathlib import Path


def case_root() -> Path:
    """The folder with `golden/` and `cases/`: what DFLASH_CASES names, else the copies in this repository."""
    return Path(os.environ.get("DFLASH_CASES") or Path(__file__).parent / "data")
