"""Solves dimensions for sizes: which sizes give expressions the extents that values have."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from operator import add, mul, sub, truediv

from openinfer.check.sizes import Lookup, SizeError, evaluate_evenly
from openinfer.ir.expr import BinaryExpr, Expr, Neg, Num, Ref

_MOST_TRIED = 1 << 16
"""The number of values tried for a size in a nonlinear dimension such as T*T."""


def solved(dim: Expr, name: str, extent: int, known: Mapping[str, int], lookup: Lookup, bound: int) -> int | None:
    """The size that gives a dimension an extent; computed if the dimension is linear in it, searched for otherwise."""

    def value(size: int) -> int | None:
        try:
            return evaluate_evenly(dim, {**known, name: size}, lookup)
        except SizeError:
            return None

    try:
        at_zero = _fraction(dim, {**known, name: 0}, lookup)
        slope = _fraction(dim, {**known, name: 1}, lookup) - at_zero
        guess = (extent - at_zero) / slope
    except ZeroDivisionError:
        guess = Fraction(1, 2)
    if guess.denominator == 1 and value(int(guess)) == extent:
        return int(guess)
    return next((size for size in range(min(bound, _MOST_TRIED) + 1) if value(size) == extent), None)


def _fraction(dim: Expr, values: Mapping[str, int], lookup: Lookup) -> Fraction:
    """The value of a dimension, which need not divide evenly."""
    match dim:
        case Num(value):
            return Fraction(value)
        case Ref(name):
            return Fraction(values[name] if name in values else lookup(name))
        case Neg(operand):
            return -_fraction(operand, values, lookup)
        case BinaryExpr(op, left, right):
            one, other = _fraction(left, values, lookup), _fraction(right, values, lookup)
            found: Fraction = {"+": add, "-": sub, "*": mul, "/": truediv}[op](one, other)
            return found


LinearForm = dict[str, Fraction]
"""A linear expression: the coefficient of each size, and the constant term under the name \"\"."""


def solved_together(
    equations: Sequence[tuple[Expr, int]], unknown: Sequence[str], known: Mapping[str, int], lookup: Lookup
) -> dict[str, Fraction]:
    """The sizes that a system of linear equations determines, such as P+T and P-T; nonlinear equations are ignored.

    >>> equations = [(BinaryExpr("+", Ref("P"), Ref("T")), 7), (BinaryExpr("-", Ref("P"), Ref("T")), 3)]
    >>> solved_together(equations, ["P", "T"], {}, {}.__getitem__)
    {'P': Fraction(5, 1), 'T': Fraction(2, 1)}
    """
    lines = [(_line(dim, {*unknown}, known, lookup), extent) for dim, extent in equations]
    rows = [
        [*(line.get(name, Fraction(0)) for name in unknown), extent - line.get("", Fraction(0))]
        for line, extent in lines
        if line is not None
    ]
    done = 0
    for column in range(len(unknown)):
        pivot = next((row for row in range(done, len(rows)) if rows[row][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        head = rows[done][column]
        rows[done] = [one / head for one in rows[done]]
        for row in range(len(rows)):
            factor = rows[row][column]
            if row != done and factor:
                rows[row] = [one - factor * other for one, other in zip(rows[row], rows[done], strict=True)]
        done += 1
    found = {}
    for reduced in rows[:done]:
        first, *others = (place for place in range(len(unknown)) if reduced[place])
        if not others:
            found[unknown[first]] = reduced[-1]
    return found


def _line(dim: Expr, unknown: set[str], known: Mapping[str, int], lookup: Lookup) -> LinearForm | None:
    """A dimension as a linear form over the unknown sizes; None if it is not linear."""
    match dim:
        case Num(value):
            return {"": Fraction(value)}
        case Ref(name):
            if name in unknown:
                return {name: Fraction(1)}
            return {"": Fraction(known[name] if name in known else lookup(name))}
        case Neg(operand):
            own = _line(operand, unknown, known, lookup)
            return None if own is None else _scaled(own, Fraction(-1))
        case BinaryExpr(op, left, right):
            one, other = _line(left, unknown, known, lookup), _line(right, unknown, known, lookup)
            return None if one is None or other is None else _joined(op, one, other)


def _joined(op: str, one: LinearForm, other: LinearForm) -> LinearForm | None:
    match op:
        case "+" | "-":
            sign = Fraction(1 if op == "+" else -1)
            return {name: one.get(name, Fraction(0)) + sign * other.get(name, Fraction(0)) for name in {**one, **other}}
        case "*" if other.keys() <= {""}:
            return _scaled(one, other.get("", Fraction(0)))
        case "*" if one.keys() <= {""}:
            return _scaled(other, one.get("", Fraction(0)))
        case "/" if other.keys() <= {""} and other.get(""):
            return _scaled(one, 1 / other[""])
        case _:
            return None


def _scaled(line: LinearForm, factor: Fraction) -> LinearForm:
    return {name: one * factor for name, one in line.items()}
