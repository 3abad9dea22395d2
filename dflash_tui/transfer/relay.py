"""A planned transfer carried out: attempts, verification, publication."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dflash_tui.hosts.base import FileMissing, Host, HostError, HostUnreachable, ReadShort
from dflash_tui.transfer.destination import make_destination
from dflash_tui.transfer.errors import (
    DestinationTaken,
    NoSpace,
    SourceChanged,
    TransferCorrupt,
    TransferCut,
    TransferError,
)
from dflash_tui.transfer.plan import PlannedFile, TransferPlan, already_there, is_part_of
from dflash_tui.transfer.progress import Meter, TransferProgress
from dflash_tui.transfer.publish import publish
from dflash_tui.transfer.record import Identity, Recorded, read_records, write_records
from dflash_tui.transfer.same_host import place
from dflash_tui.transfer.stream import BLOCK, Running, pump
from dflash_tui.transfer.verify import prefix_sha256, sha256

__all__ = ["Moved", "TransferProgress", "move"]

_LONGEST_PAUSE = 30.0
_CLEARING = 10.0

How = Literal["streamed", "linked", "copied", "already there"]


@dataclass(frozen=True)
class Moved:
    """`bytes` that crossed now (links, files that were there and continued pieces count none), `sha256` and `how` by
    file name, and the `seconds` and `attempts` that it took."""

    bytes: int
    sha256: Mapping[str, str]
    how: Mapping[str, How]
    seconds: float
    attempts: int

    @property
    def already_there(self) -> bool:
        """Whether nothing had to move."""
        return all(how == "already there" for how in self.how.values())


async def move(
    plan: TransferPlan,
    source: Host,
    destination: Host,
    emit: Callable[[TransferProgress], None],
    *,
    tries: int = 6,
    pause: float = 1.0,
) -> Moved:
    """Carry out a plan. A final name appears only when the size and the SHA-256 at both ends agree.

    After a cut it goes on where the proven bytes end, until `tries` attempts in a row brought no byte further, with
    pauses of `pause` seconds doubling up to half a minute. Raises TransferCut, TransferCorrupt, SourceChanged, NoSpace,
    DestinationTaken, TransferError.
    """
    began = time.monotonic()
    meter = Meter(plan.to_move, emit)
    meter.phase("planning")
    hashes: dict[str, str] = {}
    how: dict[str, How] = {}
    moved, crossed, attempts = 0, 0, 1
    for file in plan.files:
        if file.present:
            hashes[file.name], how[file.name] = file.present, "already there"
            continue
        one = _OneFile(plan, file, source, destination, meter, moved)
        hashes[file.name], how[file.name] = await one.move(tries, pause)
        attempts += one.attempts - 1
        moved += file.size
        crossed += one.crossed
    with _as_transfer_errors():
        await _record(plan, destination, hashes)
    meter.at(plan.to_move, plan.to_move)
    meter.phase("done")
    return Moved(crossed, hashes, how, time.monotonic() - began, attempts)


class _OneFile:
    """One file on its way: the piece at the destination and what is known of its bytes, over all attempts."""

    def __init__(
        self, plan: TransferPlan, file: PlannedFile, source: Host, destination: Host, meter: Meter, before: int
    ) -> None:
        self._plan, self._file, self._meter, self._before = plan, file, meter, before
        self._source, self._destination = source, destination
        self._path, self._final = plan.source_path(file), plan.final_path(file)
        self._part = f"{plan.part_prefix(file)}.{secrets.token_hex(4)}.part"
        self._running = Running()
        self._source_hash = ""
        self._how: How = "streamed"
        self._taken_over = False
        self.attempts = 1
        self.crossed = 0

    async def move(self, tries: int, pause: float) -> tuple[str, How]:
        fruitless, reached = 0, 0
        while True:
            self._meter.phase("moving", self._file.name)
            try:
                with _as_transfer_errors():
                    return await self._attempt(), self._how
            except TransferCut as cut:
                fruitless, reached = (0, self._running.at) if self._running.at > reached else (fruitless + 1, reached)
                if fruitless >= tries:
                    raise TransferCut(f"{cut}; given up after {self.attempts} attempts") from cut
                self.attempts += 1
                self._meter.attempt(self.attempts, str(cut))
                await asyncio.sleep(min(pause * 2**fruitless, _LONGEST_PAUSE))
            except (DestinationTaken, NoSpace, SourceChanged, TransferCorrupt):
                # After anything else the piece is what a later transfer continues.
                await self._clear()
                raise

    async def _attempt(self) -> str:
        await self._check_source()
        # An attempt may have been cut after the name was given, before it was known here.
        if self.attempts > 1 and (found := await self._already_named()):
            return found
        await make_destination(self._destination, posixpath.dirname(self._final))
        if self._plan.same_host:
            await self._remove(self._part)
            self._how = await place(self._source, self._path, self._part, self._file.size)
            self._meter.at(self._before + self._file.size, self._before + self._file.size)
            self._meter.phase("verifying")
        else:
            await self._stream()
        found = await self._verified()
        await self._check_source()
        self._meter.phase("publishing")
        try:
            await publish(self._destination, self._part, self._final, self._file.size)
        except DestinationTaken as taken:
            if not await self._brought_by_another():
                raise taken from None
        await self._remove_old_pieces()
        return found

    async def _stream(self) -> None:
        """Stream what is missing; the source's own hash is made beside it, while the file is in its cache. Ends in the
        verifying phase."""
        offset = await self._proven()
        self._meter.at(self._before + offset, self._before + offset)
        hashing, beating = asyncio.create_task(self._hash_source()), asyncio.create_task(self._meter.beat())
        try:
            await pump(
                self._source, self._path, self._destination, self._part, self._file.size, self._running, self._meter
            )
            self._meter.phase("verifying")
            await hashing
        finally:
            self.crossed += self._running.at - offset
            for task in (hashing, beating):
                task.cancel()
            await asyncio.gather(hashing, beating, return_exceptions=True)

    async def _hash_source(self) -> None:
        self._source_hash = self._source_hash or await sha256(self._source, self._path, self._file.size)

    async def _proven(self) -> int:
        """How many bytes of the piece at the destination are the source's; the piece is cut there."""
        if self.attempts == 1 and not self._file.part:
            return 0
        if self._file.part and not self._taken_over:
            await self._destination.run(["mv", "-n", self._file.part, self._part], check=False)
            self._taken_over = True
        try:
            size = (await self._destination.stat(self._part)).size
        except FileMissing:
            return self._running.back_to(0)
        offset = self._running.back_to(size)
        if offset == 0:
            return await self._agreed(size // BLOCK * BLOCK)
        return offset if await self._prefix_of_part(offset) == self._running.hex else self._running.back_to(0)

    async def _agreed(self, offset: int) -> int:
        """Go on at `offset` though what lies before it is not remembered here, if the source's first bytes have the
        piece's hash; else at 0."""
        there = await prefix_sha256(self._source, self._path, offset) if offset else None
        if there is None or there != await self._prefix_of_part(offset):
            return 0
        self._running.continue_unseen(offset)
        return offset

    async def _prefix_of_part(self, offset: int) -> str:
        """The hash of the piece, after what lies beyond `offset` was cut off."""
        await self._destination.run(["dd", f"of={self._part}", f"bs={BLOCK}", f"seek={offset // BLOCK}"])
        return await sha256(self._destination, self._part, offset)

    async def _verified(self) -> str:
        """The hash on which both ends, and what passed here, agree. Raises TransferCorrupt."""
        size = (await self._destination.stat(self._part, follow=False)).size
        if size != self._file.size:
            raise ReadShort(f"{self._destination.name}:{self._part} has {size:,} of {self._file.size:,} bytes")
        here = await sha256(self._destination, self._part, size)
        there = here if self._how == "linked" else self._source_hash or await sha256(self._source, self._path, size)
        passed = self._running.hex if self._how == "streamed" else ""
        if here != there or passed not in ("", here):
            raise TransferCorrupt(
                f"{self._destination.name}:{self._final}: the SHA-256 of what arrived is {here[:16]}…, of the source "
                f"{there[:16]}…{f', of what passed here {passed[:16]}…' if passed else ''}; it was thrown away"
            )
        return here

    async def _check_source(self) -> None:
        try:
            now = Identity.of(await self._source.stat(self._path))
        except FileMissing:
            raise SourceChanged(f"{self._source.name}:{self._path} is gone since the transfer was planned") from None
        # A link that was made of it changes neither size nor time nor inode.
        if now != self._file.identity:
            raise SourceChanged(
                f"{self._source.name}:{self._path} is not the file that was planned any more "
                f"(planned {self._file.size:,} bytes, now {now.size:,}; written again or replaced); plan again"
            )

    async def _brought_by_another(self) -> bool:
        """Whether what came into being meanwhile is the same file: two of us may fetch at once."""
        try:
            return bool(await self._already_named())
        except DestinationTaken:
            return False

    async def _already_named(self) -> str:
        found = await already_there(self._plan, self._file, self._source, self._destination)
        if found:
            await self._remove(self._part)
        return found

    async def _remove_old_pieces(self) -> None:
        """The name is given: pieces of what wanted it before, other versions of the source too, are of no more use."""
        folder, name = posixpath.split(self._final)
        for entry in await self._destination.list(folder):
            if is_part_of(entry.name, name):
                await self._remove(posixpath.join(folder, entry.name))

    async def _remove(self, path: str) -> None:
        await self._destination.run(["rm", "-f", path], check=False)

    async def _clear(self) -> None:
        """Give the disk back; a host that can't be reached keeps a hidden piece, which a later plan finds."""
        with contextlib.suppress(HostError, TimeoutError):
            async with asyncio.timeout(_CLEARING):
                await self._remove(self._part)


@contextlib.contextmanager
def _as_transfer_errors() -> Iterator[None]:
    try:
        yield
    except (HostUnreachable, ReadShort, FileMissing) as error:
        raise TransferCut(str(error)) from error
    except HostError as error:
        raise TransferError(str(error)) from error


async def _record(plan: TransferPlan, destination: Host, hashes: Mapping[str, str]) -> None:
    records = await read_records(destination, plan.destination_folder)
    for file in plan.files:
        here = Identity.of(await destination.stat(plan.final_path(file)))
        path = plan.source_path(file)
        records[file.name] = Recorded(hashes[file.name], here, plan.source, path, file.identity)
    await write_records(destination, plan.destination_folder, records)
