"""A file as a list of pieces: bytes that are given, and byte ranges of other files. Known whole before a byte is read.

A checkpoint that is brought as it is is one range; one that is brought without its optimizer is some hundred ranges
with new headers between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Tuple, Union


@dataclass(frozen=True)
class Literal:
    """Bytes that the plan itself holds: headers, a pickle, a directory."""

    data: bytes

    @property
    def nbytes(self) -> int:
        """Its length."""
        return len(self.data)


@dataclass(frozen=True)
class Range:
    """Bytes `offset` … `offset + nbytes` of `file` (relative to the checkpoint's folder). `crc` is their CRC-32 as the
    source's own directory states it; None where it states none for exactly these bytes."""

    file: str
    offset: int
    nbytes: int
    crc: Union[int, None] = None


@dataclass(frozen=True)
class Late:
    """The last piece of a file that tells CRC-32s which nobody knew at the beginning (a zip's directory over records
    that had none): `build` gets the CRC-32 of every Range before it, in order, and makes exactly `nbytes` bytes."""

    nbytes: int
    build: Callable[[Sequence[int]], bytes]


Segment = Union[Literal, Range, Late]


@dataclass(frozen=True)
class Output:
    """A file to be written: `name` relative to the destination's folder, `segments` in order. Only the last of them may
    be a Late."""

    name: str
    segments: Tuple[Segment, ...]

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return sum(segment.nbytes for segment in self.segments)

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that it is read from, in order of first use."""
        return tuple(dict.fromkeys(segment.file for segment in self.segments if isinstance(segment, Range)))

    @property
    def whole(self) -> bool:
        """Whether it is the first bytes of one file as they lie at the source."""
        pieces = joined(self.segments)
        return len(pieces) == 1 and isinstance(pieces[0], Range) and pieces[0].offset == 0


def clipped(segments: Sequence[Segment], start: int, stop: int) -> tuple[Union[Literal, Range], ...]:
    """What makes up bytes `start` … `stop` of the file. A clipped range keeps its CRC only where it is whole.

    Raises ValueError when a Late lies in there: its bytes are not known yet.
    """
    pieces: list[Union[Literal, Range]] = []
    at = 0
    for segment in segments:
        first, last = max(start, at), min(stop, at + segment.nbytes)
        if first < last:
            if isinstance(segment, Late):
                raise ValueError("the last piece is not known before the others have passed")
            if last - first == segment.nbytes:
                pieces.append(segment)
            elif isinstance(segment, Literal):
                pieces.append(Literal(segment.data[first - at : last - at]))
            else:
                pieces.append(replace(segment, offset=segment.offset + first - at, nbytes=last - first, crc=None))
        at += segment.nbytes
    return tuple(pieces)


def joined(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """With ranges that follow one another in the same file made one (without a CRC): what is read in one go."""
    pieces: list[Segment] = []
    for segment in segments:
        last = pieces[-1] if pieces else None
        if (
            isinstance(segment, Range)
            and isinstance(last, Range)
            and last.file == segment.file
            and last.offset + last.nbytes == segment.offset
        ):
            pieces[-1] = Range(last.file, last.offset, last.nbytes + segment.nbytes)
        else:
            pieces.append(segment)
    return tuple(pieces)
