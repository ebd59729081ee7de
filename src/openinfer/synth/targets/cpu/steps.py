"""Quantization as a Cortex-M does it: one instruction rounds and clamps.

A value that is clamped to a few bits in the end may be clamped to any wider range before: ``steps`` of the loop IR
rounds and clamps the steps of a scale, in place of float comparisons.
"""

from collections.abc import Mapping, Sequence

from openinfer.loops.ir import Binary, Cast, Compare, Const, Let, Scalar, ScalarVar, Select, Statement, Unary
from openinfer.loops.rewrite import changed, with_bodies, with_scalars

_FAR = 2**16
"""The largest magnitude of a result, or of what is added to the steps: both have at most 16 bits."""
_POINTS = ("i8", "u8", "i16", "u16")
_LEAST = 2**18
"""An intermediate clamp this wide or wider has no effect on the result."""


def in_steps(body: Sequence[Statement], known: Mapping[ScalarVar, Scalar] | None = None) -> tuple[Statement, ...]:
    """Statements with each such rounding as one operation; names that become unused stay."""
    names, made = dict(known or {}), []
    for statement in body:
        own = with_scalars(statement, lambda value: changed(value, lambda part: _simpler(part, names)))
        if isinstance(own, Let):
            names[own.var] = own.value
        made.append(with_bodies(own, lambda inside: in_steps(inside, names)))
    return tuple(made)


def _simpler(value: Scalar, names: Mapping[ScalarVar, Scalar]) -> Scalar | None:
    match value:
        case Binary("max", Binary("min", total, Const(high) as most), Const(low) as least):
            steps = _with_point(_resolved(total, names), names) if max(abs(high), abs(low)) <= _FAR else None
            return None if steps is None else Binary("max", Binary("min", steps, most), least)
        case Cast(Cast(whole, between), to) if to.kind == "float" and whole.dtype.name == "i32":
            # Every i32 fits in an i64: the float is the same.
            return Cast(whole, to) if between.name == "i64" else None
        case _:
            return None


def _with_point(total: Scalar, names: Mapping[ScalarVar, Scalar]) -> Scalar | None:
    """The steps, with the zero point that may be added to them, which is close to 0."""
    match total:
        case Binary("add", steps, Cast(point) as right) if point.dtype.name in _POINTS:
            found = _steps(_resolved(steps, names), names)
            return None if found is None else Binary("add", found, right)
        case Binary("add", steps, Const(point) as right) if abs(point) <= _FAR:
            found = _steps(_resolved(steps, names), names)
            return None if found is None else Binary("add", found, right)
        case _:
            return _steps(total, names)


def _steps(value: Scalar, names: Mapping[ScalarVar, Scalar]) -> Scalar | None:
    """The steps of a value that is rounded and clamped, with 0 for NaN; None for others."""
    match value:
        case Cast(Select(Unary("isnan", asked), Const(0.0), low), to) if asked == low and to.name == "i32":
            inner = _limited(_limited(low, "lt", names), "gt", names)
            match inner:
                case Unary("rint", operand) if operand.dtype.name == "f32":
                    return Unary("steps", operand)
    return None


def _limited(value: Scalar | None, op: str, names: Mapping[ScalarVar, Scalar]) -> Scalar | None:
    """The operand of a distant clamp on one side."""
    match None if value is None else _resolved(value, names):
        case Select(Compare(own, left, Const(limit)), Const(then), otherwise) if (
            own == op and left == otherwise and then == limit and abs(limit) >= _LEAST and (limit < 0) == (op == "lt")
        ):
            return _resolved(otherwise, names)
    return None


def _resolved(value: Scalar, names: Mapping[ScalarVar, Scalar]) -> Scalar:
    """The value that a name stands for."""
    return names.get(value, value) if isinstance(value, ScalarVar) else value
