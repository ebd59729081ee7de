"""Interval analysis: lower and upper bounds of integer expressions, for any memory contents and any sizes.

Of a value loaded from memory only the type is known; of an index, the extent of its loop. Arithmetic whose exact result
always fits its type cannot wrap, so printed code need not define wrapping for it.
"""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import TypeAlias

from openinfer.dtypes import DType
from openinfer.loops.dim import span
from openinfer.loops.scalar import STEPS, Binary, Cast, Compare, Const, Load, Round, Scalar, ScalarVar, Select, Unary

Interval: TypeAlias = tuple[int, int]
RangeFacts: TypeAlias = tuple[tuple[Scalar, Interval], ...]
"""The bounds of expressions where a condition holds, in addition to those that hold everywhere."""
_MOST_DEPTH = 24
"""Expressions nested more deeply get the full range of their type."""


def of_type(dtype: DType) -> Interval:
    """The range of an integer type; bool ranges from 0 to 1."""
    return int(dtype.minimum), int(dtype.maximum)


def interval(
    value: Scalar, known: Mapping[str, Interval], depth: int = _MOST_DEPTH, facts: RangeFacts | None = None
) -> Interval:
    """The bounds of an integer, given those of variables; with ``facts``, the conditions of selections count too.

    >>> i = ScalarVar("i")
    >>> interval(i * 8 + 7, {"i": (0, 3)}), interval(i - 1, {})[0] == -(2**63)
    ((7, 31), True)
    >>> counted = Select(i < 0, i + 10, i)
    >>> interval(counted, {"i": (-10, 9)}), interval(counted, {"i": (-10, 9)}, facts=())
    ((-10, 19), (0, 9))
    """
    found = _exact(value, known, depth, facts) if depth else None
    least, most = of_type(value.dtype)
    if found is not None and least <= found[0] and found[1] <= most:
        least, most = found
    for one, (low, high) in facts or ():
        if one == value and max(least, low) <= min(most, high):
            least, most = max(least, low), min(most, high)
    return least, most


def fits(
    value: Binary, known: Mapping[str, Interval], facts: RangeFacts | None = None, bits: int | None = None
) -> bool:
    """Whether the exact result of integer arithmetic always fits its type, or a signed type of ``bits`` bits.

    >>> from openinfer.dtypes import DTYPES
    >>> byte = Cast(ScalarVar("b", DTYPES["u8"]), DTYPES["i32"])
    >>> fits(byte * byte, {}), fits(ScalarVar("n", DTYPES["i32"]) + 1, {})
    (True, False)
    """
    found = _exact(value, known, _MOST_DEPTH, facts)
    least, most = of_type(value.dtype) if bits is None else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return found is not None and least <= found[0] and found[1] <= most


def facts_of(
    condition: Scalar, known: Mapping[str, Interval], facts: RangeFacts = (), *, holds: bool = True
) -> RangeFacts:
    """The bounds of integers that follow from a condition, or from its negation.

    >>> i = ScalarVar("i")
    >>> facts_of(i < 4, {"i": (0, 9)})[0][1], facts_of(i < 4, {"i": (0, 9)}, holds=False)[0][1]
    ((0, 3), (4, 9))
    """
    match condition:
        case Unary("not", operand):
            return facts_of(operand, known, facts, holds=not holds)
        case Binary("and" | "or" as op, left, right) if (op == "and") is holds:
            return (*facts_of(left, known, facts, holds=holds), *facts_of(right, known, facts, holds=holds))
        case Compare(op, left, right) if left.dtype.kind in ("int", "uint"):
            one, other = interval(left, known, facts=facts), interval(right, known, facts=facts)
            said = op if holds else _OPPOSITE[op]
            return (*_bounded(said, left, one, other), *_bounded(_SWAPPED.get(said, said), right, other, one))
        case _:
            return ()


