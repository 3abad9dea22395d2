"""What is computed of bytes while they pass: SHA-256 of every chunk, CRC-32 of every piece that states one."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dflash_tui.checkpoints.segments import Late, Literal, Output, Range
from dflash_tui.transfer.engine import CHUNK
from dflash_tui.transfer.errors import TransferError


@dataclass(frozen=True)
class Done:
    """Chunk `number` of an output, which ends at byte `stop` of it, has this SHA-256 (hex)."""

    number: int
    stop: int
    sha256: str


class Wrong(Exception):
    """A piece of an output, by its index in the segments, is not what its CRC-32 says; `start` is where it begins."""

    def __init__(self, index: int, start: int, found: int) -> None:
        super().__init__(f"segment {index}: CRC-32 {found:08x}")
        self.index, self.start, self.found = index, start, found


@dataclass(frozen=True)
class _Span:
    index: int
    start: int
    stop: int
    crc: int | None


class InFlight:
    """Bytes `start` … `stop` of an output as they pass, `start` being where a chunk begins. `crcs` are the CRC-32s of
    the ranges that have passed whole, by their index in the segments: of those that state one, and of all where the
    output's last piece is made of them.

    Not safe for threads: `update` runs in one at a time, and lets others run meanwhile.
    """

    def __init__(self, output: Output, start: int, stop: int) -> None:
        """Raises ValueError for a start within a chunk."""
        if start % CHUNK:
            raise ValueError(f"a leg begins where a chunk of {CHUNK} bytes does, not at {start}")
        self.crcs: dict[int, int] = {}
        self._output = output
        self._at, self._stop = start, stop
        self._sha256 = hashlib.sha256()
        self._spans = _spans(output, start, stop)
        self._next = 0
        self._crc = 0

    def update(self, blocks: Sequence[bytes]) -> list[Done]:
        """Take in the next bytes, and tell which chunks are complete now. Raises Wrong."""
        done: list[Done] = []
        for block in blocks:
            view = memoryview(block)
            self._check(view)
            while view:
                room = CHUNK - self._at % CHUNK
                self._sha256.update(view[:room])
                self._at += min(room, len(view))
                if self._at % CHUNK == 0 or self._at == self._stop:
                    done.append(Done((self._at - 1) // CHUNK, self._at, self._sha256.hexdigest()))
                    self._sha256 = hashlib.sha256()
                view = view[room:]
        return done

    def _check(self, view: memoryview) -> None:
        first, last = self._at, self._at + len(view)
        while self._next < len(self._spans) and self._spans[self._next].start < last:
            span = self._spans[self._next]
            self._crc = zlib.crc32(view[max(0, span.start - first) : span.stop - first], self._crc)
            if span.stop > last:
                return
            self._finish(span)
            self._next += 1
            self._crc = 0

    def _finish(self, span: _Span) -> None:
        if span.crc is not None and self._crc != span.crc:
            raise Wrong(span.index, span.start, self._crc)
        if isinstance(self._output.segments[span.index], Range):
            self.crcs[span.index] = self._crc


def _spans(output: Output, start: int, stop: int) -> list[_Span]:
    """The pieces that lie whole between two positions, and whose CRC-32 is of use."""
    needed = bool(output.segments) and isinstance(output.segments[-1], Late)
    spans: list[_Span] = []
    at = 0
    for index, segment in enumerate(output.segments):
        end = at + segment.nbytes
        if start <= at and end <= stop and segment.nbytes and not isinstance(segment, Late):
            crc = zlib.crc32(segment.data) if isinstance(segment, Literal) else segment.crc
            if crc is not None or needed:
                spans.append(_Span(index, at, end, crc))
        at = end
    return spans


def built(output: Output, late: Late, crcs: Mapping[int, int], where: str) -> bytes:
    """An output's last piece, of the CRC-32s that passed (by index) or that the ranges state. Raises TransferError
    when one is unknown, or when it is not as long as it was planned."""
    known: list[int] = []
    for index, segment in enumerate(output.segments):
        if isinstance(segment, Range):
            crc = segment.crc if segment.crc is not None else crcs.get(index, 0 if not segment.nbytes else None)
            if crc is None:
                raise TransferError(
                    f"{where}: the CRC-32 of the {segment.nbytes:,} bytes at offset {segment.offset:,} is unknown, and "
                    f"{output.name} can't be ended without it; begin the transfer again"
                )
            known.append(crc)
    data = late.build(known)
    if len(data) != late.nbytes:
        raise TransferError(f"{where}: the end of {output.name} has {len(data):,} bytes, {late.nbytes:,} were planned")
    return data


def settled(output: Output, crcs: Mapping[int, int], where: str) -> Output:
    """The output with its last piece made, once every CRC-32 is known. Raises as `built` does."""
    last = output.segments[-1] if output.segments else None
    if not isinstance(last, Late):
        return output
    return Output(output.name, (*output.segments[:-1], Literal(built(output, last, crcs, where))))
