"""Interval analysis: the least and the greatest value of an integer expression, for any memory and any sizes.

Of a value that is read from memory only its type is known, of an index the extent of its loop. Arithmetic whose exact
result always fits its type cannot wrap, so that code need not say what happens then.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from openinfer.dtypes import DType
from openinfer.loops.dim import span
from openinfer.loops.scalar import Binary, Cast, Const, Load, Round, Scalar, ScalarVar, Select, Unary

Interval: TypeAlias = tuple[int, int]
_MOST_DEPTH = 24
"""Expressions nested more deeply get the full range of their type."""


def of_type(dtype: DType) -> Interval:
    """The range of an integer type; truth values are 0 and 1."""
    return int(dtype.minimum), int(dtype.maximum)


def interval(value: Scalar, known: Mapping[str, Interval], depth: int = _MOST_DEPTH) -> Interval:
    """The interval of an integer expression, given those of its variables.

    >>> i = ScalarVar("i")
    >>> interval(i * 8 + 7, {"i": (0, 3)}), interval(i - 1, {})[0] == -(2**63)
    ((7, 31), True)
    """
    found = _exact(value, known, depth) if depth else None
    least, most = of_type(value.dtype)
    return found if found is not None and least <= found[0] and found[1] <= most else (least, most)


def fits(value: Binary, known: Mapping[str, Interval]) -> bool:
    """Whether the exact result of integer arithmetic is always one that its type holds.

    >>> from openinfer.dtypes import DTYPES
    >>> byte = Cast(ScalarVar("b", DTYPES["u8"]), DTYPES["i32"])
    >>> fits(byte * byte, {}), fits(ScalarVar("n", DTYPES["i32"]) + 1, {})
    (True, False)
    """
    found = _exact(value, known, _MOST_DEPTH)
    least, most = of_type(value.dtype)
    return found is not None and least <= found[0] and found[1] <= most


def _exact(value: Scalar, known: Mapping[str, Interval], depth: int) -> Interval | None:
    """The interval of the mathematical result, which may be outside of the type; None where nothing is known."""

    def inside(one: Scalar) -> Interval:
        return interval(one, known, depth - 1)

    match value:
        case Const(number) if value.dtype.kind != "float":
            return span(number) if isinstance(number, int) else (int(number), int(number))
        case ScalarVar(name):
            return known.get(name)
        case Load(buffer=buffer) if buffer.dtype.kind != "float" and not buffer.dtype.values:
            return of_type(buffer.dtype)
        case Cast(operand) if operand.dtype.kind != "float":
            return inside(operand)
        case Round(storage=storage) if storage.kind != "float" and not storage.values:
            return of_type(storage)
        case Select(_, then, otherwise):
            one, other = inside(then), inside(otherwise)
            return min(one[0], other[0]), max(one[1], other[1])
        case Unary("neg", operand):
            least, most = inside(operand)
            return -most, -least
        case Binary(op, left, right) if op in _ARITHMETIC:
            return _ARITHMETIC[op](inside(left), inside(right))
        case _:
            return None


def _product(one: Interval, other: Interval) -> Interval:
    ends = [left * right for left in one for right in other]
    return min(ends), max(ends)


def _quotient(one: Interval, other: Interval) -> Interval | None:
    """The interval of a truncated quotient; the divisor is positive."""
    if other[0] < 1:
        return None
    ends = [abs(left) // right * (-1 if left < 0 else 1) for left in one for right in other]
    return min(ends), max(ends)


def _remainder(one: Interval, other: Interval) -> Interval | None:
    """The interval of a remainder by a positive divisor; it has the sign of the dividend."""
    if other[0] < 1:
        return None
    most = other[1] - 1
    return max(min(one[0], 0), -most), min(max(one[1], 0), most)


_ARITHMETIC: Mapping[str, Callable[[Interval, Interval], Interval | None]] = {
    "add": lambda one, other: (one[0] + other[0], one[1] + other[1]),
    "sub": lambda one, other: (one[0] - other[1], one[1] - other[0]),
    "mul": _product,
    "div": _quotient,
    "rem": _remainder,
    "min": lambda one, other: (min(one[0], other[0]), min(one[1], other[1])),
    "max": lambda one, other: (max(one[0], other[0]), max(one[1], other[1])),
}
