"""Where the records of a zip file lie, from its tail alone (PKWARE APPNOTE 4.3: end records, central directory)."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dflash_tui.checkpoints.errors import CheckpointDamaged, CheckpointIncomplete, CheckpointUnsupported, guarded
from dflash_tui.checkpoints.files import Files, read_many
from dflash_tui.checkpoints.sentences import shown

TAIL = 1 << 17
"""Bytes read from the end: the end record with the longest comment, and a usual central directory."""

MAX_RECORDS = 250_000
"""Records of a zip that are read: some hundred times those of the largest drafters."""

_END, _END64, _LOCATOR64, _CENTRAL, _LOCAL = (b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x01\x02", b"PK\x03\x04")
_MAX_DIRECTORY = 64 << 20
_ENTRY = struct.Struct("<4s2x2x2H4x3I3H8xI")  # of the directory: signature, flags, method, CRC, sizes, lengths, offset
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF


@dataclass(frozen=True)
class ZipRecord:
    """One entry of the central directory; `crc` 0 on a non-empty record means that the writer kept none."""

    name: str
    size: int
    stored_size: int
    crc: int
    method: int
    encrypted: bool
    header_offset: int


@dataclass(frozen=True)
class ZipDirectory:
    """The records of a zip file in directory order, and where the directory begins."""

    file: str
    records: Mapping[str, ZipRecord]
    offset: int
    size: int


@guarded
def read_directory(files: Files, file: str, tail_length: int = TAIL) -> ZipDirectory:
    """The central directory. Raises CheckpointIncomplete (no end yet, or cut), CheckpointDamaged.

    One read of the last `tail_length` bytes is enough unless the directory, or a comment behind it, is longer.
    """
    total = files.size(file)
    start = max(0, total - tail_length)
    tail = files.read(file, start, total - start)
    end, count, size, offset = _find_end(file, total, start, tail, files)
    if offset + size != end:
        raise CheckpointIncomplete(
            f"{file}: its zip directory should end at byte {offset + size}, its end record is at {end}; "
            "the file is cut or was changed while it was read"
        )
    if size > _MAX_DIRECTORY:
        raise CheckpointUnsupported(f"{file}: a zip directory of {size} bytes; more than {_MAX_DIRECTORY} is refused")
    if count > MAX_RECORDS:
        raise CheckpointUnsupported(f"{file}: a zip of {count} records; more than {MAX_RECORDS} are not read")
    data = tail[offset - start : offset - start + size] if offset >= start else files.read(file, offset, size)
    records: dict[str, ZipRecord] = {}
    for record in _records(file, data):
        if record.header_offset + 30 + record.stored_size > offset or record.name in records:
            raise CheckpointDamaged(
                f"{file}: record {shown(record.name)} is listed twice or reaches into the directory"
            )
        records[record.name] = record
    if len(records) != count:
        raise CheckpointDamaged(f"{file}: its zip directory holds {len(records)} records, its end record says {count}")
    return ZipDirectory(file, records, offset, size)


@guarded
def data_offsets(files: Files, directory: ZipDirectory, names: Sequence[str]) -> dict[str, int]:
    """File position of each record's first byte, from the local headers (30 bytes each, read together).

    Raises CheckpointUnsupported for compressed or encrypted records, CheckpointDamaged.
    """
    records = [directory.records[name] for name in names]
    for record in records:
        if record.method != 0 or record.encrypted or record.size != record.stored_size:
            kind = "encrypted" if record.encrypted else "compressed"
            raise CheckpointUnsupported(
                f"{directory.file}: record {shown(record.name)} is {kind}; only stored (uncompressed) zips can be read "
                "in place, save it again with torch.save"
            )
    headers = read_many(files, directory.file, [(record.header_offset, 30) for record in records])
    offsets: dict[str, int] = {}
    for record, header in zip(records, headers, strict=True):
        if len(header) != 30 or header[:4] != _LOCAL:
            raise CheckpointDamaged(
                f"{directory.file}: no local header of {shown(record.name)} at {record.header_offset}"
            )
        name_length, extra_length = struct.unpack_from("<HH", header, 26)
        offset = record.header_offset + 30 + name_length + extra_length
        if offset + record.size > directory.offset:
            raise CheckpointDamaged(f"{directory.file}: record {shown(record.name)} reaches into the zip directory")
        offsets[record.name] = offset
    return offsets


def _find_end(file: str, total: int, start: int, tail: bytes, files: Files) -> tuple[int, int, int, int]:
    """(position of the first end record, number of records, directory size, directory offset)."""
    position = tail.rfind(_END)
    while position >= 0:
        if position + 22 <= len(tail):
            comment = struct.unpack_from("<H", tail, position + 20)[0]
            if position + 22 + comment == len(tail):
                break
        position = tail.rfind(_END, 0, position + len(_END) - 1)
    if position < 0:
        raise CheckpointIncomplete(f"{file}: no zip end record in its {total} bytes; cut, or still being written?")
    count, size, offset = struct.unpack_from("<HII", tail, position + 10)
    end = start + position
    locator = position - 20
    if locator >= 0 and tail[locator : locator + 4] == _LOCATOR64:
        end64 = struct.unpack_from("<Q", tail, locator + 8)[0]
        if end64 + 56 > end:
            raise CheckpointDamaged(f"{file}: its zip64 locator points to byte {end64}, past the end record")
        record = files.read(file, end64, 56) if end64 < start else tail[end64 - start : end64 - start + 56]
        if record[:4] != _END64:
            raise CheckpointDamaged(f"{file}: no zip64 end record at byte {end64}")
        count, size, offset = struct.unpack_from("<QQQ", record, 32)
        end = end64
    elif count == _FULL16 or size == _FULL32 or offset == _FULL32:
        raise CheckpointDamaged(f"{file}: its end record asks for a zip64 end record, which is not there")
    return end, count, size, offset


def _records(file: str, data: bytes) -> list[ZipRecord]:
    found: list[ZipRecord] = []
    position = 0
    while position < len(data):
        if position + _ENTRY.size > len(data) or len(found) >= MAX_RECORDS:
            raise CheckpointDamaged(f"{file}: its zip directory is damaged at byte {position} of {len(data)}")
        (
            signature, flags, method, crc, stored, size, name_length, extra_length, comment_length, header_offset
        ) = _ENTRY.unpack_from(data, position)  # fmt: skip
        end = position + 46 + name_length + extra_length + comment_length
        if signature != _CENTRAL or end > len(data):
            raise CheckpointDamaged(f"{file}: its zip directory is damaged at byte {position} of {len(data)}")
        raw_name = data[position + 46 : position + 46 + name_length]
        extra = data[position + 46 + name_length : position + 46 + name_length + extra_length]
        if _FULL32 in (size, stored, header_offset):
            size, stored, header_offset = _zip64(file, extra, size, stored, header_offset)
        name = raw_name.decode("utf-8", "replace")
        found.append(ZipRecord(name, size, stored, crc, method, bool(flags & 1), header_offset))
        position = end
    return found


def _zip64(file: str, extra: bytes, *values: int) -> tuple[int, int, int]:
    """Sizes and offset with those that are all ones taken from the zip64 extra field, in their fixed order."""
    wide: list[int] = []
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, position)
        if kind == 1:
            body = extra[position + 4 : position + 4 + length]
            wide = [item[0] for item in struct.iter_unpack("<Q", body[: len(body) // 8 * 8])]
        position += 4 + length
    resolved: list[int] = []
    for value in values:
        if value == _FULL32:
            if not wide:
                raise CheckpointDamaged(f"{file}: a record of 4 GiB or more lacks its zip64 sizes")
            value = wide.pop(0)
        resolved.append(value)
    return resolved[0], resolved[1], resolved[2]
