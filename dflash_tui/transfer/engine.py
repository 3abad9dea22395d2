"""What carries bytes: a leg is a stretch of one output on its way; engines differ in what the bytes pass through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dflash_tui.checkpoints.segments import Output
from dflash_tui.hosts.base import Host

CHUNK = 64 << 20
"""Legs begin and end at multiples of this (or at the file's end): what a cut costs at most."""

Route = Literal["relay", "joined", "direct", "same host"]
"""relay: through this process. joined: through two `ssh` programs and a pipe of this machine. direct: from host to
host."""


@dataclass(frozen=True)
class Leg:
    """Bytes `start` … `stop` of `output`, whose ranges are of files in `folder` of `source`, into `part` at
    `destination`: it is cut at `start` first, and nothing but the engine's own writer may have it open (`writing.py`).

    `size` is the output's whole size, which the part will have. `count` is called with (bytes read from the source,
    bytes written at the destination) since the last call. `arrived` is called with a chunk's number in the output and
    its SHA-256 (hex) when all of it has passed through this process and was handed on to the destination; never where
    bytes don't pass here. `pace` is awaited with a number of bytes before so many pass: it keeps limits and turns.
    `crcs`: CRC-32s of ranges that passed in earlier legs, by their index in `output.segments`: a Late is built from
    them, those that the ranges state, and those of this leg.
    """

    source: Host
    folder: str
    output: Output
    destination: Host
    part: str
    start: int
    stop: int
    size: int
    count: Callable[[int, int], None]
    arrived: Callable[[int, str], None]
    pace: Pace
    crcs: Mapping[int, int] = field(default_factory=dict)


class Pace(Protocol):
    """When bytes may pass."""

    async def __call__(self, nbytes: int) -> None:
        """Return when so many more bytes may pass."""
        ...


@dataclass(frozen=True)
class Passed:
    """What an engine knows of a leg that arrived whole: the CRC-32 of each range that lay whole in it, by its index in
    `output.segments`: of those that state one, which were compared with it, and of all where a Late is made of them.
    Empty where the bytes did not pass here."""

    crcs: Mapping[int, int] = field(default_factory=dict)


class Engine(Protocol):
    """Carries legs. Raises ReadShort or HostUnreachable for a cut, SourceChanged, NoSpace, TransferError, and
    TransferCorrupt for a range whose CRC-32 is not the one that the source states. Whatever it raises, no command of
    its own is left running where the host can still be reached."""

    route: Route

    async def carry(self, leg: Leg) -> Passed:
        """Move the leg's bytes; return when the destination's writer has ended with status 0."""
        ...


class Chooser(Protocol):
    """Which engine carries the next leg, and how far: short legs measure, long ones follow what was measured."""

    async def choose(self, remaining: int) -> tuple[Engine, int]:
        """The engine for the next leg and the most bytes that it should carry (whole chunks, or all that remains)."""
        ...

    def measured(self, engine: Engine, nbytes: int, seconds: float) -> None:
        """How fast a leg was."""
        ...

    def failed(self, engine: Engine, sentence: str) -> bool:
        """An engine could not work at all (not a cut): whether another one remains."""
        ...
