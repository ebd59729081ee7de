"""Where extremes are, and elements in order: a stable merge sort from runs of one element upwards."""

from collections.abc import Callable
from math import prod
from typing import TypeAlias

from openinfer.loops.build import Builder, cast, flat, index, load, pair, select, unary
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import INDEX, Buffer, LoopKind, Scalar, Var
from openinfer.ops.lower.operand import Lowering, Operand, lowers
from openinfer.ops.lower.reduce import I64, extents_of, greatest, least, placed
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of

Order: TypeAlias = Callable[[Scalar, Scalar], Scalar]
"""Whether the first of two values comes strictly before the second."""


def _before(is_ahead: Scalar, first: Scalar, second: Scalar) -> Scalar:
    """An order that is extended to NaN: where only the first is one, it is ahead."""
    if first.dtype.kind != "float":
        return is_ahead
    return is_ahead | (unary("isnan", first) & ~unary("isnan", second))


def ascending(one: Scalar, other: Scalar) -> Scalar:
    """The smaller first, NaN behind all."""
    return _before(one < other, other, one)


def descending(one: Scalar, other: Scalar) -> Scalar:
    """The larger first, NaN before all."""
    return _before(one > other, one, other)


# --- where the extremes are -------------------------------------------------------------------------------------------


def _beats(value: Scalar, best: Scalar, *, largest: bool, first: bool) -> Scalar:
    """Whether a value that comes later is found in place of the best so far; NaN is better than all numbers."""
    if first:
        return _before(value > best if largest else value < best, value, best)
    as_good = value >= best if largest else value <= best
    return as_good | unary("isnan", value) if value.dtype.kind == "float" else as_good


def _searching(*, largest: bool) -> Lowering:
    def lowering(call: Call, builder: Builder, inputs: tuple[Operand | None, ...], outputs: tuple[Buffer, ...]) -> None:
        (x,), (out,) = inputs, outputs
        assert x is not None
        dtype, axis = call.dtype(), call.params["axis"]
        axes = range(len(x.shape)) if axis is None else (axis_of(axis, len(x.shape)),)
        inner, kept = extents_of(x.shape, axes)
        if is_symbolic(prod(inner)):
            builder.fail(index(prod(inner)).eq(0), "there is no extreme among zero elements")
        with builder.loops(kept, LoopKind.PARALLEL) as where:
            best = builder.local(least(dtype) if largest else greatest(dtype), dtype.compute)
            found = builder.local(0, I64)
            with builder.loops(inner) as inside:
                value = builder.let(x[placed(axes, inside, where)])
                with builder.when(_beats(value, best, largest=largest, first=call.params["select_first"])):
                    builder.assign(best, value)
                    builder.assign(found, cast(flat(inside, inner), I64))
            place = placed(axes, [0] * len(inner), where) if call.params["keepdims"] else where
            builder.store(out, place, found)

    return lowering


lowers("argmax_axis")(_searching(largest=True))
lowers("argmin_axis")(_searching(largest=False))


# --- in order ---------------------------------------------------------------------------------------------------------


def merge_sort(builder: Builder, keys: Buffer, order: Buffer, comes_before: Order) -> Var:
    """Sort ``keys[0]`` and, with them, ``order[0]``; both are ``[2, n]``. The side on which the result is.

    Runs that are in order are merged, two by two, from one side of the buffers to the other.
    """
    count = index(keys.shape[1])
    width, side = builder.local(1, INDEX, "width"), builder.local(0, INDEX, "side")
    with builder.repeat_while(width < count):
        pair_width = builder.let(width * 2)
        with builder.loop((count + pair_width - 1) // pair_width) as pair_number:
            low = builder.let(pair_number * pair_width, "low")
            middle = builder.let(pair("min", low + width, count), "middle")
            high = builder.let(pair("min", low + pair_width, count), "high")
            _merge(builder, (keys, order), side, (low, middle, high), comes_before)
        builder.assign(side, 1 - side)
        builder.assign(width, pair_width)
    return side


def _merge(
    builder: Builder, buffers: tuple[Buffer, Buffer], side: Var, ends: tuple[Scalar, ...], comes_before: Order
) -> None:
    """Two runs next to each other into one on the other side; of equal elements, the left run's come first."""
    keys, order = buffers
    low, middle, high = ends
    left, right = builder.local(low, INDEX, "left"), builder.local(middle, INDEX, "right")
    with builder.loop(high - low) as taken:
        # A run that is used up is not read behind its end.
        one, other = builder.let(pair("min", left, middle - 1)), builder.let(pair("min", right, high - 1))
        first, second = builder.let(load(keys, side, one)), builder.let(load(keys, side, other))
        is_right = builder.let((right < high) & ((left >= middle) | comes_before(second, first)))
        place = (1 - side, low + taken)
        builder.store(keys, place, select(is_right, second, first))
        builder.store(order, place, load(order, side, select(is_right, other, one)))
        builder.assign(left, left + select(is_right, index(0), index(1)))
        builder.assign(right, right + select(is_right, index(1), index(0)))


def _ordering(is_descending: Callable[[Call], bool]) -> Lowering:
    def lowering(call: Call, builder: Builder, inputs: tuple[Operand | None, ...], outputs: tuple[Buffer, ...]) -> None:
        (x,), (values, indices) = inputs, outputs
        assert x is not None
        axis = axis_of(call.params["axis"], len(x.shape))
        (count,), kept = extents_of(x.shape, (axis,))
        if is_symbolic(count):
            builder.fail(index(count) < index(values.shape[axis]), "there are fewer elements than asked for")
        with builder.loops(kept) as where:
            keys = builder.buffer(x.dtype.compute, (2, count), "keys")
            order = builder.buffer(I64, (2, count), "order")
            with builder.loop(count) as i:
                builder.store(keys, (0, i), x[placed((axis,), (i,), where)])
                builder.store(order, (0, i), cast(i, I64))
            side = merge_sort(builder, keys, order, descending if is_descending(call) else ascending)
            with builder.loop(values.shape[axis]) as i:
                place = placed((axis,), (i,), where)
                builder.store(values, place, load(keys, side, i))
                builder.store(indices, place, load(order, side, i))

    return lowering


lowers("topk")(_ordering(lambda call: bool(call.params["largest"])))
lowers("sort")(_ordering(lambda call: bool(call.params["descending"])))
