"""A zip as torch writes it: stored records, 64-byte aligned, laid out before a byte of their data is read.

Where the CRC-32 of a record is only known once its data has passed, the directory at the end is a `Late` piece.
Fields: PKWARE APPNOTE 4.3. torch's own records say in their local headers, too, that the directory has the CRC.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from dflash_tui.checkpoints.crc import crc32_joined
from dflash_tui.checkpoints.segments import Late, Literal, Range, Segment
from dflash_tui.checkpoints.structure import Extent

ALIGNMENT = 64
CUT = 64 << 20
"""Data without a CRC-32 of its own is cut at multiples of this in the output: a transfer that is cut and continued at
such places still knows the CRC of every piece."""

_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_UTF8, _LATER_CRC = 0x800, 0x808
_NEW_YEAR_1980 = 0x21


@dataclass(frozen=True)
class Record:
    """A record to be written: bytes that are given, or `extents` of the source one after the other."""

    name: str
    data: bytes = b""
    extents: tuple[Extent, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of its data."""
        return len(self.data) + sum(extent.nbytes for extent in self.extents)

    @property
    def crc(self) -> int | None:
        """CRC-32 of its data; None where it is known of no more than some of it."""
        parts = [(extent.crc, extent.nbytes) for extent in self.extents]
        known = [(crc, nbytes) for crc, nbytes in parts if crc is not None]
        if len(known) != len(parts):
            return None
        return crc32_joined([(zlib.crc32(self.data), len(self.data)), *known])


@dataclass
class _Layout:
    """Segments so far (with literal bytes that are not yet one), and the directory entry of each record."""

    segments: list[Segment] = field(default_factory=list)
    pending: list[bytes] = field(default_factory=list)
    position: int = 0
    ranges: int = 0
    entries: list[_Entry] = field(default_factory=list)

    def literal(self, data: bytes) -> None:
        self.pending.append(data)
        self.position += len(data)

    def range(self, piece: Range) -> None:
        self.flush()
        self.segments.append(piece)
        self.position += piece.nbytes
        self.ranges += 1

    def flush(self) -> None:
        if self.pending:
            self.segments.append(Literal(b"".join(self.pending)))
            self.pending = []


@dataclass(frozen=True)
class _Entry:
    """A directory entry; `lengths` are the sizes of the ranges from number `first_range` on that its data consists of,
    of which the CRC-32 is made when `crc` is None."""

    name: bytes
    nbytes: int
    offset: int
    crc: int | None
    first_range: int = 0
    lengths: tuple[int, ...] = ()


def zip_segments(records: Sequence[Record]) -> tuple[Segment, ...]:
    """The whole zip file: headers, data and directory."""
    layout = _Layout()
    for record in records:
        _add(layout, record)
    entries, start = tuple(layout.entries), layout.position
    if all(entry.crc is not None for entry in entries):
        layout.literal(_directory(entries, start, ()))
        layout.flush()
        return tuple(layout.segments)
    layout.flush()
    size = len(_directory(entries, start, [0] * layout.ranges))
    return (*layout.segments, Late(size, lambda crcs: _directory(entries, start, crcs)))


def _add(layout: _Layout, record: Record) -> None:
    name, nbytes, crc = record.name.encode("utf-8"), record.nbytes, record.crc
    offset = layout.position
    layout.literal(_local_header(name, nbytes, crc, offset))
    layout.literal(record.data)
    first = layout.ranges
    lengths: list[int] = []
    for extent in record.extents:
        for piece in _cut(extent, layout.position):
            layout.range(piece)
            lengths.append(piece.nbytes)
    if crc is None:
        layout.literal(_descriptor(nbytes))
    layout.entries.append(_Entry(name, nbytes, offset, crc, first, tuple(lengths)))


def _cut(extent: Extent, position: int) -> list[Range]:
    """An extent that will lie at `position` of the output, as one range, or as several where its CRC is not known."""
    if extent.crc is not None:
        return [Range(extent.file, extent.offset, extent.nbytes, extent.crc)] if extent.nbytes else []
    pieces: list[Range] = []
    done = 0
    while done < extent.nbytes:
        length = min(extent.nbytes - done, CUT - (position + done) % CUT)
        pieces.append(Range(extent.file, extent.offset + done, length))
        done += length
    return pieces


def _local_header(name: bytes, nbytes: int, crc: int | None, offset: int) -> bytes:
    """A local header whose extra field is filled up so that the data begins at a multiple of ALIGNMENT."""
    wide = nbytes >= _FULL32
    extra = struct.pack("<HHQQ", 1, 16, nbytes, nbytes) if wide else b""
    filled = offset + 30 + len(name) + len(extra) + 4
    padding = -filled % ALIGNMENT
    extra += struct.pack("<2sH", b"FB", padding) + bytes(padding)
    size = _FULL32 if wide else nbytes
    flags = _LATER_CRC if crc is None else _UTF8
    fixed = struct.pack(
        "<4sHHHHHIIIHH", b"PK\x03\x04", 45 if wide else 20, flags, 0, 0, _NEW_YEAR_1980, crc or 0, size, size,
        len(name), len(extra),
    )  # fmt: skip
    return fixed + name + extra


def _descriptor(nbytes: int) -> bytes:
    """What stands behind data whose CRC-32 its local header lacks: not known here either, the directory has it."""
    return struct.pack("<4sIQQ" if nbytes >= _FULL32 else "<4sIII", b"PK\x07\x08", 0, nbytes, nbytes)


def _directory(entries: Sequence[_Entry], start: int, crcs: Sequence[int]) -> bytes:
    """Central directory and end records; its length does not depend on the CRCs."""
    directory = b"".join(_central(entry, crcs) for entry in entries)
    count, size, end = len(entries), len(directory), start + len(directory)
    end64 = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start)
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1)
    short = min(count, _FULL16)
    tail = struct.pack(
        "<4sHHHHIIH", b"PK\x05\x06", 0, 0, short, short, min(size, _FULL32), min(start, _FULL32), 0
    )  # fmt: skip
    return directory + end64 + locator + tail


def _central(entry: _Entry, crcs: Sequence[int]) -> bytes:
    crc = entry.crc
    if crc is None:
        found = crcs[entry.first_range : entry.first_range + len(entry.lengths)]
        crc = crc32_joined(list(zip(found, entry.lengths, strict=True)))
    wide = [value for value in (entry.nbytes, entry.nbytes, entry.offset) if value >= _FULL32]
    extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    size = min(entry.nbytes, _FULL32)
    version = 45 if wide else 20
    flags = _LATER_CRC if entry.crc is None else _UTF8
    fixed = struct.pack(
        "<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", version, version, flags, 0, 0, _NEW_YEAR_1980, crc, size, size,
        len(entry.name), len(extra), 0, 0, 0, 0, min(entry.offset, _FULL32),
    )  # fmt: skip
    return fixed + entry.name + extra
