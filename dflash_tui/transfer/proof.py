"""That what lies at the destination is what the source has, before it gets a name."""

from __future__ import annotations

import asyncio
import hashlib

from dflash_tui.checkpoints.segments import Output, clipped
from dflash_tui.hosts.base import Host, ReadShort
from dflash_tui.transfer.digests import chunk_digests, digest, source_digest
from dflash_tui.transfer.emission import skipping
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import TransferCorrupt, TransferCut
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
    """Compares both ends. Where every chunk's hash is known from when it passed through this process, what lies at the
    destination is compared with those; else with the source's own hash, which is made beside the transfer as soon as it
    is known to be needed, while the file is in its cache."""

    def __init__(self, plan: TransferPlan, source: Host, destination: Host, meter: Meter) -> None:
        self._plan, self._source, self._destination, self._meter = plan, source, destination, meter
        self._hashing: dict[str, asyncio.Task[str]] = {}

    def begin(self, piece: Piece) -> None:
        """The source's own hash is going to be needed."""
        name = piece.file.name
        task = self._hashing.get(name)
        failed = task is not None and task.done() and (task.cancelled() or task.exception() is not None)
        if (task is None or failed) and (piece.late is None or piece.at == piece.file.size):
            self._hashing[name] = asyncio.create_task(self._source_digest(piece))
            self._meter.to_verify(0 if failed else piece.file.size)

    async def close(self) -> None:
        """Stop what is still being computed."""
        for task in self._hashing.values():
            task.cancel()
        await asyncio.gather(*self._hashing.values(), return_exceptions=True)

    async def prove(self, piece: Piece, *, linked: bool = False) -> None:
        """Set the piece's `proven` and `stat`; a link to the source needs nothing to be compared. Raises WrongFrom,
        TransferCut when somebody wrote into it meanwhile."""
        size = piece.file.size
        before = await self._destination.stat(piece.part, follow=False)
        if before.size != size:
            raise ReadShort(f"{self._destination.name}:{piece.part} has {before.size:,} of {size:,} bytes")
        self._meter.to_verify(size)
        whole = asyncio.create_task(digest(self._destination, piece.part, size, self._meter.verify))
        try:
            if linked:
                await whole
            else:
                await (self._by_chunks(piece, whole) if piece.seen else self._by_source(piece, whole))
        finally:
            whole.cancel()
            await asyncio.gather(whole, return_exceptions=True)
        after = await self._destination.stat(piece.part, follow=False)
        if (after.size, after.mtime, after.inode) != (before.size, before.mtime, before.inode):
            raise TransferCut(f"{self._destination.name}:{piece.part} was written to while it was verified")
        piece.stat, piece.proven = after, whole.result()

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

    async def _by_source(self, piece: Piece, whole: asyncio.Task[str]) -> None:
        self.begin(piece)
        here, there = await asyncio.gather(whole, asyncio.shield(self._hashing[piece.file.name]))
        if here == there:
            return
        if piece.file.size <= CHUNK:
            raise self._wrong(piece, 0, here, there, "the source")
        found = await chunk_digests(self._destination, piece.part, piece.file.size)
        output, by = self._settled(piece), await skipping(self._source)
        for number, sha256 in enumerate(found):
            start = number * CHUNK
            pieces = clipped(output.segments, start, min(start + CHUNK, piece.file.size))
            chunk = Output(piece.file.name, pieces)
            expected = await source_digest(self._source, self._plan.source_folder, chunk, by)
            if sha256 != expected:
                raise self._wrong(piece, number, sha256, expected, "the source")
        raise TransferCorrupt(
            f"{self._destination.name}:{piece.final}: the SHA-256 of what arrived is {here[:16]}…, of the source "
            f"{there[:16]}…, though each of its chunks is the same; is the file being written, or memory failing?"
        )

    async def _source_digest(self, piece: Piece) -> str:
        output, by = self._settled(piece), await skipping(self._source)
        return await source_digest(self._source, self._plan.source_folder, output, by, self._meter.verify)

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
