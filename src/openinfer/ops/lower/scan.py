"""Running sums and products: loops over the other axes, and inside them one along the axis."""

from openinfer.loops.build import Builder, cast, index
from openinfer.loops.ir import INDEX, Buffer, LoopKind, Scalar
from openinfer.ops.lower.operand import Operand, lowers
from openinfer.ops.lower.reduce import U64, Product, accumulates_in, extents_of, placed, summand, total_of
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of


def _position(call: Call, step: Scalar, extent: int) -> Scalar:
    """Where a step along the axis is."""
    return index(extent - 1) - step if call.params["reverse"] else step


@lowers("cumsum")
def _cumsum(call: Call, builder: Builder, inputs: tuple[Operand | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    axis = axis_of(call.params["axis"], len(x.shape))
    (extent,), kept = extents_of(x.shape, (axis,))
    with builder.loops(kept, LoopKind.PARALLEL) as where:
        total = builder.local(0, accumulates_in(call))
        with builder.loop(extent) as step:
            place = placed((axis,), (builder.let(_position(call, step, extent)),), where)
            following = total + summand(call, x[place])
            if call.params["exclusive"]:
                builder.store(out, place, total_of(call, total))
                builder.assign(total, following)
            else:
                builder.assign(total, following)
                builder.store(out, place, total_of(call, total))


@lowers("cumprod")
def _cumprod(call: Call, builder: Builder, inputs: tuple[Operand | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    axis = axis_of(call.params["axis"], len(x.shape))
    (extent,), kept = extents_of(x.shape, (axis,))
    compute = call.dtype().compute
    with builder.loops(kept, LoopKind.PARALLEL) as where:
        product = Product(builder, U64 if compute is INDEX else compute)
        with builder.loop(extent) as step:
            place = placed((axis,), (builder.let(_position(call, step, extent)),), where)
            if call.params["exclusive"]:
                builder.store(out, place, cast(product.value, compute))
                product.multiply(x[place])
            else:
                product.multiply(x[place])
                builder.store(out, place, cast(product.value, compute))
