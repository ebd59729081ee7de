"""Exact simplification: folds the constants that lowerings and fusion leave, bit for bit.

A number is converted only if the other type represents it, and of float arithmetic only ``x * 1``, ``x / 1`` and
``x - 0`` are removed, whose result is ``x`` whatever it is. Expressions over dynamic sizes stay.
"""

from collections.abc import Callable
from math import inf, isfinite
from operator import eq, ge, gt, is_, le, lt, ne

import numpy as np

from openinfer.dtypes import INDEX, DType
from openinfer.loops.dim import Dim
from openinfer.loops.scalar import (
    BOOL,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    Scalar,
    Select,
    Unary,
    binary,
    children,
    rebuilt,
)

_COMPARED = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}
_FOLDED: dict[str, Callable[[int, int], int]] = {
    "add": lambda left, right: left + right,
    "sub": lambda left, right: left - right,
    "mul": lambda left, right: left * right,
    "min": min,
    "max": max,
}
_OF_ONE = ("mul", "div")
_MOST = 2.0**127
"""Numbers from here on are skipped: they may not fit the smaller floats."""


_NEGATED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "ne": "eq"}
"""Integer comparisons and their negations."""


def simplified(value: Scalar) -> Scalar:
    """An equivalent expression that computes less.

    >>> from openinfer.dtypes import DTYPES
    >>> from openinfer.loops.scalar import ScalarVar
    >>> i = ScalarVar("i")
    >>> simplified(Binary("add", Binary("add", i, Const(2, INDEX)), Const(-2, INDEX))) == i
    True
    >>> simplified(Cast(Const(32, INDEX), DTYPES["f64"])) == Const(32.0, DTYPES["f64"])
    True
    """
    return _Simplifier().run(value)


def once(value: Scalar) -> Scalar:
    """Simplify an expression whose operands are already simple."""
    match value:
        case Binary():
            return _binary(value)
        case Compare():
            return _compare(value)
        case Select(cond, then, otherwise):
            chosen = truth(cond)
            return otherwise if chosen is False else then if chosen or then == otherwise else value
        case Cast(operand=Const(value=number, type=source), type=target) if not isinstance(number, Dim):
            return _converted(number, source, target) or value
        case Unary("not", operand) if truth(operand) is not None:
            return Const(not truth(operand), BOOL)
        case Unary("neg", Const(number, dtype)) if not isinstance(number, Dim) and _holds(dtype, -number):
            # Float zeros have signs, which an integer constant would lose.
            return Const(-float(number) if dtype.kind == "float" else -number, dtype)
        case _:
            return value


def truth(value: Scalar) -> bool | None:
    """The constant value of a condition; None if it is not known."""
    return bool(value.value) if isinstance(value, Const) and value.type is BOOL else None


class _Simplifier:
    """Simplifies expressions that share parts, visiting each part once."""

    def __init__(self) -> None:
        self._done: dict[int, tuple[Scalar, Scalar]] = {}

    def run(self, value: Scalar) -> Scalar:
        done = self._done.get(id(value))
        if done is not None:
            return done[1]
        parts = children(value)
        if not parts:
            return value
        inner = tuple(map(self.run, parts))
        found = once(value if all(map(is_, parts, inner)) else rebuilt(value, inner))
        self._done[id(value)] = value, found
        return found


def _integer(value: Scalar) -> int | None:
    """The value of an integer constant; None for anything else."""
    match value:
        case Const(number, dtype) if dtype.kind in ("int", "uint") and not isinstance(number, Dim):
            return int(number)
        case _:
            return None


def _holds(dtype: DType, number: float) -> bool:
    """Whether a type represents a number exactly; NaN is left alone."""
    if dtype.kind == "float":
        return isfinite(number)
    return dtype.kind in ("int", "uint") and dtype.minimum <= number <= dtype.maximum


def _binary(value: Binary) -> Scalar:
    op, left, right, dtype = value.op, value.left, value.right, value.dtype
    if dtype.kind == "bool":
        return _logical(value)
    if dtype.kind == "float":
        return _of_floats(value)
    one, other = _integer(left), _integer(right)
    if one is not None and other is not None:
        return _folded(op, one, other, dtype) or value
    if one is not None and op in ("add", "mul"):
        return _binary_with(op, right, one, dtype) or value
    if other is not None:
        return _binary_with(op, left, other, dtype) or value
    if op == "sub" and left == right:
        return Const(0, dtype)
    return binary(op, left, right)


