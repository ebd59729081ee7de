"""Contractions of bytes: products of i8 and u8 that are added up in i32.

A sum in i32 wraps, so that it is the same in any order, and an offset that is added to a factor can be subtracted from
the result exactly.
"""

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.ir import Contraction

GROUP = 4
"""How many neighbours along a sum are contiguous: four bytes take as much as their sum."""
FLIP = 128
"""The sign bit: flipping it makes an i8 a u8 that is 128 larger, and a u8 an i8 that is 128 smaller."""


def are_bytes(one: Contraction) -> bool:
    """Whether both factors are of 8 bits or fewer, and the sum is of 32."""
    return one.accumulator.name == "i32" and all(value.dtype.name in ("i8", "u8") for value in one.factors)


def flipped(dtype: DType) -> DType:
    """The type that a byte is after its first bit has been flipped."""
    return DTYPES["u8" if dtype.name == "i8" else "i8"]


def groups(depth: int) -> int:
    """The number of groups of a number of products; the last may be incomplete."""
    return -(-depth // GROUP)
