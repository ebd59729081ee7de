"""Replaces division by multiplication with the inverse, if the divisor is known to be neither tiny nor huge.

This is for quotients that are intermediate values of a result, and need not be correct to the last bit.
"""

from collections.abc import Mapping
from math import exp, inf

from openinfer.dtypes import DTYPES
from openinfer.loops.ir import Binary, Const, Let, Math, Scalar, Select, Unary, walk
from openinfer.loops.rewrite import Statements, changed_statements

_F32 = DTYPES["f32"]
_LEAST, _MOST = 2.0**-100, 2.0**100
_ANYTHING = (-inf, inf)
_Ends = tuple[float, float]


def with_inverses(body: Statements) -> Statements:
    """Statements with divisions replaced by products with the inverse, if the divisor surely has one."""
    known: dict[Scalar, Scalar] = {one.var: one.value for one in walk(body) if isinstance(one, Let)}

    def change(value: Scalar) -> Scalar | None:
        if not isinstance(value, Binary) or value.op != "div" or value.about is None or value.dtype is not _F32:
            return None
        low, high = _ends(value.right, known)
        if not _LEAST <= low <= high <= _MOST:
            return None
        return Binary("mul", value.left, Math("inverse", (value.right,), value.about))

    return changed_statements(body, change)


def _ends(value: Scalar, known: Mapping[Scalar, Scalar]) -> _Ends:
    """The range of a value, unless it is NaN; both ends are inclusive."""
    match value:
        case Const(number):
            return float(number), float(number)
        case Unary("abs", operand):
            low, high = _ends(operand, known)
            return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        case Unary("neg", operand):
            low, high = _ends(operand, known)
            return -high, -low
        case Binary("add", left, right):
            (low, high), (other_low, other_high) = _ends(left, known), _ends(right, known)
            return _sum(low, other_low, -inf), _sum(high, other_high, inf)
        case Binary("sub", left, right):
            (low, high), (other_low, other_high) = _ends(left, known), _ends(right, known)
            return _sum(low, -other_high, -inf), _sum(high, -other_low, inf)
        case Select(_, then, otherwise):
            (low, high), (other_low, other_high) = _ends(then, known), _ends(otherwise, known)
            return min(low, other_low), max(high, other_high)
        case Math("exp", (operand,)):
            low, high = _ends(operand, known)
            # Widened a little: the function is not exact.
            return (0.0 if low < -80 else 0.99 * exp(min(low, 80))), (inf if high > 80 else 1.01 * exp(high))
        case _:
            found = known.get(value)
            return _ANYTHING if found is None else _ends(found, known)


def _sum(one: float, other: float, unknown: float) -> float:
    return unknown if inf in (abs(one), abs(other)) else one + other
