"""That what lies at the destination is what the source has, before it gets a name."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Collection, Sequence

from dflash_tui.checkpoints.segments import Output, Range, clipped
from dflash_tui.hosts.base import Host, ReadShort
from dflash_tui.hosts.several import stats_of
from dflash_tui.transfer.digests import NoHash, chunk_digests, digest, digest_many, source_digest
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import SourceChanged, TransferCorrupt, TransferCut
from dflash_tui.transfer.in_flight import settled
from dflash_tui.transfer.piece import Piece
from dflash_tui.transfer.plan import TransferPlan
from dflash_tui.transfer.progress import Meter

_NOTHING = hashlib.sha256().hexdigest()


class WrongFrom(Exception):
    """What arrived is not the source's from byte `at` on."""

    def __init__(self, at: int, sentence: str) -> None:
        super().__init__(sentence)
        self.at = at
        self.sentence = sentence


class Prover:
    """Compares both ends.

    Where every byte of the source passed here in one go under a CRC-32 that the source states, what lies at the
    destination is compared with the SHA-256 of each chunk that passed. Everything else (files without CRC-32s, pieces
    that were continued, bytes that did not pass here) is compared with the source's own SHA-256, which is begun only
    when the last byte has arrived: equal hashes then prove that each byte of the source is at the end what it was when
    it was read, so that what arrived is the source as it was at one moment in between. A file that is overwritten in
    place shows neither by size nor by inode, and a mapped one not even by a time.
    """

    def __init__(self, plan: TransferPlan, source: Host, destination: Host, meter: Meter) -> None:
        self._plan, self._source, self._destination, self._meter = plan, source, destination, meter
        self._hashing: dict[str, asyncio.Future[str]] = {}
        self._checked: set[str] = set()

    def passed_in_one(self, piece: Piece) -> None:
        """All of it passed here in one leg, which compared each CRC-32 that is stated."""
        segments = piece.file.output.segments
        if all(segment.crc is not None for segment in segments if isinstance(segment, Range) and segment.nbytes):
            self._checked.add(piece.file.name)

    async def forget(self, piece: Piece) -> None:
        """More bytes of it are going to be read: what was hashed at the source before says nothing of those."""
        self._checked.discard(piece.file.name)
        task = self._hashing.pop(piece.file.name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Stop what is still being computed."""
        for task in self._hashing.values():
            task.cancel()
        await asyncio.gather(*self._hashing.values(), return_exceptions=True)

    async def prove(self, pieces: Sequence[Piece], linked: Collection[str] = ()) -> dict[str, WrongFrom]:
        """Set `proven` and `stat` of pieces; what is wrong with those that don't get them, by their names. Those that
        are `linked` are links to the source: nothing needs to be compared. Raises SourceChanged when the source is not
        what passed, TransferCut when somebody wrote into a part meanwhile."""
        parts = [piece.part for piece in pieces]
        before = await stats_of(self._destination, parts, follow=False)
        for piece, stat in zip(pieces, before, strict=True):
            if stat.size != piece.file.size:
                raise ReadShort(f"{self._destination.name}:{piece.part} has {stat.size:,} of {piece.file.size:,} bytes")
        self._meter.to_verify(sum(piece.file.size for piece in pieces))
        known = await self._known(pieces, linked) if len(pieces) > 1 else [""]
        found: dict[str, str] = {}
        wrong: dict[str, WrongFrom] = {}
        for piece, here in zip(pieces, known, strict=True):
            try:
                found[piece.file.name] = await self._compared(piece, here, piece.file.name in linked)
            except WrongFrom as error:
                wrong[piece.file.name] = error
        after = await stats_of(self._destination, parts, follow=False)
        for piece, was, now in zip(pieces, before, after, strict=True):
            if (now.size, now.mtime, now.inode) != (was.size, was.mtime, was.inode):
                raise TransferCut(f"{self._destination.name}:{piece.part} was written to while it was verified")
            if piece.file.name in found:
                piece.stat, piece.proven = now, found[piece.file.name]
        return wrong

    async def _known(self, pieces: Sequence[Piece], linked: Collection[str]) -> list[str]:
        """The SHA-256 of small parts by one command; those of their sources by another, where they are files too."""
        asked = [
            piece
            for piece in pieces
            if piece.file.linkable
            and not (piece.file.name in linked or piece.file.name in self._hashing or self._is_checked(piece))
        ]
        sizes = [piece.file.size for piece in asked]
        self._meter.to_verify(sum(sizes))
        paths = [self._plan.source_path(piece.file) for piece in asked]
        there = asyncio.create_task(digest_many(self._source, paths, sizes, self._meter.verify))
        try:
            sizes_here = [piece.file.size for piece in pieces]
            here = await digest_many(
                self._destination, [piece.part for piece in pieces], sizes_here, self._meter.verify
            )
            with contextlib.suppress(NoHash):
                for piece, sha256 in zip(asked, await there, strict=True):
                    self._hashing[piece.file.name] = asyncio.get_running_loop().create_future()
                    self._hashing[piece.file.name].set_result(sha256)
        finally:
            there.cancel()
            await asyncio.gather(there, return_exceptions=True)
        return here

    def _is_checked(self, piece: Piece) -> bool:
        """Whether what passed here is known to be the source's."""
        return piece.seen and (piece.file.name in self._checked or not piece.file.size)

    async def _compared(self, piece: Piece, here: str, linked: bool) -> str:
        """The SHA-256 of a part that is right; `here` where that is known already. Raises WrongFrom."""
        whole = asyncio.create_task(self._whole(piece, here))
        try:
            if linked:
                await whole
            elif self._is_checked(piece):
                await self._by_chunks(piece, whole)
            else:
                await self._by_source(piece, whole)
        finally:
            whole.cancel()
            await asyncio.gather(whole, return_exceptions=True)
        return whole.result()

    async def _whole(self, piece: Piece, here: str) -> str:
        return here or await digest(self._destination, piece.part, piece.file.size, self._meter.verify)

    async def _by_chunks(self, piece: Piece, whole: asyncio.Task[str]) -> None:
        passed = [piece.known.chunks[number] for number in range(piece.chunks)]
        if len(passed) < 2:
            here: tuple[str, ...] = (await whole,)
            passed = passed or [_NOTHING]
        else:
            self._meter.to_verify(piece.file.size)
            here, _ = await asyncio.gather(
                chunk_digests(self._destination, piece.part, piece.file.size, self._meter.verify), whole
            )
        for number, (found, expected) in enumerate(zip(here, passed, strict=True)):
            if found != expected:
                raise self._wrong(piece, number, found, expected, "what passed here")

    def _source_hash(self, piece: Piece) -> asyncio.Future[str]:
        """The source's own hash, made once for bytes that are not read again."""
        name = piece.file.name
        task = self._hashing.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            self._meter.to_verify(piece.file.size if task is None else 0)
            task = self._hashing[name] = asyncio.create_task(self._source_digest(piece))
        return task

    async def _by_source(self, piece: Piece, whole: asyncio.Task[str]) -> None:
        try:
            here, there = await asyncio.gather(whole, asyncio.shield(self._source_hash(piece)))
        except NoHash:
            # Nothing there hashes: what passed here, and the source's size and time, are all that can be known.
            if not (whole.done() and whole.exception()) and piece.seen:
                await self._by_chunks(piece, whole)
                return
            if piece.guessed:
                sentence = f"{self._destination.name}:{piece.part} lay there, and nothing can tell whether it is right"
                raise WrongFrom(0, sentence) from None
            raise
        if here == there:
            return
        if piece.seen:
            await self._by_chunks(piece, whole)
            raise SourceChanged(
                f"{self._source.name}:{self._plan.source_path(piece.file)} was written again while it moved (the "
                f"SHA-256 of {piece.file.name} is {there[:16]}… there now, of what was read of it {here[:16]}…); plan "
                "again when nobody writes it"
            )
        if piece.file.size <= CHUNK:
            raise self._wrong(piece, 0, here, there, "the source")
        found = await chunk_digests(self._destination, piece.part, piece.file.size)
        output = self._settled(piece)
        for number, sha256 in enumerate(found):
            start = number * CHUNK
            pieces = clipped(output.segments, start, min(start + CHUNK, piece.file.size))
            chunk = Output(piece.file.name, pieces)
            expected = await source_digest(self._source, self._plan.source_folder, chunk)
            if sha256 != expected:
                raise self._wrong(piece, number, sha256, expected, "the source")
        raise TransferCorrupt(
            f"{self._destination.name}:{piece.final}: the SHA-256 of what arrived is {here[:16]}…, of the source "
            f"{there[:16]}…, though each of its chunks is the same; is the file being written, or memory failing?"
        )

    async def _source_digest(self, piece: Piece) -> str:
        output = self._settled(piece)
        return await source_digest(self._source, self._plan.source_folder, output, self._meter.verify)

    def _settled(self, piece: Piece) -> Output:
        where = f"{self._source.name}:{self._plan.source_folder}"
        return settled(piece.file.output, piece.known.crcs, where)

    def _wrong(self, piece: Piece, chunk: int, here: str, there: str, whose: str) -> WrongFrom:
        start = chunk * CHUNK
        stop = min(start + CHUNK, piece.file.size)
        return WrongFrom(
            start,
            f"{self._destination.name}:{piece.final}: the SHA-256 of what arrived as bytes {start:,} to {stop:,} is "
            f"{here[:16]}…, of {whose} {there[:16]}…",
        )
