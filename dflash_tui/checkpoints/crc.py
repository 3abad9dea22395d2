"""The CRC-32 of bytes whose parts' CRC-32s are known, without reading them again."""

from __future__ import annotations

from collections.abc import Sequence

_POLYNOMIAL = 0xEDB88320  # of zip's CRC-32, lowest power in the highest bit
_ONE, _X8 = 1 << 31, 1 << 23


def crc32_joined(parts: Sequence[tuple[int, int]]) -> int:
    """The CRC-32 of parts that follow one another, each given as (its CRC-32, its length in bytes).

    A CRC is a remainder of polynomials over GF(2): bytes that follow multiply what came before by x^(8 · length).
    """
    crc = 0
    for part, length in parts:
        crc = (_times(_power(length), crc) if crc else 0) ^ part
    return crc


def _times(one: int, other: int) -> int:
    """The product of two remainders."""
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product


def _power(nbytes: int) -> int:
    """x^(8 · nbytes) as a remainder."""
    power, square = _ONE, _X8
    while nbytes:
        if nbytes & 1:
            power = _times(power, square)
        square = _times(square, square)
        nbytes >>= 1
    return power
