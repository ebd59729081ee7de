"""Bit streams of the packed types: LSB first, ``ceil(count * bits / 8)`` bytes.

A *code* is the unsigned number stored for an element. i1, i2, i4 and t2 are two's complement, t1 stores -1 as 0 and +1
as 1. All functions work on whole arrays; loops run over cache-sized chunks, not over elements.
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.dtypes.table import DType

Bytes = npt.NDArray[np.uint8]

_PIECE = 1 << 15
_WORDS: dict[int, np.dtype[Any]] = {1: np.dtype("<u8"), 2: np.dtype("<u4"), 4: np.dtype("<u2")}


def pack(values: npt.NDArray[Any], dtype: DType) -> Bytes:
    """Pack byte-sized elements (``dtype.array``) into a bit stream. Values must be in the type's range.

    >>> from openinfer.dtypes import dtype_of
    >>> pack(np.array([1, -2, 3], np.int8), dtype_of("i4")).tobytes().hex()
    'e103'
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    if dtype.bits == 1:
        return np.packbits(flat.view(np.int8) > 0 if dtype.name == "t1" else flat.view(np.bool_), bitorder="little")
    per_byte = 8 // dtype.bits
    whole = flat.size - flat.size % per_byte
    out = np.zeros(dtype.nbytes(flat.size), np.uint8)
    _pack_words(flat[:whole].view(_WORDS[dtype.bits]), dtype.bits, out)
    if whole != flat.size:
        tail = np.zeros(per_byte, np.uint8)
        tail[: flat.size - whole] = flat[whole:].view(np.uint8)
        _pack_words(tail.view(_WORDS[dtype.bits]), dtype.bits, out[-1:])
    return out


def _pack_words(words: npt.NDArray[Any], bits: int, out: Bytes) -> None:
    """Compact words that hold one element per byte into one byte each."""
    for start in range(0, words.size, _PIECE):
        piece = words[start : start + _PIECE]
        if bits == 4:
            packed = piece & 0x0F
            packed |= (piece >> 4) & 0xF0
        else:
            packed = piece & 0x03030303
            packed |= packed >> 6
            packed |= packed >> 12
        out[start : start + piece.size] = packed & 0xFF


@cache
def _expansion(dtype: DType) -> npt.NDArray[Any]:
    """For each byte value of a stream, its elements as one word of ``dtype.array`` bytes."""
    codes = np.arange(256)[:, None] >> np.arange(0, 8, dtype.bits) & (1 << dtype.bits) - 1
    if dtype.name == "t1":
        elements = codes * 2 - 1
    elif dtype.array == np.int8:
        sign = 1 << dtype.bits - 1
        elements = (codes ^ sign) - sign
    else:
        elements = codes
    return elements.astype(np.uint8).view(_WORDS[dtype.bits]).reshape(-1)


def unpack(stream: Bytes, dtype: DType, start: int, count: int) -> npt.NDArray[Any]:
    """Elements ``start`` to ``start + count`` of a bit stream, one per byte, as ``dtype.array``.

    >>> from openinfer.dtypes import dtype_of
    >>> unpack(np.array([0xE1, 0x03], np.uint8), dtype_of("i4"), 1, 2)
    array([-2, 3], dtype=int4)
    """
    per_byte = 8 // dtype.bits
    first = start // per_byte
    covered = stream[first : (start + count + per_byte - 1) // per_byte]
    expansion = _expansion(dtype)
    words = np.empty(covered.size, expansion.dtype)
    for at in range(0, covered.size, _PIECE):
        piece = covered[at : at + _PIECE]
        np.take(expansion, piece, out=words[at : at + piece.size], mode="clip")
    skip = start - first * per_byte
    return words.view(dtype.array)[skip : skip + count]


def first_invalid_code(stream: Bytes, dtype: DType, count: int) -> int | None:
    """The offset of a byte in a packed stream of ``count`` elements that no writer produces; None if there is none.

    Such a byte contains the t2 code for -2, or is the last byte and has nonzero padding bits.

    >>> from openinfer.dtypes import dtype_of
    >>> first_invalid_code(np.array([0b11], np.uint8), dtype_of("u1"), 1)
    0
    """
    if dtype.name == "t2":
        for at in range(0, stream.size, _PIECE):
            piece = stream[at : at + _PIECE]
            bad = piece & ~(piece << 1) & 0xAA
            if bad.any():
                return at + int(np.flatnonzero(bad)[0])
    used = count * dtype.bits % 8
    if used and int(stream[-1]) >> used:
        return stream.size - 1
    return None
