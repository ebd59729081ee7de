"""The size at which a dimension has an extent, as C."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Ref
from openinfer.loops.dim import at, expr_of, sizes_in
from openinfer.synth.targets.cstyle.code import ExprText, joined


@dataclass(frozen=True)
class Solution:
    """A size, and the condition that it exists: it is whole, not negative, and not above its bound."""

    value: str
    condition: str


def solved(expr: Expr, size: str, extent: ExprText, bound: int) -> Solution | None:
    """Solve ``expr == extent`` for the one size in it; None where it is not linear.

    >>> found = solved(BinaryExpr("+", BinaryExpr("*", Num(2), Ref("T")), Num(3)), "T", ExprText("n"), 8)
    >>> found.value, found.condition
    ('(n - 3) / 2', 'n <= 19 && n >= 3 && (n - 3) % 2 == 0')
    """
    form = linear(expr, size)
    if form is None or form[0] == 0:
        return None
    slope, first = form
    # extent = (a * size + b) / d  with whole a, b, d  gives  size = (extent * d - b) / a
    d = slope.denominator * first.denominator
    a, b = int(slope * d), int(first * d)
    if a < 0:
        return None
    whole = extent if d == 1 else joined(extent, "*", ExprText(str(d)))
    rest = joined(whole, "-" if b > 0 else "+", ExprText(str(abs(b)))) if b else whole
    conditions = [joined(extent, "<=", ExprText(str(int(slope * bound + first)))).text]
    if b > 0:
        conditions.append(joined(whole, ">=", ExprText(str(b))).text)
    if a == 1:
        return Solution(rest.text, " && ".join(conditions))
    divisor = ExprText(str(a))
    conditions.append(joined(joined(rest, "%", divisor), "==", ExprText("0")).text)
    return Solution(joined(rest, "/", divisor).text, " && ".join(conditions))


def replaced(expr: Expr, size: str, value: Expr) -> Expr:
    """An expression with something else in place of a size."""
    match expr:
        case Ref(name):
            return value if name == size else expr
        case Neg(operand):
            return Neg(replaced(operand, size, value))
        case BinaryExpr(op, left, right):
            return BinaryExpr(op, replaced(left, size, value), replaced(right, size, value))
        case _:
            return expr


def linear(expr: Expr, size: str) -> tuple[Fraction, Fraction] | None:
    """The slope and the value at zero of an expression that is a line over the size."""
    match expr:
        case Num(value):
            return Fraction(0), Fraction(value)
        case Ref(name):
            return (Fraction(1), Fraction(0)) if name == size else None
        case Neg(operand):
            own = linear(operand, size)
            return None if own is None else (-own[0], -own[1])
        case BinaryExpr(op, left, right):
            one, other = linear(left, size), linear(right, size)
            return None if one is None or other is None else _combined(op, one, other)


def _combined(
    op: str, one: tuple[Fraction, Fraction], other: tuple[Fraction, Fraction]
) -> tuple[Fraction, Fraction] | None:
    match op:
        case "+":
            return one[0] + other[0], one[1] + other[1]
        case "-":
            return one[0] - other[0], one[1] - other[1]
        case "*" if not one[0] or not other[0]:
            return one[0] * other[1] + other[0] * one[1], one[1] * other[1]
        case "/" if not other[0] and other[1]:
            return one[0] / other[1], one[1] / other[1]
        case _:
            return None


def sizes_of_shapes(
    declared: Mapping[str, Sequence[int]], actual: Mapping[str, Sequence[int]], bounds: Mapping[str, int]
) -> dict[str, int]:
    """The dynamic sizes at which declared shapes are the actual ones; those that cannot be found are left out."""
    pairs = [(extent, own) for key in declared for extent, own in zip(declared[key], actual[key], strict=True)]
    found: dict[str, int] = {}
    again = True
    while again:
        again = False
        for extent, own in pairs:
            unknown = sizes_in(extent) - found.keys()
            if len(unknown) == 1:
                (size,) = unknown
                values = range(min(bounds[size], 1 << 16) + 1)
                value = own if expr_of(extent) == Ref(size) else None
                if value is None:
                    value = next((one for one in values if at(extent, {**found, size: one}) == own), None)
                if value is not None:
                    found[size] = value
                    again = True
    return found
