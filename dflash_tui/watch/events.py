"""What a watch tells while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from dflash_tui.records.checkpoint import SavedCheckpoint
from dflash_tui.watch.machine import Machine
from dflash_tui.watch.progress import Progress


@dataclass(frozen=True)
class TrainingProgressed:
    """The log said something, or a silence turned into a stall. `new_lines` came since the last event; those of the
    `first` event of a watch begin anew what an earlier watch had told."""

    progress: Progress
    new_lines: tuple[str, ...] = ()
    first: bool = False


@dataclass(frozen=True)
class CheckpointsListed:
    """Every checkpoint under the watched folder, newest last. `problem`: why the folder can't be read, else ""."""

    checkpoints: tuple[SavedCheckpoint, ...]
    problem: str = ""


@dataclass(frozen=True)
class WatchLost:
    """Nothing can be seen now. `retry_in` seconds; None when only a person can change it (an unknown host
    key, a refused login)."""

    reason: str
    retry_in: float | None = None


@dataclass(frozen=True)
class WatchRestored:
    """What was lost is seen again; nothing was missed or counted twice in between."""


@dataclass(frozen=True)
class HostAnswered:
    """A round trip to `host` in `milliseconds`."""

    host: str
    milliseconds: float


@dataclass(frozen=True)
class MachineRead:
    """How the training's machine is: load, memory, GPUs, and the space where checkpoints go."""

    machine: Machine


WatchEvent = TrainingProgressed | CheckpointsListed | WatchLost | WatchRestored | HostAnswered | MachineRead
