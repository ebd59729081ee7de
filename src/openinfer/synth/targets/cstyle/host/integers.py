"""Index expressions in C: arithmetic that cannot overflow is plain, all other is checked while running."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from openinfer.ir.expr import LEAST_INDEX as LEAST
from openinfer.ir.expr import MOST_INDEX as MOST
from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Operator, Ref, interval

IntegerFault = Literal["too long", "by zero"]
"""What can be wrong with an index expression: a result needs more than 64 bits, or something divides by zero."""

TOO_LONG: frozenset[IntegerFault] = frozenset({"too long"})
_BY_ZERO: frozenset[IntegerFault] = frozenset({"by zero"})
_NAMES = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem"}


@dataclass(frozen=True)
class Integer:
    """An expression of type int64_t, what it can be, and what can go wrong in computing it."""

    text: str
    least: int
    most: int
    can_fail: bool = False
    """Whether its text names ``bad``."""
    function: str = ""
    """The function of the runtime that computes it, if one does."""
    mistakes: frozenset[IntegerFault] = frozenset()
    """What ``bad`` can say of it: empty where a function takes ``bad``, but its operands can never be wrong."""
    before: tuple[str, ...] = ()
    """Statements in front of the one that computes it: operands that must be computed first."""

    @property
    def is_literal(self) -> bool:
        """Whether it is written as a plain number."""
        return self.text == str(self.least)


def number(value: int) -> Integer:
    """A constant; one that no int64_t holds cannot be computed."""
    if not LEAST <= value <= MOST:
        text = "oi_index_mul(INT64_MAX, 2, &bad)"
        return Integer(text, LEAST, MOST, can_fail=True, function="oi_index_mul", mistakes=TOO_LONG)
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
    """Prints expressions; ``named`` says what a name is, ``needs`` collects the functions that are called.

    C leaves open in which order it computes operands. ``temporary`` gives names to those that must be computed before
    others, since the first mistake counts; without it, any may.
    """

    def __init__(
        self, named: Callable[[str], Integer], needs: set[str], temporary: Callable[[], str] | None = None
    ) -> None:
        self._named = named
        self._needs = needs
        self._temporary = temporary

    def integer(self, expr: Expr) -> Integer:
        """An expression in C. Division rounds down."""
        match expr:
            case Num(value):
                found = number(value)
            case Ref(name):
                found = self._named(name)
            case Neg(operand):
                found = self._binary("-", number(0), self.integer(operand))
            case BinaryExpr(op, left, right):
                found = self._binary(op, self.integer(left), self.integer(right))
        if found.function:
            self._needs.add(found.function)
        return found

    def integers(self, exprs: Iterable[Expr]) -> list[Integer]:
        """Expressions that are computed in this order; the statements before them stand with the first."""
        before, found = self._in_order([self.integer(expr) for expr in exprs])
        return [replace(found[0], before=before), *found[1:]] if before else found

    def _in_order(self, integers: Sequence[Integer]) -> tuple[tuple[str, ...], list[Integer]]:
        """Statements, and integers behind them of which it does not matter any more which is computed first."""
        if self._temporary is None:
            return (), list(integers)
        before: list[str] = []
        found: list[Integer] = []
        for at, one in enumerate(integers):
            before += one.before
            later = frozenset[IntegerFault]().union(*(other.mistakes for other in integers[at + 1 :]))
            if one.mistakes and later and len(one.mistakes | later) > 1:
                name = self._temporary()
                before.append(f"const int64_t {name} = {one.text};")
                found.append(replace(one, text=name, function="", before=()))
            else:
                found.append(replace(one, before=()))
        return tuple(before), found

    def _binary(self, op: Operator, one: Integer, other: Integer) -> Integer:
        before, (left, right) = self._in_order((one, other))
        mistakes = one.mistakes | other.mistakes
        least, most, is_safe = _range(op, left, right)
        plain = op if op in "+-*" or (left.least >= 0 and right.least > 0) else None
        if is_safe and plain is not None:
            can_fail = left.can_fail or right.can_fail
            text = f"({left.text} {plain} {right.text})"
            return Integer(text, least, most, can_fail, mistakes=mistakes, before=before)
        function = f"oi_index_{_NAMES[op]}"
        text = f"{function}({left.text}, {right.text}, &bad)"
        mistakes |= frozenset() if is_safe else _mistakes(op, left, right)
        least, most = max(least, LEAST), min(most, MOST)
        # The functions take ``bad`` in any case: whether it can be set is known only to us.
        return Integer(text, least, most, can_fail=True, function=function, mistakes=mistakes, before=before)


def _mistakes(op: Operator, left: Integer, right: Integer) -> frozenset[IntegerFault]:
    """What can go wrong in an operation that is not safe."""
    if op not in "/%":
        return TOO_LONG
    by_zero = _BY_ZERO if right.least <= 0 <= right.most else frozenset[IntegerFault]()
    return by_zero | TOO_LONG if op == "/" and left.least == LEAST and right.least < 0 else by_zero


def _range(op: Operator, left: Integer, right: Integer) -> tuple[int, int, bool]:
    """What a result can be, and whether it always is a number that fits."""
    if op in "/%" and right.least <= 0 <= right.most:
        return LEAST, MOST, False
    least, most = interval(op, (left.least, left.most), (right.least, right.most))
    return least, most, least >= LEAST and most <= MOST


def can_fail(integers: Iterable[Integer]) -> bool:
    """Whether computing one of them can set ``bad``."""
    return any(one.can_fail for one in integers)
