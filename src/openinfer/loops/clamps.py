"""Removes minima and maxima that limit nothing: the ranges of their operands are in order for all sizes and contents.

Nothing else follows from ranges here. Contractions and other statements that templates print stay as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from openinfer.loops.intervals import Interval, interval
from openinfer.loops.ir import (
    Binary,
    Combine,
    For,
    If,
    Let,
    Local,
    Scalar,
    SetLocal,
    Statement,
    Store,
    While,
    assigned_by,
    walk,
)
from openinfer.loops.locals import local_ranges
from openinfer.loops.rewrite import Statements, binders, changed, with_bodies, with_scalars


def without_idle_limits(body: Statements) -> Statements:
    """Statements without the minima and maxima whose outcome is always the same operand.

    >>> from openinfer.loops.ir import INDEX, Const, ScalarVar
    >>> i, x = ScalarVar("i"), ScalarVar("x")
    >>> first = Let(x, Binary("min", Binary("max", 0 - i, Const(0, INDEX)), Const(2, INDEX)))
    >>> (loop,) = without_idle_limits((For(i, Const(4, INDEX), (first,)),))
    >>> loop.body == (Let(x, Const(0, INDEX)),)
    True
    """
    combined = {var.name for one in walk(body) if isinstance(one, Combine) for var in assigned_by(one)}
    ranges = {name: ends for name, ends in local_ranges(body).items() if name not in combined}
    return _Limits(ranges).body(body, {})


@dataclass(frozen=True)
class _Limits:
    locals: Mapping[str, Interval]
    """The ranges of mutable variables."""

    def body(self, statements: Statements, outside: Mapping[str, Interval]) -> Statements:
        """Change statements, given the ranges of the variables declared before them."""
        known, made = dict(outside), []
        for statement in statements:
            made.append(self._statement(statement, known))
            for var in binders(statement):
                known.pop(var.name, None)
            match statement:
                case Let(var, value) if var.dtype.kind in ("int", "uint"):
                    known[var.name] = interval(value, known, facts=())
                case Local(var) if var.name in self.locals:
                    known[var.name] = self.locals[var.name]
        is_same = all(one is before for one, before in zip(made, statements, strict=True))
        return statements if is_same else tuple(made)

    def _statement(self, statement: Statement, known: Mapping[str, Interval]) -> Statement:
        match statement:
            case Let() | Local() | SetLocal() | Store() | If() | While() | For():
                one = with_scalars(statement, lambda value: self._scalar(value, known))
            case _:
                return statement
        inside = known
        if isinstance(one, For):
            most = max(interval(one.extent, known, facts=())[1], 1)
            inside = {**known, one.index.name: (0, most - 1)}
        return with_bodies(one, lambda body: self.body(body, inside))

    def _scalar(self, value: Scalar, known: Mapping[str, Interval]) -> Scalar:
        return changed(value, lambda part: _chosen(part, known))


def _chosen(value: Scalar, known: Mapping[str, Interval]) -> Scalar | None:
    """The operand that a minimum or maximum always is; None if it may be either."""
    match value:
        case Binary("min" | "max" as op, left, right) if value.dtype.kind in ("int", "uint"):
            one, other = interval(left, known, facts=()), interval(right, known, facts=())
            if one[1] <= other[0]:
                return left if op == "min" else right
            if other[1] <= one[0]:
                return right if op == "min" else left
    return None
