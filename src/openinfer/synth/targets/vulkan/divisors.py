"""Replaces division by multiplication with the inverse, for divisors of a known size, and for those of several numbers.

A known size is neither tiny nor huge. All this is for quotients that are intermediate values of a result, and need not
be correct to the last bit.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from math import exp, inf

from openinfer.dtypes import DTYPES
from openinfer.loops.ir import (
    Binary,
    Const,
    For,
    Let,
    Math,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Statement,
    Unary,
    While,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements, binders, changed_statements, with_bodies
from openinfer.synth.targets.simt.wide import FreshNames

_F32 = DTYPES["f32"]
_LEAST, _MOST = 2.0**-100, 2.0**100
_ANYTHING = (-inf, inf)
_Ends = tuple[float, float]


def with_inverses(body: Statements) -> Statements:
    """Statements with divisions replaced by products with the inverse, if the divisor surely has one."""
    known: dict[Scalar, Scalar] = {one.var: one.value for one in walk(body) if isinstance(one, Let)}

    def change(value: Scalar) -> Scalar | None:
        if not isinstance(value, Binary) or not _is_near(value):
            return None
        low, high = _ends(value.right, known)
        if not _LEAST <= low <= high <= _MOST:
            return None
        return Binary("mul", value.left, Math("inverse", (value.right,), value.about))

    return changed_statements(body, change)


def with_inverse_roots(body: Statements, kinds: Collection[str]) -> Statements:
    """Statements in which 1 divided by a root is a function, for results of these dtypes."""

    def change(value: Scalar) -> Scalar | None:
        match value:
            case Binary("div", Const(1.0), Unary("sqrt", operand)) if _is_near(value):
                is_known = value.about is not None and value.about.name in kinds
                return Math("rsqrt", (operand,), value.about) if is_known else None
            case _:
                return None

    return changed_statements(body, change)


def with_common_divisors(body: Statements, names: FreshNames) -> Statements:
    """Statements in which the inverse of a variable that several quotients are divided by is computed once."""
    made: list[Statement] = []
    rest = body
    while rest:
        for var in _common_divisors(rest):
            inverse, scale = names.var(f"{var.name}_inverse", _F32), names.var(f"{var.name}_scale", _F32)
            made += [Let(inverse, Math("divisor", (var,))), Let(scale, Math("divisor_scale", (var,)))]
            rest = _multiplied(rest, var, inverse, scale)
        made.append(with_bodies(rest[0], lambda inside: with_common_divisors(inside, names)))
        rest = rest[1:]
    return tuple(made)


def _common_divisors(body: Statements) -> list[ScalarVar]:
    """The divisors in the first of some statements that do not change from there on, and divide several numbers."""
    first = dict.fromkeys(one for one in _divisors(body[:1]) if isinstance(one, ScalarVar))
    if not first:
        return []
    bound = {var for one in walk(body) for var in binders(one)}
    bound |= {one.var for one in walk(body) if isinstance(one, SetLocal)}
    uses = Counter(_divisors(body))
    uses.update(_divisors(tuple(one for one in walk(body) if isinstance(one, For | While))))
    return [var for var in first if var not in bound and uses[var] > 1]


def _divisors(body: Statements) -> Iterator[Scalar]:
    for value in (value for one in walk(body) for value in scalars(one)):
        yield from (part.right for part in visit(value) if isinstance(part, Binary) and _is_near(part))


def _multiplied(body: Statements, divisor: ScalarVar, inverse: ScalarVar, scale: ScalarVar) -> Statements:
    def change(value: Scalar) -> Scalar | None:
        if not isinstance(value, Binary) or not _is_near(value) or value.right != divisor:
            return None
        return Binary("mul", Binary("mul", value.left, inverse), scale)

    return changed_statements(body, change)


def _is_near(value: Binary) -> bool:
    """Whether the last bit of a value may be off, and it is a quotient in f32."""
    return value.op == "div" and value.about is not None and value.dtype is _F32


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
