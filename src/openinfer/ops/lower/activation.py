"""Activations that only compare, multiply and add, in the reference's steps; and those along an axis."""

from collections.abc import Callable
from math import inf, isnan
from typing import Any

import numpy as np

from openinfer.loops.build import Builder, Position, const, load, math, pair, rounded, select
from openinfer.loops.ir import Binary, Buffer, Const, LoopKind, Math, Scalar
from openinfer.ops.lower.elementwise import elementwise
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of


def number(call: Call, name: str) -> Const:
    """A parameter in the type the operand computes in; an integer that no float reaches is infinite."""
    value, dtype = call.params[name], call.dtype().compute
    if dtype.kind != "float":
        return const(int(value), dtype)
    if isinstance(value, int) and value.bit_length() > 1024:
        value = inf if value > 0 else -inf
    kind: Any = dtype.array.type
    with np.errstate(over="ignore"):
        return const(float(kind(value)), dtype)


# --- exact ones -------------------------------------------------------------------------------------------------------


def at_least(x: Scalar, limit: Const) -> Scalar:
    """The larger of a value and a constant; NaN stays, and of two zeros +0 is larger."""
    if x.dtype.kind != "float" or isnan(limit.value):
        return pair("max", x, limit)
    is_plus_zero = limit.value == 0 and not np.signbit(limit.value)
    return select(x <= limit if is_plus_zero else x < limit, limit, x)


def at_most(x: Scalar, limit: Const) -> Scalar:
    """The smaller of a value and a constant; NaN stays, and of two zeros -0 is smaller."""
    if x.dtype.kind != "float" or isnan(limit.value):
        return pair("min", x, limit)
    is_minus_zero = limit.value == 0 and bool(np.signbit(limit.value))
    return select(x >= limit if is_minus_zero else x > limit, limit, x)


def _limited(builder: Builder, call: Call, x: Scalar, low: str, high: str) -> Scalar:
    """A value between two parameters; an absent or infinite limit is none."""
    least, most = call.params[low], call.params[high]
    if least is not None and least != -inf:
        x = at_least(builder.let(x), number(call, low))
    return x if most == inf else at_most(builder.let(x), number(call, high))


@elementwise("relu")
def _relu(builder: Builder, call: Call, x: Scalar) -> Scalar:
    dtype = call.dtype()
    if call.params["negative_slope"] == 0:
        result = at_least(x, const(0, x.dtype))
    else:
        scaled = builder.let(pair("mul", number(call, "negative_slope"), x))
        result = select(x > 0, x, scaled)
        # Limits are for integers of the dtype's own width.
        result = result if dtype.kind == "float" else rounded(result, dtype)
    return _limited(builder, call, result, "clamp_min", "clamp_max")


elementwise("clamp")(lambda builder, call, x: _limited(builder, call, x, "min", "max"))
elementwise("prelu")(lambda _builder, _call, x, slope: select(x > 0, x, pair("mul", slope, x)))


@elementwise("threshold")
def _threshold(_builder: Builder, call: Call, x: Scalar) -> Scalar:
    value, replacement = number(call, "value"), number(call, "replacement")
    if x.dtype.kind == "float":
        return select(x <= value, replacement, x)
    # As a maximum it is a comparison that compilers do not find to be always true.
    return select(pair("max", x, value).eq(value), replacement, x)


@elementwise("hard_sigmoid")
def _hard_sigmoid(builder: Builder, call: Call, x: Scalar) -> Scalar:
    line = builder.let(number(call, "alpha") * x + number(call, "beta"))
    return at_most(builder.let(at_least(line, const(0, x.dtype))), const(1, x.dtype))


@elementwise("hard_swish")
def _hard_swish(builder: Builder, _call: Call, x: Scalar) -> Scalar:
    line = builder.let(x + 3)
    return x * (at_most(builder.let(at_least(line, const(0, x.dtype))), const(6, x.dtype)) / 6)


# --- along an axis ----------------------------------------------------------------------------------------------------


def _row(
    call: Call, builder: Builder, x: KernelInput, others: tuple[Position, ...]
) -> tuple[int, Callable[[Position], tuple[Position, ...]], Scalar]:
    """The extent of a row of ``x``, where its elements are, and the largest of them that is a number."""
    axis = axis_of(call.params["axis"], len(x.shape))

    def place(position: Position) -> tuple[Position, ...]:
        return (*others[:axis], position, *others[axis:])

    largest = builder.local(-inf, x.dtype.compute)
    with builder.loop(x.shape[axis]) as i:
        value = builder.let(x[place(i)])
        builder.assign(largest, select(value > largest, value, largest))
    return x.shape[axis], place, largest


def _kept(call: Call, shape: tuple[int, ...]) -> tuple[int, ...]:
    axis = axis_of(call.params["axis"], len(shape))
    return (*shape[:axis], *shape[axis + 1 :])


@lowers("softmax")
def _softmax(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """A NaN, or an infinity as the largest value, makes the sum NaN, and so the row."""
    (x,), (out,) = inputs, outputs
    assert x is not None
    dtype = x.dtype.compute

    def power_of(value: Scalar) -> Scalar:
        # What a device's own function is off grows with the distance from 0, as the bound does.
        return Math("exp", (value,), about=out.dtype)

    builder.note("In three passes over a row: its largest element, the exponentials and their sum, the quotients.")
    with builder.loops(_kept(call, x.shape), LoopKind.PARALLEL) as others:
        extent, place, largest = _row(call, builder, x, others)
        total = builder.local(0, dtype)
        with builder.loop(extent) as i:
            power = builder.let(power_of(x[place(i)] - largest))
            if out.dtype is dtype:
                builder.store(out, place(i), power)
            builder.assign(total, total + power)
        with builder.loop(extent) as i:
            # The result has room for the exponentials, unless it is narrower than they are.
            power = load(out, *place(i)) if out.dtype is dtype else power_of(x[place(i)] - largest)
            # What the sum may be off is more than what a quotient may lose.
            builder.store(out, place(i), Binary("div", power, total, about=out.dtype))


@lowers("log_softmax")
def _log_softmax(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    builder.note("In three passes over a row: its largest element, the sum of the exponentials, the differences.")
    with builder.loops(_kept(call, x.shape), LoopKind.PARALLEL) as others:
        extent, place, largest = _row(call, builder, x, others)
        total = builder.local(0, x.dtype.compute)
        with builder.loop(extent) as i:
            builder.assign(total, total + math("exp", x[place(i)] - largest))
        logarithm = builder.let(math("log", total))
        with builder.loop(extent) as i:
            builder.store(out, place(i), (x[place(i)] - largest) - logarithm)
