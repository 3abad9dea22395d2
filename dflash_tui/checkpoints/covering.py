"""A whole file as ranges, with the CRC-32 that a zip's own directory states for the data of its records."""

from __future__ import annotations

from dflash_tui.checkpoints.errors import CheckpointError
from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.segments import Output, Range
from dflash_tui.checkpoints.torchzip import is_zip
from dflash_tui.checkpoints.zipdir import data_offsets, read_directory

MOST = 4096
"""Records whose place is looked up, the largest first: each costs a read of 30 bytes of the far file."""


def covering(files: Files, name: str) -> Output:
    """The file as it is: of a zip, a range with its CRC-32 for the data of each record that is stored as it is (the
    MOST largest), and ranges without one between them; of anything else one range. Raises what the backing raises."""
    size = files.size(name)
    if not size:
        return Output(name, ())
    ranges: list[Range] = []
    at = 0
    for offset, nbytes, crc in _stated(files, name):
        if offset < at:
            continue
        if offset > at:
            ranges.append(Range(name, at, offset - at))
        ranges.append(Range(name, offset, nbytes, crc))
        at = offset + nbytes
    if at < size:
        ranges.append(Range(name, at, size - at))
    return Output(name, tuple(ranges))


def _stated(files: Files, name: str) -> list[tuple[int, int, int]]:
    """(offset, bytes, CRC-32) of records in the order of the file; none of a file that is no readable zip."""
    try:
        if not is_zip(files, name):
            return []
        directory = read_directory(files, name)
        usable = [
            record
            for record in directory.records.values()
            if record.size and record.crc and record.method == 0 and not record.encrypted
            and record.size == record.stored_size
        ]  # fmt: skip
        usable.sort(key=lambda record: -record.size)
        offsets = data_offsets(files, directory, [record.name for record in usable[:MOST]])
    except CheckpointError:
        return []
    return sorted((offsets[record.name], record.size, record.crc) for record in usable[:MOST])
