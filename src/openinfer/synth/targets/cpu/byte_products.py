"""Contractions of bytes: products of i8 and u8, accumulated in i32.

An i32 sum wraps, so it is the same in any order, and an offset added to a factor can be subtracted from the result
exactly.
"""

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.ir import Contraction

GROUP = 4
"""The number of contiguous elements along a sum: four bytes are as wide as their accumulator."""
FLIP = 128
"""The sign bit: flipping it turns an i8 into a u8 that is 128 larger, and a u8 into an i8 that is 128 smaller."""


def are_bytes(one: Contraction) -> bool:
    """Whether both factors are i8 or u8, and the accumulator is i32."""
    return one.accumulator.name == "i32" and all(value.dtype.name in ("i8", "u8") for value in one.factors)


def flipped(dtype: DType) -> DType:
    """The type of a byte after its sign bit has been flipped."""
    return DTYPES["u8" if dtype.name == "i8" else "i8"]


def groups(depth: int) -> int:
    """The number of groups in ``depth`` products; the last may be incomplete."""
    return -(-depth // GROUP)
