"""A tensor's logical bytes (C order), streamed in bounded pieces whatever its strides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from dflash_tui.checkpoints.files import Files
from dflash_tui.checkpoints.keys import Part
from dflash_tui.checkpoints.structure import Extent, TensorInfo

CHUNK = 8 << 20
"""Bytes of a piece, and of the working buffer for tensors that are not dense."""


def part_extents(part: Part) -> tuple[Extent, ...] | None:
    """The byte ranges that, one after the other, are exactly the part's logical bytes; None when it is not dense.

    A range that is all of its record has the record's CRC-32, where it is stated.
    """
    info = part.info
    row = prod(info.shape[1:]) * info.itemsize
    first, last = (0, info.nbytes) if part.row_stop is None else (part.row_start * row, part.row_stop * row)
    if not info.pieces:
        if not info.contiguous:
            return None
        extent = Extent(info.file, info.offset + first, last - first)
        whole = replace(extent, crc=info.storage_crc)
        return (whole if whole == info.storage else extent,)
    found: list[Extent] = []
    at = 0
    for piece in info.pieces:
        start, stop = max(first, at), min(last, at + piece.nbytes)
        if start < stop:
            within = Extent(piece.file, piece.offset + start - at, stop - start)
            found.append(piece if within.nbytes == piece.nbytes else within)
        at += piece.nbytes
    return tuple(found)


def part_extent(part: Part) -> Extent | None:
    """The one byte range that is exactly the part's logical bytes; None when it is not dense, or in several places."""
    extents = part_extents(part)
    return extents[0] if extents is not None and len(extents) == 1 else None


def logical_bytes(files: Files, part: Part) -> Iterator[bytes]:
    """The part's bytes in C order, little-endian as stored. Raises CheckpointError (and the backing's own)."""
    extents = part_extents(part)
    if extents is not None:
        for extent in extents:
            for start in range(0, extent.nbytes, CHUNK):
                yield files.read(extent.file, extent.offset + start, min(CHUNK, extent.nbytes - start))
        return
    info, shape, offset = part.info, part.shape, part.info.offset
    if part.row_stop is not None:
        offset += part.row_start * info.strides[0] * info.itemsize
    yield from _strided(files, info, offset, shape, info.strides)


def _strided(
    files: Files, info: TensorInfo, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> Iterator[bytes]:
    if prod(shape) == 0:
        return
    if len(shape) > 2:
        for index in range(shape[0]):
            yield from _strided(files, info, offset + index * strides[0] * info.itemsize, shape[1:], strides[1:])
        return
    rows, columns = (1, *shape)[-2:]
    row_stride, column_stride = (0, *strides)[-2:]
    band = max(1, CHUNK // max(columns * info.itemsize, 1))
    for first in range(0, rows, band):
        count = min(band, rows - first)
        start = offset + first * row_stride * info.itemsize
        yield _band(files, info, start, (count, columns), (row_stride, column_stride))


def _band(files: Files, info: TensorInfo, start: int, shape: tuple[int, int], strides: tuple[int, int]) -> bytes:
    """Rows of a strided matrix as dense bytes, read along whichever axis lies denser in the file."""
    rows, columns = shape
    row_stride, column_stride = strides
    output = bytearray(rows * columns * info.itemsize)
    if column_stride <= row_stride or rows == 1:
        for row in range(rows):
            line = _line(files, info, start + row * row_stride * info.itemsize, columns, column_stride)
            output[row * columns * info.itemsize : (row + 1) * columns * info.itemsize] = line
        return bytes(output)
    width = _cells(info.itemsize)
    target = _as_cells(output, info.itemsize)
    for column in range(columns):
        line = _line(files, info, start + column * column_stride * info.itemsize, rows, row_stride)
        cells = _as_cells(line, info.itemsize)
        for part in range(width):
            target[column * width + part :: columns * width] = cells[part::width]
    return bytes(output)


def _line(files: Files, info: TensorInfo, start: int, count: int, stride: int) -> bytes:
    """`count` elements, `stride` elements apart, as dense bytes; the gaps are read too, in pieces of about CHUNK."""
    if count == 0:
        return b""
    if stride == 1:
        return files.read(info.file, start, count * info.itemsize)
    if stride == 0:
        return files.read(info.file, start, info.itemsize) * count
    width = _cells(info.itemsize)
    piece = max(1, CHUNK // (stride * info.itemsize))
    lines: list[bytes] = []
    for first in range(0, count, piece):
        taken = min(piece, count - first)
        raw = files.read(info.file, start + first * stride * info.itemsize, ((taken - 1) * stride + 1) * info.itemsize)
        cells = _as_cells(raw, info.itemsize)
        line = _as_cells(bytearray(taken * info.itemsize), info.itemsize)
        for part in range(width):
            line[part::width] = cells[part :: stride * width]
        lines.append(line.tobytes())
    return b"".join(lines)


def _as_cells(data: bytes | bytearray, itemsize: int) -> memoryview[int]:
    """The bytes as machine cells of an element each (16-byte elements: two cells of 8)."""
    view = memoryview(data)
    if itemsize == 1:
        return view.cast("B")
    if itemsize == 2:
        return view.cast("H")
    return view.cast("I") if itemsize == 4 else view.cast("Q")


def _cells(itemsize: int) -> int:
    """Cells an element."""
    return max(1, itemsize // 8)
