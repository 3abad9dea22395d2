"""A part of a file, read as a file of its own: an archive that lies between others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dflash_tui.checkpoints.errors import CheckpointIncomplete
from dflash_tui.checkpoints.files import Files, read_many

_NEAR = 1 << 14  # bytes between two ranges that are rather read with them
_BATCH = 512  # ranges asked for at a time


@dataclass(frozen=True)
class Window:
    """Bytes `offset` … `offset + length` of `file` as the only file there is, under the same name.

    `known` are ranges of the whole file that were read before, sorted: (position, bytes).
    """

    files: Files
    file: str
    offset: int
    length: int
    known: Sequence[tuple[int, bytes]] = ()

    def names(self) -> list[str]:
        """The one name."""
        return [self.file]

    def size(self, name: str) -> int:
        """Bytes of the part."""
        return self.length

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Exactly the bytes offset … offset+length of the part. Raises CheckpointIncomplete past its end."""
        if offset + length > self.length:
            raise CheckpointIncomplete(
                f"{self.file}: the part at byte {self.offset} ends at byte {self.length} of it, "
                f"expected {offset + length}"
            )
        start = self.offset + offset
        for position, data in self.known:
            if position <= start and start + length <= position + len(data):
                return data[start - position : start - position + length]
        return self.files.read(self.file, start, length)


def read_ahead(files: Files, file: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """The bytes of (offset, length) ranges as (position, bytes), sorted; ranges that lie near each other as one."""
    merged: list[tuple[int, int]] = []
    for offset, length in sorted(ranges):
        if merged and offset <= merged[-1][1] + _NEAR:
            merged[-1] = (merged[-1][0], max(merged[-1][1], offset + length))
        else:
            merged.append((offset, offset + length))
    found: list[tuple[int, bytes]] = []
    for first in range(0, len(merged), _BATCH):
        batch = [(start, end - start) for start, end in merged[first : first + _BATCH]]
        parts = read_many(files, file, batch)
        found.extend((start, data) for (start, _), data in zip(batch, parts, strict=True))
    return found
