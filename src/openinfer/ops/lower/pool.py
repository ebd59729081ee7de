"""Pooling: the rows that a row of windows sees are joined first, whole, and then their neighbouring elements.

Along a row neighbours are joined with neighbours, which compilers make vectors of. Padding at the ends of a row is in
the joined row; along other axes windows see only what lies on the input.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import mul

from openinfer.loops.build import Builder, Position, cast, const, index, pair
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import Buffer, Load, LoopKind, Scalar, ScalarVar
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.shapes import pads_of, per_axis


@dataclass(frozen=True)
class _Axis:
    """How windows lie along one spatial axis."""

    extent: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int

    def first(self, result: ScalarVar) -> Scalar:
        """Where a window starts; before 0 in the padding."""
        return result * index(self.stride) - index(self.begin)

    def until(self, first: Scalar, limit: Scalar) -> Scalar:
        """How many positions of a window lie before a limit."""
        distance = pair("max", limit - first + index(self.dilation - 1), 0)
        return pair("min", distance // index(self.dilation), self.kernel)


def _axes(call: Call, spatial: Sequence[int]) -> list[_Axis]:
    rank = len(spatial)
    kernel = per_axis(call.params["kernel"], rank, "kernel", 1)
    strides = kernel if call.params["strides"] is None else per_axis(call.params["strides"], rank, "strides", 1)
    dilations = per_axis(call.params["dilations"], rank, "dilations", 1)
    begins, ends = pads_of(call.params["pads"], rank)
    return [_Axis(*one) for one in zip(spatial, kernel, strides, dilations, begins, ends, strict=True)]


def _seen(builder: Builder, axes: Sequence[_Axis], where: Sequence[ScalarVar]) -> tuple[list[Scalar], list[Scalar]]:
    """Along each axis: the first element that a window sees, and how many it sees."""
    starts, counts = [], []
    for axis, result in zip(axes, where, strict=True):
        first = builder.let(axis.first(result), "first")
        hidden = builder.let(axis.until(first, index(0)), "hidden")
        starts.append(builder.let(first + hidden * index(axis.dilation), "start"))
        counts.append(builder.let(axis.until(first, index(axis.extent)) - hidden, "count"))
    return starts, counts


def _least(operand: KernelInput) -> float:
    """The maximum of no elements."""
    return float("-inf") if operand.dtype.kind == "float" else int(operand.dtype.minimum)


def _places(axes: Sequence[_Axis], starts: Sequence[Scalar], offsets: Sequence[ScalarVar]) -> tuple[Scalar, ...]:
    """The element at a position of a window."""
    parts = zip(axes, starts, offsets, strict=True)
    return tuple(start + offset * index(axis.dilation) for axis, start, offset in parts)


def _fewest(one: int, other: int) -> Position:
    """The smaller of two extents, but not below 0."""
    if is_symbolic(one) or is_symbolic(other):
        return pair("max", pair("min", index(one), index(other)), 0)
    return max(min(one, other), 0)


def _joined(
    call: Call,
    builder: Builder,
    x: KernelInput,
    out: Buffer,
    nothing: float,
    join: Callable[[Scalar, Scalar], Scalar],
    finish: Callable[[Scalar, Sequence[ScalarVar], Sequence[Scalar]], Scalar],
) -> None:
    """What windows see, joined; ``finish`` gets that, the indices, and how many elements are seen along each axis."""
    *others, last = _axes(call, x.shape[2:])
    span = max((out.shape[-1] - 1) * last.stride + (last.kernel - 1) * last.dilation + 1, 1)
    with builder.loops(out.shape[:-1], LoopKind.PARALLEL) as where:
        row = builder.buffer(x.dtype.compute, [span], "row")
        starts, counts = _seen(builder, others, where[2:])
        with builder.loops([span]) as (column,):
            builder.store(row, (column,), const(nothing, row.dtype))
        seen = _fewest(last.extent, span - last.begin)
        with builder.loops(counts) as offsets, builder.loops([seen]) as (column,):
            value = x[(*where[:2], *_places(others, starts, offsets), column)]
            builder.store(row, (column + last.begin,), join(Load(row, (column + last.begin,)), value))
        with builder.loops(out.shape[-1:]) as (result,):
            total = builder.local(nothing, row.dtype, "total")
            with builder.loops([last.kernel]) as (offset,):
                place = result * index(last.stride) + offset * index(last.dilation)
                builder.assign(total, join(total, Load(row, (place,))))
            _, widths = _seen(builder, [last], [result])
            builder.store(out, (*where, result), finish(total, (*where, result), (*counts, *widths)))


@lowers("max_pool")
def max_pool(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """The largest of what the window sees."""
    (x,), (out,) = inputs, outputs
    assert x is not None
    _joined(call, builder, x, out, _least(x), lambda a, b: pair("max", a, b), lambda largest, _where, _counts: largest)


@lowers("avg_pool")
def avg_pool(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    """The sum of what the window sees over how many count."""
    (x,), (out,) = inputs, outputs
    assert x is not None
    axes = _axes(call, x.shape[2:])

    def mean(total: Scalar, where: Sequence[ScalarVar], counts: Sequence[Scalar]) -> Scalar:
        if call.params["count_include_pad"]:
            # No window starts before the padding: those past its end are all that do not count.
            pairs = zip(axes, where[2:], strict=True)
            counts = [axis.until(axis.first(result), index(axis.extent + axis.end)) for axis, result in pairs]
        return total / cast(reduce(mul, counts), total.dtype)

    _joined(call, builder, x, out, 0, lambda a, b: a + b, mean)


@lowers("global_max_pool")
def global_max_pool(
    _call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    """The largest of each channel."""
    (x,), (out,) = inputs, outputs
    assert x is not None
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        largest = builder.local(_least(x), x.dtype.compute, "largest")
        with builder.loops(x.shape[2:]) as inner:
            builder.assign(largest, pair("max", largest, x[(*where[:2], *inner)]))
        builder.store(out, where, largest)


@lowers("global_avg_pool")
def global_avg_pool(
    _call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    """The sum of each channel over its number of elements."""
    (x,), (out,) = inputs, outputs
    assert x is not None
    dtype = x.dtype.compute
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        total = builder.local(0, dtype, "total")
        with builder.loops(x.shape[2:]) as inner:
            builder.assign(total, total + x[(*where[:2], *inner)])
        builder.store(out, where, total / cast(index(prod(x.shape[2:])), dtype))