_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _bounded(op: str, value: Scalar, own: Interval, other: Interval) -> RangeFacts:
    """The bounds of a value for which a comparison holds; if it never does, nothing asks for them and any will do."""
    least, most = own
    if op in ("lt", "le", "eq"):
        most = min(most, other[1] - (op == "lt"))
    if op in ("gt", "ge", "eq"):
        least = max(least, other[0] + (op == "gt"))
    if least > most:
        least = most = own[0]
    return ((value, (least, most)),) if (least, most) != own else ()


def _exact(value: Scalar, known: Mapping[str, Interval], depth: int, facts: RangeFacts | None) -> Interval | None:
    """The bounds of the mathematical result, which may exceed the type; None if nothing is known."""

    def inside(one: Scalar) -> Interval:
        return interval(one, known, depth - 1, facts)

    match value:
        case Const(number) if value.dtype.kind != "float":
            return span(number) if isinstance(number, int) else (int(number), int(number))
        case ScalarVar(name):
            return known.get(name)
        case Load(buffer=buffer) if buffer.dtype.kind != "float" and not buffer.dtype.values:
            return of_type(buffer.dtype)
        case Cast(operand) if operand.dtype.kind != "float":
            return inside(operand)
        case Cast(Binary("min", Binary("max", _, Const(low)), Const(high))) if facts is not None:
            return (int(min(low, high)), int(high)) if isfinite(low) and isfinite(high) else None
        case Round(storage=storage) if storage.kind != "float" and not storage.values:
            return of_type(storage)
        case Select(condition, then, otherwise) if facts is not None:
            one, other = (
                interval(part, known, depth - 1, (*facts, *facts_of(condition, known, facts, holds=holds)))
                for part, holds in ((then, True), (otherwise, False))
            )
            return min(one[0], other[0]), max(one[1], other[1])
        case Select(_, then, otherwise):
            one, other = inside(then), inside(otherwise)
            return min(one[0], other[0]), max(one[1], other[1])
        case Unary("steps"):
            return STEPS
        case Unary("neg", operand):
            least, most = inside(operand)
            return -most, -least
        case Binary(op, left, right) if op in _ARITHMETIC:
            return _ARITHMETIC[op](inside(left), inside(right))
        case _:
            return None


def result_interval(op: str, one: Interval, other: Interval) -> Interval | None:
    """The interval of the exact result of arithmetic; None if nothing is known about it.

    >>> result_interval("sub", (0, 255), (1, 2)), result_interval("xor", (0, 1), (0, 1))
    ((-2, 254), None)
    """
    return _ARITHMETIC[op](one, other) if op in _ARITHMETIC else None


def product_interval(one: Interval, other: Interval) -> Interval:
    """The interval of a product."""
    ends = [left * right for left in one for right in other]
    return min(ends), max(ends)


def quotient_interval(one: Interval, other: Interval) -> Interval | None:
    """The interval of a truncated quotient; None if the divisor may not be positive."""
    if other[0] < 1:
        return None
    ends = [abs(left) // right * (-1 if left < 0 else 1) for left in one for right in other]
    return min(ends), max(ends)


def remainder_interval(one: Interval, other: Interval) -> Interval | None:
    """The interval of a remainder by a positive divisor, with the sign of the dividend; None for other divisors."""
    if other[0] < 1:
        return None
    most = other[1] - 1
    return max(min(one[0], 0), -most), min(max(one[1], 0), most)


_ARITHMETIC: Mapping[str, Callable[[Interval, Interval], Interval | None]] = {
    "add": lambda one, other: (one[0] + other[0], one[1] + other[1]),
    "sub": lambda one, other: (one[0] - other[1], one[1] - other[0]),
    "mul": product_interval,
    "div": quotient_interval,
    "rem": remainder_interval,
    "min": lambda one, other: (min(one[0], other[0]), min(one[1], other[1])),
    "max": lambda one, other: (max(one[0], other[0]), max(one[1], other[1])),
}
