"""The fixed facts of the .oinf format: field positions, tags, limits. docs/oinf.md is the prose form of this file."""

import re
import struct
from enum import IntEnum, IntFlag

from openinfer.dtypes import DTYPES, DType
from openinfer.tensor import MAX_DIMS

MAGIC = b"OINF\0"
VERSIONS = (1, 2, 3)
ALIGNMENT = 8
TENSOR_ALIGNMENT = 64
MAX_NAME_BYTES = 255
MAX_PADDING = 1 << 21
"""The largest gap that still counts as padding (a huge page); checking it takes negligible time."""

HEADER = struct.Struct("<5sIIIIIIQQQQQ")
HEADER_BYTES = 72
HEADER_FIELDS = {
    "magic": (0, 5),
    "version": (5, 4),
    "flags": (9, 4),
    "n_sizevars": (13, 4),
    "n_metadata": (17, 4),
    "n_tensors": (21, 4),
    "reserved": (25, 4),
    "offset_sizevars": (29, 8),
    "offset_metadata": (37, 8),
    "offset_tensors": (45, 8),
    "offset_data": (53, 8),
    "file_size": (61, 8),
    "padding": (69, 3),
}

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
METADATA_FIELDS = struct.Struct("<IIQQ")
NDARRAY_HEADER = struct.Struct("<II")
BITSET_HEADER = struct.Struct("<II")
QUANT_HEADER = struct.Struct("<IIIIQQQQ")
GROUP_HEADER = struct.Struct("<II")
"""Follows if there is a scale per group: the dtype of the scales, and a reserved word."""

NAME = re.compile(r"[A-Za-z0-9._-]{1,255}")
TEXT = re.compile(r"[\x20-\x7e]*")


class TensorFlags(IntFlag):
    """The flag bits of a tensor entry."""

    HAS_DATA = 1
    HAS_QUANT = 2


class ValueType(IntEnum):
    """The tags of metadata values that are not a plain scalar of some dtype."""

    BITSET = 13
    STRING = 14
    NDARRAY = 15


_FIRST_TAGS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "bool")
_LATER_TAGS = ("bf16", "f8", "i4", "i2", "i1", "u4", "u2", "u1", "t2", "t1")
DTYPE_BY_TAG: dict[int, DType] = {
    tag: DTYPES[name] for tag, name in (*enumerate(_FIRST_TAGS, start=1), *enumerate(_LATER_TAGS, start=16))
}
TAG_OF_DTYPE: dict[DType, int] = {dtype: tag for tag, dtype in DTYPE_BY_TAG.items()}


def align(position: int, boundary: int = ALIGNMENT) -> int:
    """The next multiple of ``boundary`` at or after a position.

    >>> align(69), align(72)
    (72, 72)
    """
    return -(-position // boundary) * boundary


def string_bytes(length: int) -> int:
    """The bytes that a String of this many characters occupies, padding included.

    >>> string_bytes(4), string_bytes(5)
    (8, 16)
    """
    return align(U32.size + length)


def tensor_fields(ndim: int, version: int) -> struct.Struct:
    """The fields that follow a tensor's name: dtype, ndim, flags, dims, then sizes and offsets."""
    return _TENSOR_FIELDS[version][ndim]


_QUANTIZABLE_FIELDS = [struct.Struct(f"<III{ndim}QQQQQ") for ndim in range(MAX_DIMS + 1)]
_TENSOR_FIELDS = {
    1: [struct.Struct(f"<III{ndim}QQQ") for ndim in range(MAX_DIMS + 1)],
    2: _QUANTIZABLE_FIELDS,
    3: _QUANTIZABLE_FIELDS,
}
