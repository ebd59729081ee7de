"""Index expressions in C: arithmetic that cannot overflow is plain, all other is checked while running."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from openinfer.dtypes import DTYPES
from openinfer.ir.expr import LEAST_INDEX as LEAST
from openinfer.ir.expr import MOST_INDEX as MOST
from openinfer.ir.expr import Binary, Expr, Neg, Num, Operator, Ref, interval
from openinfer.synth.targets.c.dialect import literal

_NAMES = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem"}


_TOO_LARGE = "oi_index_mul"
"""The function that says of a product that no int64_t holds it: so constants that none holds are products."""


@dataclass(frozen=True)
class Integer:
    """An expression of type int64_t, what it can be, and whether computing it can set ``bad``."""

    text: str
    least: int
    most: int
    can_fail: bool = False


def number(value: int) -> Integer:
    """A constant; one that no int64_t holds cannot be computed."""
    if not LEAST <= value <= MOST:
        return Integer(f"{_TOO_LARGE}(INT64_MAX, 2, &bad)", LEAST, MOST, can_fail=True)
    if -(1 << 31) < value < 1 << 31:
        return Integer(str(value) if value >= 0 else f"({value})", value, value)
    return Integer(literal(value, DTYPES["i64"]), value, value)


class IntegerPrinter:
    """Prints expressions; ``named`` says what a name is, ``needs`` collects the functions that are called."""

    def __init__(self, named: Callable[[str], Integer], needs: set[str]) -> None:
        self._named = named
        self._needs = needs

    def integer(self, expr: Expr) -> Integer:
        """An expression in C. Division rounds down."""
        match expr:
            case Num(value):
                found = number(value)
                if found.can_fail:
                    self._needs.add(_TOO_LARGE)
                return found
            case Ref(name):
                return self._named(name)
            case Neg(operand):
                return self._binary("-", number(0), self.integer(operand))
            case Binary(op, left, right):
                return self._binary(op, self.integer(left), self.integer(right))

    def _binary(self, op: Operator, left: Integer, right: Integer) -> Integer:
        can_fail = left.can_fail or right.can_fail
        least, most, is_safe = _range(op, left, right)
        plain = op if op in "+-*" or (left.least >= 0 and right.least > 0) else None
        if is_safe and plain is not None:
            return Integer(f"({left.text} {plain} {right.text})", least, most, can_fail)
        text = f"oi_index_{_NAMES[op]}({left.text}, {right.text}, &bad)"
        self._needs.add(f"oi_index_{_NAMES[op]}")
        # The functions take ``bad`` in any case: whether it can be set is known only to us.
        return Integer(text, max(least, LEAST), min(most, MOST), can_fail=True)


def _range(op: Operator, left: Integer, right: Integer) -> tuple[int, int, bool]:
    """What a result can be, and whether it always is a number that fits."""
    if op in "/%" and right.least <= 0 <= right.most:
        return LEAST, MOST, False
    least, most = interval(op, (left.least, left.most), (right.least, right.most))
    return least, most, least >= LEAST and most <= MOST


def can_fail(integers: Iterable[Integer]) -> bool:
    """Whether computing one of them can set ``bad``."""
    return any(one.can_fail for one in integers)
