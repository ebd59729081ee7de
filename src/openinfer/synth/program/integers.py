"""Ranges of integers in index expressions, and the faults of computing them, whatever the target language."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from openinfer.dtypes import DType
from openinfer.ir.expr import LEAST_INDEX as LEAST
from openinfer.ir.expr import MOST_INDEX as MOST
from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Operator, Ref, interval

IntegerFault = Literal["too long", "by zero"]
"""The faults of an index expression: a result needs more than 64 bits, or a division by zero."""

TOO_LONG: frozenset[IntegerFault] = frozenset({"too long"})
_BY_ZERO: frozenset[IntegerFault] = frozenset({"by zero"})


@dataclass(frozen=True)
class Computed:
    """The range of an integer, and the faults of computing it."""

    least: int
    most: int
    can_fail: bool = False
    """Whether a checked function computes it, which can report failure."""
    faults: frozenset[IntegerFault] = frozenset()
    """The faults that function can report; empty if its operands are always valid."""


def constant(value: int) -> Computed:
    """The range of a literal; one that does not fit into 64 bits cannot be computed."""
    if LEAST <= value <= MOST:
        return Computed(value, value)
    return Computed(LEAST, MOST, can_fail=True, faults=TOO_LONG)


def scalar(dtype: DType) -> Computed:
    """The range of a scalar variable used as an index."""
    if dtype.name == "u64":
        return Computed(0, MOST, can_fail=True, faults=TOO_LONG)
    return Computed(int(dtype.minimum), int(dtype.maximum))


def computed(expr: Expr, named: Callable[[str], Computed]) -> Computed:
    """The range of an expression; ``named`` gives that of a name. Division rounds down."""
    match expr:
        case Num(value):
            return constant(value)
        case Ref(name):
            return named(name)
        case Neg(operand):
            return combined("-", constant(0), computed(operand, named))
        case BinaryExpr(op, left, right):
            return combined(op, computed(left, named), computed(right, named))


def combined(op: Operator, left: Computed, right: Computed) -> Computed:
    """The range of an operation's result.

    >>> combined("+", Computed(0, 4), Computed(1, 1)), combined("/", Computed(0, 4), Computed(2, 2)).can_fail
    (Computed(least=1, most=5, can_fail=False, faults=frozenset()), False)
    """
    faults = left.faults | right.faults
    least, most, is_safe = _range(op, left, right)
    if is_plain(op, left, right):
        return Computed(least, most, left.can_fail or right.can_fail, faults)
    faults |= frozenset() if is_safe else _faults(op, left, right)
    # The checked functions always take an error argument; only we know that the fault cannot happen.
    return Computed(max(least, LEAST), min(most, MOST), can_fail=True, faults=faults)


def is_plain(op: Operator, left: Computed, right: Computed) -> bool:
    """Whether a plain machine operation computes it: it never overflows, and truncating equals rounding down."""
    _, _, is_safe = _range(op, left, right)
    return is_safe and (op in "+-*" or (left.least >= 0 and right.least > 0))


def _faults(op: Operator, left: Computed, right: Computed) -> frozenset[IntegerFault]:
    """The faults of an unsafe operation."""
    if op not in "/%":
        return TOO_LONG
    by_zero = _BY_ZERO if right.least <= 0 <= right.most else frozenset[IntegerFault]()
    return by_zero | TOO_LONG if op == "/" and left.least == LEAST and right.least < 0 else by_zero


def _range(op: Operator, left: Computed, right: Computed) -> tuple[int, int, bool]:
    """The range of a result, and whether every operand gives a defined result that fits."""
    if op in "/%" and right.least <= 0 <= right.most:
        return LEAST, MOST, False
    least, most = interval(op, (left.least, left.most), (right.least, right.most))
    return least, most, least >= LEAST and most <= MOST
