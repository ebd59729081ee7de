"""Where extremes are, and elements in order."""

from collections.abc import Callable
from math import prod

from openinfer.loops.build import Builder, cast, flat, index, unary
from openinfer.loops.dim import is_symbolic
from openinfer.loops.expand_order import before
from openinfer.loops.ir import INDEX, ORIGIN, RANKED, Axis, Buffer, LoopKind, Order, Result, Scalar, ScalarVar
from openinfer.ops.lower.operand import KernelInput, Lowering, lowers
from openinfer.ops.lower.reduce import I64, extents_of, greatest, least, placed
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of

# --- where the extremes are -------------------------------------------------------------------------------------------


def _beats(value: Scalar, best: Scalar, *, largest: bool, first: bool) -> Scalar:
    """Whether a value that comes later is found in place of the best so far; NaN is better than all numbers."""
    if first:
        return before(value > best if largest else value < best, value, best)
    as_good = value >= best if largest else value <= best
    return as_good | unary("isnan", value) if value.dtype.kind == "float" else as_good


def _searching(*, largest: bool) -> Lowering:
    def lowering(
        call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
    ) -> None:
        (x,), (out,) = inputs, outputs
        assert x is not None
        dtype, axis = call.dtype(), call.params["axis"]
        axes = range(len(x.shape)) if axis is None else (axis_of(axis, len(x.shape)),)
        inner, kept = extents_of(x.shape, axes)
        if is_symbolic(prod(inner)):
            builder.fail(index(prod(inner)).eq(0), "there is no extreme among zero elements")
        with builder.loops(kept, LoopKind.PARALLEL) as where:
            best = builder.local(least(dtype) if largest else greatest(dtype), dtype.compute)
            found = builder.local(0, INDEX)
            with builder.loops(inner) as inside:
                value = builder.let(x[placed(axes, inside, where)])
                with builder.when(_beats(value, best, largest=largest, first=call.params["select_first"])):
                    builder.assign(best, value)
                    builder.assign(found, flat(inside, inner))
            place = placed(axes, [0] * len(inner), where) if call.params["keepdims"] else where
            builder.store(out, place, cast(found, I64))

    return lowering


lowers("argmax_axis")(_searching(largest=True))
lowers("argmin_axis")(_searching(largest=False))


# --- in order ---------------------------------------------------------------------------------------------------------


def _ordering(is_descending: Callable[[Call], bool]) -> Lowering:
    def lowering(
        call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
    ) -> None:
        (x,), (values, indices) = inputs, outputs
        assert x is not None
        axis = axis_of(call.params["axis"], len(x.shape))
        (count,), kept = extents_of(x.shape, (axis,))
        if is_symbolic(count):
            builder.fail(index(count) < index(values.shape[axis]), "there are fewer elements than asked for")
        with builder.loops(kept, LoopKind.PARALLEL) as where:
            along, rank = Axis(builder.fresh("i"), count), Axis(builder.fresh("i"), values.shape[axis])
            place = tuple(map(index, placed((axis,), (rank.index,), where)))
            key = x[placed((axis,), (along.index,), where)]
            outs = Result(values, place, ScalarVar(RANKED, key.dtype)), Result(indices, place, ScalarVar(ORIGIN, I64))
            builder.add(Order(along, rank, key, outs, is_descending=is_descending(call)))

    return lowering


lowers("topk")(_ordering(lambda call: bool(call.params["largest"])))
lowers("sort")(_ordering(lambda call: bool(call.params["descending"])))
