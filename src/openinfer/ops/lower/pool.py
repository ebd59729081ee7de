"""Pooling: the rows that a row of windows sees are joined first, whole, and then their neighbouring elements.

Along a row neighbours are joined with neighbours, which compilers make vectors of. Padding at the ends of a row is in
the joined row; along other axes windows see only what lies on the input.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import mul

from openinfer.loops.blocked import BLOCK
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


@dataclass(frozen=True)
class _Seen:
    """What a window sees along an axis: its first element, and how many."""

    axis: _Axis
    start: Scalar
    count: Scalar

    def place(self, offset: Scalar) -> Scalar:
        """The element at a position of the window."""
        return self.start + offset * index(self.axis.dilation)


def _seen(builder: Builder, axes: Sequence[_Axis], where: Sequence[ScalarVar]) -> list[_Seen]:
    """What windows see along each axis."""
    found = []
    for axis, result in zip(axes, where, strict=True):
        first = builder.let(axis.first(result), "first")
        hidden = builder.let(axis.until(first, index(0)), "hidden")
        start = builder.let(first + hidden * index(axis.dilation), "start")
        found.append(_Seen(axis, start, builder.let(axis.until(first, index(axis.extent)) - hidden, "count")))
    return found


def _least(operand: KernelInput) -> float:
    """The maximum of no elements."""
    return float("-inf") if operand.dtype.kind == "float" else int(operand.dtype.minimum)


def _fewest(one: int, other: int) -> Position:
    """The smaller of two extents, but not below 0."""
    if is_symbolic(one) or is_symbolic(other):
        return pair("max", pair("min", index(one), index(other)), 0)
    return max(min(one, other), 0)


@dataclass(frozen=True)
class _Window:
    """What a row of windows sees of rows: how they are joined, and into what."""

    builder: Builder
    x: KernelInput
    last: _Axis
    nothing: float
    join: Callable[[Scalar, Scalar], Scalar]
    most: int | None
    """The most rows that are joined one after the other; None for any number."""

    def clear(self, row: Buffer) -> None:
        """Make a row one of nothing."""
        with self.builder.loops(row.shape) as place:
            self.builder.store(row, place, const(self.nothing, row.dtype))

    def _part(self, row: Buffer) -> Buffer:
        """A row of nothing, beside another."""
        made = self.builder.buffer(row.dtype, row.shape, "part")
        self.clear(made)
        return made

    def gather(
        self, row: Buffer, where: tuple[Scalar, ...], others: Sequence["_Seen"], at: tuple[Scalar, ...] = ()
    ) -> None:
        """Join all that is seen along the other axes into a row; very many rows through rows of their own."""
        if self.most is None or prod(one.axis.kernel for one in others) <= self.most:
            with self.builder.loops([one.count for one in others]) as offsets:
                self._take(row, (*where, *at, *(one.place(each) for one, each in zip(others, offsets, strict=True))))
            return
        first, *rest = others
        if first.axis.kernel > self.most:
            self._in_blocks(row, where, others, at)
            return
        with self.builder.loops([first.count]) as (offset,):
            own = self._part(row)
            self.gather(own, where, rest, (*at, first.place(offset)))
            self._add(row, own)

    def _in_blocks(
        self, row: Buffer, where: tuple[Scalar, ...], others: Sequence["_Seen"], at: tuple[Scalar, ...]
    ) -> None:
        assert self.most is not None
        (first, *rest), most = others, index(self.most)
        with self.builder.loops([(first.count + (self.most - 1)) // most]) as (block,):
            begin = self.builder.let(block * most, "begin")
            own = self._part(row)
            count = self.builder.let(pair("min", first.count - begin, most), "count")
            start = self.builder.let(first.place(begin), "start")
            part = _Seen(replace(first.axis, kernel=self.most), start, count)
            self.gather(own, where, (part, *rest), at)
            self._add(row, own)

    def _take(self, row: Buffer, where: tuple[Scalar, ...]) -> None:
        """Join a row of the input into a row that begins before it, with padding."""
        seen = _fewest(self.last.extent, row.shape[0] - self.last.begin)
        with self.builder.loops([seen]) as (column,):
            place = (column + self.last.begin,)
            self.builder.store(row, place, self.join(Load(row, place), self.x[(*where, column)]))

    def _add(self, row: Buffer, other: Buffer) -> None:
        with self.builder.loops(row.shape) as place:
            self.builder.store(row, place, self.join(Load(row, place), Load(other, place)))


def _joined(
    call: Call,
    builder: Builder,
    x: KernelInput,
    out: Buffer,
    nothing: float,
    join: Callable[[Scalar, Scalar], Scalar],
    finish: Callable[[Scalar, Sequence[ScalarVar], Sequence[Scalar]], Scalar],
    most: int | None = None,
) -> None:
    """What windows see, joined; ``finish`` gets that, the indices, and how many elements are seen along each axis."""
    *others, last = _axes(call, x.shape[2:])
    span = max((out.shape[-1] - 1) * last.stride + (last.kernel - 1) * last.dilation + 1, 1)
    window = _Window(builder, x, last, nothing, join, most)
    with builder.loops(out.shape[:-1], LoopKind.PARALLEL) as where:
        row = builder.buffer(x.dtype.compute, [span], "row")
        seen = _seen(builder, others, where[2:])
        window.clear(row)
        window.gather(row, where[:2], seen)
        with builder.loops(out.shape[-1:]) as (result,):
            total = builder.local(nothing, row.dtype, "total")
            with builder.loops([last.kernel]) as (offset,):
                place = result * index(last.stride) + offset * index(last.dilation)
                builder.assign(total, join(total, Load(row, (place,))))
            widths = _seen(builder, [last], [result])
            counts = [one.count for one in (*seen, *widths)]
            builder.store(out, (*where, result), finish(total, (*where, result), counts))


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

    # One accumulator for every element of a row loses what is small beside it.
    most = BLOCK if x.dtype.compute.name == "f32" else None
    _joined(call, builder, x, out, 0, lambda a, b: a + b, mean, most)


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
