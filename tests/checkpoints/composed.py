"""Outputs carried out on this machine: what a transfer would write, from the ranges of local files."""

from __future__ import annotations

import zlib
from itertools import pairwise
from pathlib import Path

from dflash_tui.checkpoints.anatomy import read_anatomy
from dflash_tui.checkpoints.files import Files, LocalFiles
from dflash_tui.checkpoints.segments import Late, Literal, Output, Range
from dflash_tui.checkpoints.slim import Slim, without


def composed(files: Files, output: Output) -> bytes:
    """The bytes of an output. Every CRC-32 that a range states is compared with its bytes."""
    parts: list[bytes] = []
    crcs: list[int] = []
    for number, segment in enumerate(output.segments):
        if isinstance(segment, Literal):
            parts.append(segment.data)
        elif isinstance(segment, Range):
            data = files.read(segment.file, segment.offset, segment.nbytes)
            crcs.append(zlib.crc32(data))
            assert segment.crc in (None, crcs[-1]), segment
            parts.append(data)
        else:
            assert isinstance(segment, Late)
            assert number == len(output.segments) - 1
            parts.append(segment.build(crcs))
            assert len(parts[-1]) == segment.nbytes
    made = b"".join(parts)
    assert len(made) == output.size
    return made


def slim_copy(files: LocalFiles, folder: Path, leave: frozenset[str] = frozenset()) -> tuple[Slim, LocalFiles]:
    """The slim copy of a checkpoint with a model of any kind, written into an empty folder."""
    made = without(files, read_anatomy(files), leave)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / made.output.name).write_bytes(composed(files, made.output))
    return made, LocalFiles(folder, [made.output.name])


def is_in_order(output: Output) -> bool:
    """Whether ranges of one file follow one another as they lie in it."""
    ranges = [segment for segment in output.segments if isinstance(segment, Range)]
    return all(a.file != b.file or a.offset + a.nbytes <= b.offset for a, b in pairwise(ranges))
