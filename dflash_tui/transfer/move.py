"""A planned transfer carried out: whose turn it is, legs, proof, names."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from dflash_tui.hosts.base import Entry, FileMissing, Host, HostError, HostUnreachable, ReadShort, Stat
from dflash_tui.hosts.several import stats_of
from dflash_tui.transfer.claim import CLAIM, Claim
from dflash_tui.transfer.destination import make_destination
from dflash_tui.transfer.engine import Chooser, Engine, Pace, Route
from dflash_tui.transfer.errors import (
    DestinationTaken,
    NoSpace,
    SourceChanged,
    TransferCorrupt,
    TransferCut,
    TransferError,
)
from dflash_tui.transfer.filling import watched
from dflash_tui.transfer.journal import asides, old_pieces
from dflash_tui.transfer.keeper import Keeper
from dflash_tui.transfer.piece import Piece, kept_of_pieces, remove_pieces
from dflash_tui.transfer.plan import TransferPlan
from dflash_tui.transfer.portions import batches, remove_files
from dflash_tui.transfer.present import already_there
from dflash_tui.transfer.progress import Meter, TransferProgress
from dflash_tui.transfer.proof import Prover, WrongFrom
from dflash_tui.transfer.publish import Proven, publish
from dflash_tui.transfer.record import Identity, Recorded, read_records, write_records
from dflash_tui.transfer.relaying import RelayEngine
from dflash_tui.transfer.same_host import PipeEngine, place
from dflash_tui.transfer.sources import refuse_changed_sources
from dflash_tui.transfer.space import missing_room

__all__ = ["Moved", "TransferProgress", "move"]

_LONGEST_PAUSE = 30.0
_WAIT_SECONDS = 2.0
_CLEARING = 10.0
_CUTS = 2
"""Cuts in a row without a chunk between them after which another engine is tried, where there is one."""

How = Literal["streamed", "linked", "copied", "already there"]


@dataclass(frozen=True)
class Moved:
    """`bytes` that crossed now (links, files that were there and continued pieces count none) and `routes` how they
    did; `resumed` bytes that lay there from an earlier attempt; `sha256` and `how` by file name, and the `seconds` and
    `attempts` that it took. `notice` is a sentence about what could not be done beside it, "" without one."""

    bytes: int
    sha256: Mapping[str, str]
    how: Mapping[str, How]
    seconds: float
    attempts: int
    routes: Mapping[Route, int] = field(default_factory=dict)
    resumed: int = 0
    notice: str = ""

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
    chooser: Chooser | None = None,
    pace: Pace | None = None,
    tries: int = 6,
    pause: float = 1.0,
) -> Moved:
    """Carry out a plan. Final names appear only when all its files are there, and the size and the SHA-256 of each
    agree at both ends. Without a `chooser` all bytes are relayed through this process; `pace` may hold them back.

    After a cut it goes on after the last whole chunk, until `tries` attempts in a row brought none, with pauses of
    `pause` seconds doubling up to half a minute; so does a later transfer. Of two that bring files into one folder one
    waits for the other. Raises TransferCut, TransferCorrupt, SourceChanged, NoSpace, DestinationTaken, TransferError.
    """
    began = time.monotonic()
    meter = Meter(plan.to_move, emit)
    meter.phase("planning")
    transfer = _Transfer(plan, source, destination, meter, chooser, pace or _at_once)
    await transfer.run(tries, pause)
    meter.at(plan.to_move, plan.to_move)
    meter.phase("done")
    return Moved(
        sum(transfer.routes.values()), transfer.hashes, transfer.how, time.monotonic() - began, transfer.attempts,
        {route: nbytes for route, nbytes in transfer.routes.items() if nbytes}, transfer.resumed, transfer.notice,
    )  # fmt: skip


async def _at_once(nbytes: int) -> None:
    return


class _Transfer:
    """The files of a plan on their way, over all attempts."""

    def __init__(
        self, plan: TransferPlan, source: Host, destination: Host, meter: Meter, chooser: Chooser | None, pace: Pace
    ) -> None:
        self._plan, self._source, self._destination, self._meter = plan, source, destination, meter
        self._chooser, self._pace = chooser, pace
        self._relay, self._pipe = RelayEngine(), PipeEngine()
        self._claim = Claim(destination, plan.destination_folder, plan.to_move)
        self._keeper = Keeper(destination, self._claim, self._missing_room)
        self._prover = Prover(plan, source, destination, meter)
        self._pieces = [Piece(plan, file, source, destination, self._keeper) for file in plan.files if not file.present]
        self._reached = self._fruitless = self._cuts = 0
        self._proven: set[str] = set()
        self.hashes = {file.name: file.present for file in plan.files if file.present}
        self.how: dict[str, How] = {name: "already there" for name in self.hashes}
        self.routes: Counter[Route] = Counter()
        self.attempts, self.resumed, self.notice = 1, 0, ""

    async def run(self, tries: int, pause: float) -> None:
        beating = asyncio.create_task(self._meter.beat())
        own = asyncio.current_task()
        assert own is not None
        asked = own.cancelling()
        try:
            while True:
                try:
                    with _as_transfer_errors():
                        await self._attempt()
                    return
                except TransferCut as cut:
                    if own.cancelling() > asked:  # a line that breaks because it is let go of is no cut
                        raise asyncio.CancelledError from cut
                    self._count_chunks()
                    if self._fruitless >= tries:
                        raise TransferCut(f"{cut}; given up after {self.attempts} attempts") from cut
                    self.attempts += 1
                    self._meter.attempt(self.attempts, str(cut))
                    await asyncio.sleep(min(pause * 2**self._fruitless, _LONGEST_PAUSE))
        except NoSpace as full:
            raise NoSpace(await self._explained(full)) from full
        except (DestinationTaken, SourceChanged, TransferCorrupt):
            # After anything else the parts are what a later transfer continues.
            await self._clear(self._pieces)
            raise
        finally:
            beating.cancel()
            await asyncio.gather(beating, self._prover.close(), return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLEARING):
                    await self._claim.give_back()

    async def _attempt(self) -> None:
        if self._pieces:
            await self._check_sources()
            for folder in dict.fromkeys([self._plan.destination_folder, *self._folders()]):
                await make_destination(self._destination, folder)
            waited = await self._take_claim()
            async with self._keeper.watching():
                await self._settle(look=waited or self.attempts > 1)
                for piece in self._left():
                    await self._bring(piece)
                await self._prove()
                await self._check_sources()
                self._meter.phase("publishing")
                left = sorted(self._left(), key=_names_others)
                for some in batches(left, lambda piece: piece.file.size, _names_others):
                    await self._publish(some)
                await self._record()
                await self._remove_old_pieces()
        else:
            await self._record()
            await self._tidy()

    def _left(self) -> list[Piece]:
        return [piece for piece in self._pieces if piece.file.name not in self.hashes]

    def _folders(self) -> list[str]:
        return list(dict.fromkeys(posixpath.dirname(piece.final) for piece in self._pieces))

    async def _take_claim(self) -> bool:
        """Wait until nobody else brings files into the folder: whether that took a while."""
        waited = False
        while holder := await self._claim.take():
            place = f"{self._destination.name}:{self._plan.destination_folder}"
            self._meter.waits(f"{holder}, which fills {place}")
            waited = True
            await asyncio.sleep(_WAIT_SECONDS)
        self._meter.waits("")
        return waited

    async def _settle(self, *, look: bool) -> None:
        """Find out what lies there of each file. `look`: somebody may have named it meanwhile, or we did, and were cut
        before we knew."""
        entries: dict[str, dict[str, Entry]] = {}
        aside: dict[str, dict[str, list[str]]] = {}
        for folder in self._folders():
            entries[folder] = {entry.name: entry for entry in await self._destination.list(folder)}
            aside[folder] = asides(entries[folder])
        records: Mapping[str, Recorded] | None = None
        first = self.attempts == 1
        for piece in self._left():
            folder, name = posixpath.split(piece.final)
            if look and name in entries[folder]:
                records = await self._records() if records is None else records
                if await self._found(piece, entries[folder][name].stat, records):
                    continue
            if not self._links(piece):
                await piece.settle(entries[folder], aside[folder].get(posixpath.basename(piece.part), ()))
                if first:
                    self.resumed += piece.at
        have = self._have()
        if first and self.resumed:
            self._meter.resume(self.resumed)
        self._meter.at(have, have)
        if have > self._reached:
            self._reached, self._fruitless, self._cuts = have, 0, 0

    def _have(self) -> int:
        return sum(piece.file.size if piece.file.name in self.hashes else piece.at for piece in self._pieces)

    def _count_chunks(self) -> None:
        """After a cut: whether the attempt brought any chunk further."""
        passed = sum(max(piece.at, piece.passed) for piece in self._pieces)
        self._fruitless, self._reached = (0, passed) if passed > self._reached else (self._fruitless + 1, self._reached)

    def _links(self, piece: Piece) -> bool:
        return self._plan.same_host and piece.file.linkable

    async def _records(self) -> dict[str, Recorded]:
        return await read_records(self._destination, self._plan.destination_folder)

    async def _found(self, piece: Piece, stat: Stat | None, records: Mapping[str, Recorded]) -> bool:
        found = await already_there(self._plan, piece.file, stat, self._source, self._destination, records)
        if found:
            self.hashes[piece.file.name] = found
            self.how.setdefault(piece.file.name, "already there")
            await piece.remove()
        return bool(found)

    async def _bring(self, piece: Piece) -> None:
        # What describes another file is not what people wait for.
        self._meter.phase("moving", "" if piece.file.name.endswith(".slim.json") else piece.file.name)
        if self._links(piece):
            await piece.remove()
            path = self._plan.source_path(piece.file)
            self.how[piece.file.name] = await place(self._source, path, piece.part, piece.file.size)
            piece.at = piece.file.size
            self._meter.route("same host")
            self._meter.at(self._have(), self._have())
            return
        if piece.at < piece.file.size:
            await self._prover.forget(piece)
        while piece.at < piece.file.size or not piece.file.size:
            await self._leg(piece)
            self.how[piece.file.name] = "streamed"
            if not piece.file.size:
                return

    async def _leg(self, piece: Piece) -> None:
        engine, most = await self._choose(piece)
        self._meter.route(engine.route)
        start, began = piece.at, time.monotonic()

        def count(read: int, written: int) -> None:
            self.routes[engine.route] += read
            self._meter.add(read=read, written=written)

        try:
            if engine is self._pipe:
                work = piece.carry(engine, most, self._pace, lambda read, written: None)
                nbytes = await watched(work, self._destination, piece.part, start, piece.file.size - start, count)
            else:
                nbytes = await piece.carry(engine, most, self._pace, count)
        except (SourceChanged, NoSpace):
            raise
        except TransferCorrupt:
            if piece.again:
                raise
            piece.again = True
            await self._go_back(piece, piece.at)
        except (TransferCut, HostUnreachable, ReadShort, FileMissing) as cut:
            self._cuts += 1
            if self._cuts >= _CUTS and engine.route not in ("relay", "same host") and self._chooser is not None:
                self._cuts = 0
                self._chooser.failed(engine, str(cut))
            raise
        except (TransferError, HostError) as error:
            if engine in (self._relay, self._pipe) or self._chooser is None:
                raise
            if not self._chooser.failed(engine, str(error)):
                raise
            self._meter.attempt(self.attempts, str(error))
            self._meter.at(self._have(), self._have())
        else:
            self._cuts = 0
            if engine is self._relay and not start and piece.at == piece.file.size:
                self._prover.passed_in_one(piece)
            if self._chooser is not None and engine not in (self._relay, self._pipe):
                self._chooser.measured(engine, nbytes, time.monotonic() - began)

    async def _choose(self, piece: Piece) -> tuple[Engine, int]:
        remaining = piece.file.size - piece.at
        if self._plan.same_host and piece.late is None:
            return self._pipe, self._pipe.longest
        # What is made of the bytes that pass needs them to pass here.
        if self._chooser is None or self._plan.same_host or piece.late is not None or not remaining:
            return self._relay, remaining
        return await self._chooser.choose(remaining)

    async def _go_back(self, piece: Piece, at: int) -> None:
        await piece.back_to(at)
        self._meter.at(self._have(), self._have())

    async def _prove(self) -> None:
        """Prove what is not proven. What is wrong is sent once more."""
        self._meter.phase("verifying")
        linked = {name for name, how in self.how.items() if how == "linked"}
        for some in batches(self._left(), lambda piece: piece.file.size):
            while left := [piece for piece in some if not piece.proven]:
                wrong = await self._prover.prove(left, linked)
                for piece in left:
                    if piece.file.name in wrong:
                        await self._send_again(piece, wrong[piece.file.name])
            # What is only proven once more after a cut brings nobody further.
            if not self._proven.issuperset(piece.file.name for piece in some):
                self._proven.update(piece.file.name for piece in some)
                self._fruitless = 0

    async def _send_again(self, piece: Piece, wrong: WrongFrom) -> None:
        await self._check_sources()
        if piece.again:
            raise TransferCorrupt(f"{wrong.sentence}; it was thrown away") from wrong
        piece.again = True
        await self._go_back(piece, wrong.at)
        await self._bring(piece)
        self._meter.phase("verifying")

    async def _publish(self, some: Sequence[Piece]) -> None:
        proven = [Proven(piece.part, piece.final, piece.shown, not self._links(piece)) for piece in some]
        for piece, taken in zip(some, await publish(self._destination, proven), strict=True):
            if taken is not None:
                # Somebody without a claim may have brought the same.
                try:
                    (stat,) = await self._destination.stat_many([piece.final], follow=False)
                    found = await self._found(piece, stat, await self._records())
                except DestinationTaken:
                    found = False
                if not found:
                    raise taken
            self.hashes[piece.file.name] = piece.proven

    async def _check_sources(self) -> None:
        planned: dict[str, Identity] = {}
        for piece in self._left():
            planned |= piece.file.sources
        await refuse_changed_sources(self._source, self._plan.source_folder, planned)

    async def _record(self) -> None:
        """Note what the files are. It only spares work later: all of them are named and proven without it."""
        try:
            await self._write_record()
        except (HostUnreachable, FileMissing):
            raise
        except (HostError, TransferError) as error:
            self.notice = f"what was moved could not be noted there, and will be hashed again the next time: {error}"
            self._meter.notice(self.notice)

    async def _write_record(self) -> None:
        records = await self._records()
        stats = await stats_of(self._destination, [self._plan.final_path(file) for file in self._plan.files])
        for file, stat in zip(self._plan.files, stats, strict=True):
            here, identity = Identity.of(stat), next(iter(file.sources.values()), None)
            records[file.name] = Recorded(
                self.hashes[file.name], here, self._plan.source, self._plan.source_path(file), identity, file.plan_id
            )
        await write_records(self._destination, self._plan.destination_folder, records)

    async def _remove_old_pieces(self) -> None:
        """The names are given: pieces of what wanted them before, other versions of the source too, are of no use."""
        for piece in self._pieces:
            await piece.end()
        if old := await self._old_pieces():
            await remove_files(self._destination, old)

    async def _old_pieces(self) -> list[str]:
        return await old_pieces(self._destination, [self._plan.final_path(file) for file in self._plan.files])

    async def _tidy(self) -> None:
        """Everything was there. Whoever named it may have been broken off before its own pieces were gone."""
        folder = self._plan.destination_folder
        old = await self._old_pieces()
        claimed = any(entry.name == CLAIM for entry in await self._destination.list(folder))
        if (old or claimed) and not await self._claim.take():
            await self._remove_old_pieces()

    async def _missing_room(self) -> int:
        parts = {piece.part: piece.file.size for piece in self._left() if not self._links(piece)}
        return await missing_room(self._destination, self._plan.destination_folder, parts) if parts else 0

    async def _explained(self, full: NoSpace) -> str:
        """How much is missing; and parts of which nothing could be continued are given back."""
        missing = 0
        with contextlib.suppress(HostError, TransferError, TimeoutError):
            async with asyncio.timeout(_CLEARING):
                missing = await self._missing_room()
        kept = 0
        with contextlib.suppress(HostError, TimeoutError):
            async with asyncio.timeout(_CLEARING):
                had = await kept_of_pieces(
                    self._destination, [piece for piece in self._left() if not self._links(piece)]
                )
                kept = sum(had.values())
                await self._clear([piece for piece in self._left() if not had.get(piece.file.name)])
        more = f"; {missing:,} bytes more are needed there" if missing else ""
        return f"{full}{more}{f'; the {kept:,} bytes that arrived are kept and continued' if kept else ''}"

    async def _clear(self, pieces: list[Piece]) -> None:
        """Give the disk back; a host that can't be reached keeps hidden pieces, which a later plan finds."""
        with contextlib.suppress(HostError, TimeoutError):
            async with asyncio.timeout(_CLEARING):
                if self._claim.held:
                    gone = [piece for piece in pieces if piece.file.name not in self.hashes]
                    await remove_pieces(self._destination, gone)


def _names_others(piece: Piece) -> bool:
    """Whether it is an index, which is named after what it names."""
    return piece.file.name.endswith(".index.json")


@contextlib.contextmanager
def _as_transfer_errors() -> Iterator[None]:
    try:
        yield
    except (HostUnreachable, ReadShort, FileMissing) as error:
        raise TransferCut(str(error)) from error
    except HostError as error:
        raise TransferError(str(error)) from error
