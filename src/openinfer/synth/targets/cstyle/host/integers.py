"""Index expressions in C: arithmetic that cannot overflow is plain, all other is checked while running."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from openinfer.ir.expr import LEAST_INDEX as LEAST
from openinfer.ir.expr import MOST_INDEX as MOST
from openinfer.ir.expr import Binary, Expr, Neg, Num, Operator, Ref, interval

_NAMES = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem"}


@dataclass(frozen=True)
class Integer:
    """An expression of type int64_t, what it can be, and whether computing it can set ``bad``."""

    text: str
    least: int
    most: int
    can_fail: bool = False
    function: str = ""
    """The function of the runtime that computes it, if one does."""

    @property
    def is_literal(self) -> bool:
        """Whether it is written as a plain number."""
        return self.text == str(self.least)


def number(value: int) -> Integer:
    """A constant; one that no int64_t holds cannot be computed."""
    if not LEAST <= value <= MOST:
        return Integer("oi_index_mul(INT64_MAX, 2, &bad)", LEAST, MOST, can_fail=True, function="oi_index_mul")
    if -(1 << 31) < value < 1 << 31:
        return Integer(str(value) if value >= 0 else f"({value})", value, value)
    return Integer(wide(value), value, value)


def wide(value: int) -> str:
    """A number as a constant of 64 bits.

    >>> wide(7), wide(-7), wide(-(1 << 63))
    ('INT64_C(7)', '(-INT64_C(7))', '(-INT64_C(9223372036854775807) - 1)')
    """
    if value == LEAST:
        return f"(-INT64_C({MOST}) - 1)"
    return f"(-INT64_C({-value}))" if value < 0 else f"INT64_C({value})"


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
            case Ref(name):
                found = self._named(name)
            case Neg(operand):
                found = self._binary("-", number(0), self.integer(operand))
            case Binary(op, left, right):
                found = self._binary(op, self.integer(left), self.integer(right))
        if found.function:
            self._needs.add(found.function)
        return found

    def _binary(self, op: Operator, left: Integer, right: Integer) -> Integer:
        can_fail = left.can_fail or right.can_fail
        least, most, is_safe = _range(op, left, right)
        plain = op if op in "+-*" or (left.least >= 0 and right.least > 0) else None
        if is_safe and plain is not None:
            return Integer(f"({left.text} {plain} {right.text})", least, most, can_fail)
        function = f"oi_index_{_NAMES[op]}"
        text = f"{function}({left.text}, {right.text}, &bad)"
        # The functions take ``bad`` in any case: whether it can be set is known only to us.
        return Integer(text, max(least, LEAST), min(most, MOST), can_fail=True, function=function)


def _range(op: Operator, left: Integer, right: Integer) -> tuple[int, int, bool]:
    """What a result can be, and whether it always is a number that fits."""
    if op in "/%" and right.least <= 0 <= right.most:
        return LEAST, MOST, False
    least, most = interval(op, (left.least, left.most), (right.least, right.most))
    return least, most, least >= LEAST and most <= MOST


def can_fail(integers: Iterable[Integer]) -> bool:
    """Whether computing one of them can set ``bad``."""
    return any(one.can_fail for one in integers)
