"""Elementwise ops: one expression for each element of the result."""

from collections.abc import Callable

from openinfer.loops.build import Builder, pair
from openinfer.loops.ir import Buffer, LoopKind, Scalar
from openinfer.ops.lower.operand import Operand, lowers
from openinfer.ops.record import Call

Formula = Callable[..., Scalar]
"""The element of the result, from the elements of the inputs (None for those left out)."""


def pointwise(formula: Callable[[Call, tuple[Scalar | None, ...]], Scalar]) -> Callable[..., None]:
    """The lowering of an op whose operands broadcast and whose elements are computed one by one."""

    def lowering(call: Call, builder: Builder, inputs: tuple[Operand | None, ...], outputs: tuple[Buffer, ...]) -> None:
        (out,) = outputs
        with builder.loops(out.shape, LoopKind.PARALLEL) as where:
            elements = tuple(None if operand is None else operand.at(where) for operand in inputs)
            builder.store(out, where, formula(call, elements))

    return lowering


lowers("add")(pointwise(lambda _call, x: pair("add", x[0], x[1])))  # type: ignore[arg-type]
lowers("sub")(pointwise(lambda _call, x: pair("sub", x[0], x[1])))  # type: ignore[arg-type]
lowers("mul")(pointwise(lambda _call, x: pair("mul", x[0], x[1])))  # type: ignore[arg-type]
