"""What the product is asked to move, how the process that does it is told, and what it tells."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Literal

How = Literal["carry", "move"]
Route = Literal["relay", "joined"]
What = Literal["whole", "weights", "drafter"]

CUT = "cut"
"""The line that tells that `cut_at` is reached."""


@dataclass(frozen=True)
class Task:
    """Bring `name` of the source's `folder` into `to`, a folder of the destination, or of this machine (`here`).

    `how`: "carry" is the bytes alone, as an engine carries them; "move" all that a transfer is, with the proof at both
    ends. `what`: the file as it is, or its slim copy with or without the frozen pair. `cut_at`: tell CUT on stdout once
    so many bytes have been written, and go on.
    """

    how: How
    route: Route
    config: str
    folder: str
    name: str
    to: str
    here: bool = False
    what: What = "whole"
    cut_at: int = 0

    @property
    def program(self) -> tuple[str, ...]:
        """The command that carries it out."""
        return (sys.executable, "-m", "tests.bench.transfer.mover", json.dumps(asdict(self)))


@dataclass(frozen=True)
class Done:
    """What it cost: seconds by the clock, of the processor with all child processes, and `peak`, the most bytes that
    the process was resident with. `moved` bytes are those of the file that arrived; `phases` are the seconds of a whole
    transfer's phases."""

    seconds: float
    cpu: float
    peak: int
    moved: int
    phases: dict[str, float]
