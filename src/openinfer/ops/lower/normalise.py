"""Normalisation: the mean and the mean square of each row, then its elements scaled.

Sums are in the compute type; the few values that a row has only one of are f64, so that no ``eps`` is too small.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from openinfer.dtypes import DType
from openinfer.loops.build import Builder, Position, cast, const, index, pair, unary
from openinfer.loops.ir import Buffer, LoopKind, Scalar, ScalarVar
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.lower.reduce import Row, extents_of, placed
from openinfer.ops.record import Call
from openinfer.ops.shapes import axes_of, axis_of
from openinfer.ops.types import F64

SMALLEST_NORMAL_F32 = 2.0**-126


# --- the formulas -----------------------------------------------------------------------------------------------------


def _inverse(builder: Builder, divisor: Scalar, eps: float, dtype: DType) -> Scalar:
    """One by a divisor of at least ``eps``: a factor for all elements of a row."""
    inverse = 1 / divisor
    # The elements it is for are 0 where it would be too large, and 0 times infinity is not.
    limited = pair("min", inverse, dtype.maximum) if eps > 0 else inverse
    return builder.let(cast(limited, dtype), "scale")


def _of_mean_square(row: Row, squares: Scalar, eps: float, dtype: DType) -> Scalar:
    """The factor ``1 / sqrt(squares / count + eps)``."""
    mean = cast(squares, F64) / cast(row.count, F64)
    return _inverse(row.builder, unary("sqrt", mean + eps), eps, dtype)


def _affine(value: Scalar, scale: Scalar | None, shift: Scalar | None) -> Scalar:
    scaled = value if scale is None else value * scale
    return scaled if shift is None else scaled + shift


@dataclass(frozen=True)
class _Place:
    """Where the element of a row stands in the whole, and which element of ``gamma`` and ``beta`` it belongs to."""

    whole: Callable[[tuple[ScalarVar, ...]], tuple[Position, ...]]
    parameter: Callable[[tuple[ScalarVar, ...]], tuple[Position, ...]]


def _at(operand: KernelInput | None, where: tuple[Position, ...]) -> Scalar | None:
    return None if operand is None else operand[where]


def _standardise(call: Call, row: Row, place: _Place, operands: Sequence[KernelInput | None], out: Buffer) -> None:
    """``(x - mean) / sqrt(var + eps) * gamma + beta`` of a row."""
    builder, dtype, eps = row.builder, call.dtype().compute, call.params["eps"]
    mean = builder.let(row.sum(dtype) / cast(row.count, dtype), "mean")
    factor = _of_mean_square(row, row.square_sum(dtype, lambda value: value - mean), eps, dtype)
    with builder.loops(row.extents) as inside:
        scale, shift = (_at(operand, place.parameter(inside)) for operand in operands)
        builder.store(out, place.whole(inside), _affine((row.element(inside) - mean) * factor, scale, shift))


# --- over axes --------------------------------------------------------------------------------------------------------


@lowers("layer_norm")
def _layer_norm(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x, *operands), (out,) = inputs, outputs
    assert x is not None
    axes = axes_of(call.params["axes"], len(x.shape))
    inner, kept = extents_of(x.shape, axes)
    with builder.loops(kept, LoopKind.PARALLEL) as where:
        place = _Place(lambda inside: placed(axes, inside, where), lambda inside: inside)
        row = Row(builder, inner, lambda inside: x[place.whole(inside)])
        _standardise(call, row, place, operands, out)


@lowers("rms_norm")
def _rms_norm(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x, gamma), (out,) = inputs, outputs
    assert x is not None
    axes, dtype = axes_of(call.params["axes"], len(x.shape)), call.dtype().compute
    inner, kept = extents_of(x.shape, axes)
    with builder.loops(kept, LoopKind.PARALLEL) as where:
        row = Row(builder, inner, lambda inside: x[placed(axes, inside, where)])
        squares = row.square_sum(dtype)
        factor = _of_mean_square(row, squares, call.params["eps"], dtype)
        with builder.loops(inner) as inside:
            value = _affine(row.element(inside) * factor, _at(gamma, inside), None)
            builder.store(out, placed(axes, inside, where), value)


@lowers("l2_normalize")
def _l2_normalize(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    axes, dtype = (axis_of(call.params["axis"], len(x.shape)),), call.dtype().compute
    eps: float = call.params["eps"]
    inner, kept = extents_of(x.shape, axes)
    with builder.loops(kept, LoopKind.PARALLEL) as where:
        row = Row(builder, inner, lambda inside: x[placed(axes, inside, where)])
        length = unary("sqrt", cast(row.square_sum(dtype), F64))
        factor = _inverse(builder, pair("max", length, eps), eps, dtype)
        with builder.loops(inner) as inside:
            builder.store(out, placed(axes, inside, where), row.element(inside) * factor)


# --- per channel ------------------------------------------------------------------------------------------------------


@lowers("batch_norm")
def _batch_norm(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x, *rest), (out,) = inputs, outputs
    assert x is not None
    axis, eps = axis_of(call.params["axis"], len(x.shape)), call.params["eps"]
    # An f32 does not hold a smaller eps.
    dtype = F64 if 0 < eps < SMALLEST_NORMAL_F32 else call.dtype().compute
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        value = cast(x[where], dtype)
        gamma, beta, mean, var = (cast(operand[where[axis]], dtype) for operand in rest if operand is not None)
        result = (value - mean) / unary("sqrt", var + const(eps, dtype)) * gamma + beta
        builder.store(out, where, cast(result, call.dtype().compute))


@lowers("group_norm")
def _group_norm(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x, *operands), (out,) = inputs, outputs
    assert x is not None
    groups = call.params["groups"]
    channels = x.shape[1] // groups
    with builder.loops((x.shape[0], groups), LoopKind.PARALLEL) as (batch, group):

        def channel(inside: tuple[ScalarVar, ...]) -> Scalar:
            return group * index(channels) + inside[0]

        place = _Place(lambda inside: (batch, channel(inside), *inside[1:]), lambda inside: (channel(inside),))
        row = Row(builder, (channels, *x.shape[2:]), lambda inside: x[place.whole(inside)])
        _standardise(call, row, place, operands, out)


@lowers("instance_norm")
def _instance_norm(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x, *operands), (out,) = inputs, outputs
    assert x is not None
    with builder.loops(x.shape[:2], LoopKind.PARALLEL) as (batch, channel):
        place = _Place(lambda inside: (batch, channel, *inside), lambda _inside: (channel,))
        row = Row(builder, tuple(x.shape[2:]), lambda inside: x[place.whole(inside)])
        _standardise(call, row, place, operands, out)
