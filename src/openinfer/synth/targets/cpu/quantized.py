"""Factors of contractions that are stored as integers: ``(integer - zero) * scale``, both the same along the sum.

What does not change while a sum is taken need not be multiplied in there: the scale goes to the result.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import prod

from openinfer.loops.affine import variables
from openinfer.loops.ir import ACCUMULATOR, Binary, Buffer, Cast, Contraction, Load, Scalar, ScalarVar
from openinfer.loops.rewrite import changed

STORED = ("i8", "u8", "i4", "u4")
"""What can be in panels as it is: converted where it is multiplied."""
LEAST = 32
"""The least number of products: with fewer, the moved roundings would be more than a sum may lose."""


@dataclass(frozen=True)
class Integers:
    """A factor that is a stored integer less a number that depends on the free indices only, or on none."""

    zero: Scalar | None


def factored(one: Contraction) -> Contraction:
    """The contraction with the scales of its factors in the epilogue, where that is allowed."""
    if one.accumulator.name != "f32" or not one.reduced or prod(map(int, one.reduced)) < LEAST:
        return one
    for is_a in (True, False):
        match one.a_value if is_a else one.b_value:
            case Binary("mul", number, scale) if _is_outside(scale, one):
                epilogue = changed(one.epilogue, partial(_scaled, scale=scale))
                own = replace(one, a_value=number) if is_a else replace(one, b_value=number)
                one = replace(own, epilogue=epilogue)
            case _:
                pass
    return one


def integers_of(one: Contraction, buffer: Buffer) -> Integers | None:
    """What a factor is, if it is such integers."""
    value = one.a_value if buffer == one.a else one.b_value
    if (
        value is None
        or buffer.dtype.name not in STORED
        or one.accumulator.name != "f32"
        or prod(map(int, one.reduced)) < LEAST
    ):
        return None
    match value:
        case Binary("sub", Cast(Load(own)), zero) if own == buffer and _is_outside(zero, one):
            return Integers(zero)
        case Cast(Load(own)) if own == buffer:
            return Integers(None)
        case _:
            return None


def _is_outside(value: Scalar, one: Contraction) -> bool:
    """Whether a value is the same for all terms of a sum."""
    return value.dtype is one.accumulator and not variables(value) & {var.name for var in one.bound}


def _scaled(part: Scalar, scale: Scalar) -> Scalar | None:
    return part * scale if isinstance(part, ScalarVar) and part.name == ACCUMULATOR else None
