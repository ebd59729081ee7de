"""Running sums and products: loops over the other axes, and inside them one along the axis."""

from openinfer.dtypes import DType
from openinfer.loops.build import Builder, cast, index, pair
from openinfer.loops.dim import most_elements
from openinfer.loops.ir import Buffer, LoopKind, Scalar, Var
from openinfer.ops.lower.operand import Operand, lowers
from openinfer.ops.lower.reduce import I64, U64, RunningProduct, accumulates_in, extents_of, placed, summand, total_of
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of


def _position(call: Call, step: Scalar, extent: int) -> Scalar:
    """Where a step along the axis is."""
    return index(extent - 1) - step if call.params["reverse"] else step


_BLOCK = 256
"""The most terms that one accumulator of 32 bits takes in."""


class _RunningSum:
    """A sum whose value is asked for after every term.

    A long one of f32 has an accumulator for the terms of a block, one for the blocks of a block of blocks, and so on:
    a single one would lose what is small beside it.
    """

    def __init__(self, builder: Builder, dtype: DType, extent: int) -> None:
        self._builder = builder
        count = most_elements((extent,)) if dtype.name == "f32" else 1
        self._levels = [builder.local(0, dtype)]
        while count > _BLOCK:
            self._levels.append(builder.local(0, dtype))
            count = -(-count // _BLOCK)

    def begin(self, step: Var) -> None:
        """Where a block is full, hand its sum on."""
        self._hand_on(step, 1)

    def _hand_on(self, step: Var, level: int) -> None:
        if level == len(self._levels):
            return
        builder, (inner, outer) = self._builder, self._levels[level - 1 : level + 1]
        with builder.when(pair("rem", step, index(_BLOCK**level)).eq(0)):
            builder.assign(outer, outer + inner)
            builder.assign(inner, 0)
            self._hand_on(step, level + 1)

    def add(self, term: Scalar) -> None:
        """Add a term."""
        self._builder.assign(self._levels[0], self._levels[0] + term)

    @property
    def value(self) -> Scalar:
        """The sum of the terms so far."""
        found: Scalar = self._levels[0]
        for level in self._levels[1:]:
            found = level + found
        return found


@lowers("cumsum")
def _cumsum(call: Call, builder: Builder, inputs: tuple[Operand | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    axis = axis_of(call.params["axis"], len(x.shape))
    (extent,), kept = extents_of(x.shape, (axis,))
    with builder.loops(kept, LoopKind.PARALLEL) as where:
        total = _RunningSum(builder, accumulates_in(call), extent)
        with builder.loop(extent) as step:
            place = placed((axis,), (builder.let(_position(call, step, extent)),), where)
            total.begin(step)
            if call.params["exclusive"]:
                builder.store(out, place, total_of(call, total.value))
                total.add(summand(call, x[place]))
            else:
                total.add(summand(call, x[place]))
                builder.store(out, place, total_of(call, total.value))


@lowers("cumprod")
def _cumprod(call: Call, builder: Builder, inputs: tuple[Operand | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    axis = axis_of(call.params["axis"], len(x.shape))
    (extent,), kept = extents_of(x.shape, (axis,))
    compute = call.dtype().compute
    with builder.loops(kept, LoopKind.PARALLEL) as where:
        product = RunningProduct(builder, U64 if compute is I64 else compute)
        with builder.loop(extent) as step:
            place = placed((axis,), (builder.let(_position(call, step, extent)),), where)
            if call.params["exclusive"]:
                builder.store(out, place, cast(product.value, compute))
                product.multiply(x[place])
            else:
                product.multiply(x[place])
                builder.store(out, place, cast(product.value, compute))
