"""Legs whose bytes nobody sees on their way: what is asked before and after, so that none is missing or foreign."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
from collections.abc import Awaitable
from typing import TypeVar

from dflash_tui.checkpoints.segments import Late, Literal, Range, clipped
from dflash_tui.hosts.base import Completed, HostError, HostUnreachable, ReadShort
from dflash_tui.transfer.emission import Emission, emission
from dflash_tui.transfer.engine import Leg
from dflash_tui.transfer.errors import TransferError
from dflash_tui.transfer.in_flight import built
from dflash_tui.transfer.writing import free

SSH_FAILED = 255
"""Status of an `ssh` that could not connect, or lost its connection."""

STALL_SECONDS = 120.0

_CLEARING = 8.0
_FREE_SECONDS = 60.0

_T = TypeVar("_T")


class Busy(Exception):
    """Another writer has the part open."""


def emission_of(leg: Leg) -> Emission:
    """The source's command that writes a leg's bytes. Raises TransferError where they hang on CRC-32s of bytes that
    nobody sees, also when only a later leg of the same output does."""
    return emission(leg.folder, clipped(_known(leg), leg.start, leg.stop))


def _known(leg: Leg) -> tuple[Literal | Range, ...]:
    *pieces, last = leg.output.segments or (Literal(b""),)
    if isinstance(last, Late):
        last = Literal(built(leg.output, last, leg.crcs, source_of(leg)))
    return clipped((*pieces, last), 0, leg.size)


def source_of(leg: Leg) -> str:
    """The source in a sentence: the first of the files."""
    return f"{leg.source.name}:{posixpath.join(leg.folder, *leg.output.sources[:1])}"


def destination_of(leg: Leg) -> str:
    """The destination in a sentence."""
    return f"{leg.destination.name}:{leg.part}"


async def check_arrived(leg: Leg) -> None:
    """The part has exactly the bytes that it must have after this leg. Raises ReadShort, TransferError."""
    size = (await leg.destination.stat(leg.part)).size
    if size < leg.stop:
        raise ReadShort(f"{destination_of(leg)} has {size:,} bytes where {leg.stop:,} were sent")
    if size > leg.stop:
        raise TransferError(f"{destination_of(leg)} has {size:,} bytes, more than the {leg.stop:,} that were sent")


async def free_part(leg: Leg) -> bool:
    """End the writers that have the part open; whether nobody has it any more."""
    return (await leg.destination.run(free(leg.part), timeout=_FREE_SECONDS, check=False)).status == 0


def last_words(done: Completed) -> str:
    """What an `ssh` said last."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


async def unless_stalled(step: Awaitable[_T], where: str) -> _T:
    """Raises HostUnreachable when a step takes too long to be going on at all."""
    try:
        async with asyncio.timeout(STALL_SECONDS):
            return await step
    except TimeoutError:
        raise HostUnreachable(f"{where}: no byte moved for {STALL_SECONDS:.0f} s") from None


async def cleared(*steps: Awaitable[object]) -> None:
    """Do what is to be done after a failure, also when one is cancelled once more; what can't be done there and then
    is left: the next writer finds it."""

    async def one(step: Awaitable[object]) -> None:
        with contextlib.suppress(HostError, TimeoutError):
            async with asyncio.timeout(_CLEARING):
                await step

    work = asyncio.gather(*(one(step) for step in steps))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([asyncio.ensure_future(work)])
        raise
