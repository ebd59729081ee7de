"""Quantization as a Cortex-M does it: one instruction rounds, and limits what it gives.

What is limited to a few bits in the end may be limited to any number of bits above that before: the steps of a scale
are rounded and limited by ``steps`` of the loop IR in place of comparisons of floats.
"""

from collections.abc import Mapping, Sequence

from openinfer.loops.ir import Binary, Cast, Compare, Const, Let, Scalar, ScalarVar, Select, Statement, Unary
from openinfer.loops.rewrite import changed, with_bodies, with_scalars

_FAR = 2**16
"""The farthest that a result, or what is added to the steps, may be from 0: both are of 16 bits at most."""
_POINTS = ("i8", "u8", "i16", "u16")
_LEAST = 2**18
"""Steps that are limited to less are another number than those that are limited to this."""


def in_steps(body: Sequence[Statement], known: Mapping[ScalarVar, Scalar] | None = None) -> tuple[Statement, ...]:
    """Statements with such roundings as one operation; names that nothing uses any more are still there."""
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
            steps = _with_point(_meant(total, names), names) if max(abs(high), abs(low)) <= _FAR else None
            return None if steps is None else Binary("max", Binary("min", steps, most), least)
        case Cast(Cast(whole, between), to) if to.kind == "float" and whole.dtype.name == "i32":
            # All integers of 32 bits are such of 64: the float is the same.
            return Cast(whole, to) if between.name == "i64" else None
        case _:
            return None


def _with_point(total: Scalar, names: Mapping[ScalarVar, Scalar]) -> Scalar | None:
    """The steps, and the zero point that may be added to them, which is near 0."""
    match total:
        case Binary("add", steps, Cast(point) as right) if point.dtype.name in _POINTS:
            found = _steps(_meant(steps, names), names)
            return None if found is None else Binary("add", found, right)
        case Binary("add", steps, Const(point) as right) if abs(point) <= _FAR:
            found = _steps(_meant(steps, names), names)
            return None if found is None else Binary("add", found, right)
        case _:
            return _steps(total, names)


def _steps(value: Scalar, names: Mapping[ScalarVar, Scalar]) -> Scalar | None:
    """What is rounded, where a value is that, limited, with 0 for NaN."""
    match value:
        case Cast(Select(Unary("isnan", asked), Const(0.0), low), to) if asked == low and to.name == "i32":
            inner = _limited(_limited(low, "lt", names), "gt", names)
            match inner:
                case Unary("rint", operand) if operand.dtype.name == "f32":
                    return Unary("steps", operand)
    return None


def _limited(value: Scalar | None, op: str, names: Mapping[ScalarVar, Scalar]) -> Scalar | None:
    """What has a limit far away, on one side."""
    match None if value is None else _meant(value, names):
        case Select(Compare(own, left, Const(limit)), Const(then), otherwise) if (
            own == op and left == otherwise and then == limit and abs(limit) >= _LEAST and (limit < 0) == (op == "lt")
        ):
            return _meant(otherwise, names)
    return None


def _meant(value: Scalar, names: Mapping[ScalarVar, Scalar]) -> Scalar:
    """What a name stands for."""
    return names.get(value, value) if isinstance(value, ScalarVar) else value
