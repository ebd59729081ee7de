"""Factors of sums that are integers times a scale: where the scale is the same for all terms, it multiplies the sum."""

from dataclasses import replace
from functools import partial
from math import prod

from openinfer.loops.affine import variables
from openinfer.loops.ir import ACCUMULATOR, Binary, Contraction, Scalar, ScalarVar
from openinfer.loops.rewrite import changed

LEAST = 32
"""The least number of products: with fewer, the moved roundings would exceed the error bound of a sum."""


def factored(one: Contraction) -> Contraction:
    """The contraction with the scales of its factors moved to the epilogue, where that is allowed."""
    if one.accumulator.name != "f32" or not one.reduced or prod(map(int, one.reduced)) < LEAST:
        return one
    for is_a in (True, False):
        match one.a_value if is_a else one.b_value:
            case Binary("mul", number, scale) if is_outside(scale, one):
                epilogue = changed(one.epilogue, partial(_scaled, scale=scale))
                own = replace(one, a_value=number) if is_a else replace(one, b_value=number)
                one = replace(own, epilogue=epilogue)
            case _:
                pass
    return one


def is_outside(value: Scalar, one: Contraction) -> bool:
    """Whether a value is the same for all terms of a sum."""
    return value.dtype is one.accumulator and not variables(value) & {var.name for var in one.bound}


def _scaled(part: Scalar, scale: Scalar) -> Scalar | None:
    return part * scale if isinstance(part, ScalarVar) and part.name == ACCUMULATOR else None