def _folded(op: BinaryOp, left: int, right: int, dtype: DType) -> Scalar | None:
    """Fold two numbers; quotients round toward zero."""
    if op in ("div", "rem") and right != 0:
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        found = quotient if op == "div" else left - quotient * right
    elif op in _FOLDED:
        found = _FOLDED[op](left, right)
    else:
        return None
    return Const(found, dtype) if _holds(dtype, found) else None


def _binary_with(op: BinaryOp, value: Scalar, number: int, dtype: DType) -> Scalar | None:
    """Simplify an operation on an integer and a number; ``op`` is commutative if the number was on the left."""
    if (number == 0 and op in ("add", "sub")) or (number == 1 and op in _OF_ONE):
        return value
    if (number == 0 and op == "mul") or (number == 1 and op == "rem"):
        return Const(0, dtype)
    if op not in ("add", "sub") or dtype.kind != "int":
        return None
    total = number if op == "add" else -number
    if dtype is INDEX and isinstance(value, Binary) and value.op in ("add", "sub"):
        inside = _integer(value.right)
        if inside is not None:
            return once(Binary("add", value.left, Const(total + (inside if value.op == "add" else -inside), dtype)))
    if not (_holds(dtype, total) and _holds(dtype, -total)):
        return None
    return Binary("add", value, Const(total, dtype)) if total > 0 else Binary("sub", value, Const(-total, dtype))


def _of_floats(value: Binary) -> Scalar:
    """Remove float operations that change nothing: minus zero, times one, divided by one."""
    match value:
        case Binary("mul", Const(1, _), other) | Binary("mul" | "div", other, Const(1, _)):
            return other
        case Binary("sub", other, Const(0, _) as zero) if zero == Const(0.0, zero.type):
            return other
        case _:
            return value


def _logical(value: Binary) -> Scalar:
    """Fold ``and`` and ``or`` with an operand that is always true or always false."""
    for one, other in ((value.left, value.right), (value.right, value.left)):
        known = truth(one)
        if known is not None and value.op in ("and", "or"):
            return other if known == (value.op == "and") else one
    if value.op in ("and", "or") and _are_apart(value):
        return Const(value.op == "or", BOOL)
    return value


def _are_apart(value: Binary) -> bool:
    """Whether two comparisons with numbers exclude each other (``and``), or one of them always holds (``or``)."""
    match value:
        case Binary(op, Compare(_, one) as first, Compare(_, other) as second) if one == other:
            ops = [_NEGATED.get(part.op) if op == "or" else part.op for part in (first, second)]
            (low, high), (least, most) = _range(ops[0], first.right), _range(ops[1], second.right)
            return max(low, least) > min(high, most)
        case _:
            return False


def _range(op: str | None, limit: Scalar) -> tuple[float, float]:
    """The first and last integer that satisfy a comparison with a number; all integers if unknown."""
    number = _integer(limit)
    if number is None or op is None:
        return -inf, inf
    ends = {"lt": (-inf, number - 1), "le": (-inf, number), "gt": (number + 1, inf), "ge": (number, inf)}
    return ends.get(op, (number, number) if op == "eq" else (-inf, inf))


def _compare(value: Compare) -> Scalar:
    """Fold a comparison of integers whose outcome is known."""
    one, other = _integer(value.left), _integer(value.right)
    if one is not None and other is not None:
        return Const(_COMPARED[value.op](one, other), BOOL)
    if value.left == value.right and value.left.dtype.kind in ("int", "uint"):
        return Const(value.op in ("eq", "le", "ge"), BOOL)
    return value


def _converted(number: float, source: DType, target: DType) -> Const | None:
    """A number in another type; None if that cannot represent it, or only with many more digits."""
    if target.kind == "bool":
        return Const(number != 0, target)
    if not abs(number) < _MOST:
        return None
    if target.kind == "float":
        is_single = target.bits == 32 or (source.kind == "float" and source.bits == 32)
        own = float(np.float32(number)) if is_single else float(number)
        return Const(own, target) if own == number else None
    return Const(int(number), target) if number == int(number) and _holds(target, number) else None
