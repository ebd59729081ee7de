"""Names arithmetic that must be computed as written, and replaces expressions by faster or safer equivalents.

``precise`` covers the operators of the expression that initializes a variable, but not the operands of calls, selects
and conditions in it. So float arithmetic in these operands gets variables of its own.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from math import frexp

from openinfer.loops.build import select
from openinfer.loops.ir import (
    Binary,
    Const,
    If,
    Let,
    Local,
    Math,
    Scalar,
    ScalarVar,
    Select,
    SetLocal,
    Statement,
    Store,
    Unary,
    WideStore,
    children,
    rebuilt,
    walk,
)
from openinfer.loops.rewrite import Statements, changed_statements, map_statements, with_bodies, with_scalars

_ARITHMETIC = ("add", "sub", "mul", "div")


def with_factors(body: Statements) -> Statements:
    """Statements with division by a power of two replaced by multiplication with its inverse, which is exact."""
    return changed_statements(body, _factor)


def _factor(value: Scalar) -> Scalar | None:
    match value:
        case Binary("div", left, Const(number)) if value.dtype.kind == "float" and frexp(number)[0] == 0.5:
            inverse = 1 / number
            return Binary("mul", left, Const(inverse, value.dtype)) if 2.0**-64 < inverse < 2.0**64 else None
        case _:
            return None


def with_floors(body: Statements) -> Statements:
    """Statements for a device that flushes subnormal numbers: the floor of a tiny negative number is still -1."""
    return changed_statements(body, _floor)


def _floor(value: Scalar) -> Scalar | None:
    match value:
        case Unary("floor", Binary("div", left, right)) if value.dtype.name == "f32":
            larger = left * 2.0**64 / right
            return select((larger > -(2.0**-62)) & (larger < -(2.0**-86)), -1.0, value)
        case _:
            return None


def with_near_stores(body: Statements) -> Statements:
    """Statements in which stores of values that are not exact anyway say so."""
    known: dict[Scalar, Scalar] = {one.var: one.value for one in walk(body) if isinstance(one, Let)}

    def marked(one: Statement) -> Statements:
        if isinstance(one, WideStore) and not one.has_words and all(_is_near(value, known) for value in one.values):
            return (replace(one, is_near=True),)
        return (one,)

    return map_statements(body, marked)


def _is_near(value: Scalar, known: Mapping[Scalar, Scalar]) -> bool:
    """Whether a value comes from a function or a quotient whose last bits need not be right."""
    match value:
        case ScalarVar():
            return value in known and _is_near(known[value], known)
        case Math() | Unary("sqrt"):
            # A root of a number of few digits is never halfway between two of them.
            return value.about is not None
        case Binary("mul", left, Const()):
            return _is_near(left, known)
        case Binary("div"):
            return value.about is not None
        case Select(_, then, otherwise):
            return _is_near(then, known) and _is_near(otherwise, known)
        case _:
            return False


def with_exact_names(body: Statements, taken: Collection[str]) -> Statements:
    """Statements in which all float arithmetic is in the initializer of a variable, or in the value of a store."""
    return _ExactNamer(taken).run(body)


class _ExactNamer:
    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._count = 0
        self._lets: list[Let] = []

    def run(self, body: Statements) -> Statements:
        return tuple(made for statement in body for made in self._named(statement))

    def _named(self, statement: Statement) -> Iterator[Statement]:
        one = statement
        match statement:
            case Let() | Local() | SetLocal():
                one = with_scalars(statement, lambda value: self._exact(value, is_covered=True))
            case Store(buffer=buffer):
                # The function that rounds to a smaller float would have the sum as its operand.
                is_covered = not buffer.dtype.is_small_float
                one = with_scalars(statement, lambda value: self._exact(value, is_covered=is_covered))
            case If():
                one = with_scalars(statement, lambda value: self._exact(value, is_covered=False))
        yield from self._lets
        self._lets = []
        yield with_bodies(one, self.run)

    def _exact(self, value: Scalar, *, is_covered: bool) -> Scalar:
        is_arithmetic = isinstance(value, Binary) and value.op in _ARITHMETIC and value.dtype.kind == "float"
        parts = tuple(self._exact(part, is_covered=is_arithmetic) for part in children(value))
        made = rebuilt(value, parts) if parts != children(value) else value
        if not is_arithmetic or is_covered:
            return made
        let = Let(self._fresh(made), made)
        self._lets.append(let)
        return let.var

    def _fresh(self, value: Scalar) -> ScalarVar:
        self._count += 1
        while f"exact_{self._count}" in self._taken:
            self._count += 1
        return ScalarVar(f"exact_{self._count}", value.dtype)
