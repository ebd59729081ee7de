"""Tensors made of a few values: constants, indices, one-hot rows, triangles."""

from math import inf
from typing import Any

from openinfer.dtypes import DType
from openinfer.loops.build import Builder, Position, cast, const, index, select, unary
from openinfer.loops.ir import INDEX, Buffer, Const, LoopKind, Scalar
from openinfer.ops.fill import stored_number
from openinfer.ops.lower.casts import to_float
from openinfer.ops.lower.elementwise import I64, U64, elementwise
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of


def stored_const(value: float, dtype: DType) -> Const:
    """A parameter as an element of a dtype, in its compute type."""
    number: Any = stored_number(value, dtype)
    return const(float(number) if dtype.kind == "float" else int(number), dtype.compute)


@lowers("fill")
def _fill(call: Call, builder: Builder, _inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (out,) = outputs
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        builder.store(out, where, stored_const(call.params["value"], out.dtype))


@elementwise("fill_nan_like")
def _fill_nan_like(_builder: Builder, call: Call, x: Scalar) -> Scalar:
    return select(unary("abs", x) < inf, x, stored_const(call.params["value"], call.dtype()))


@lowers("iota")
def _iota(call: Call, builder: Builder, _inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (out,) = outputs
    axis = axis_of(call.params["axis"], len(out.shape))
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        count: Scalar = where[axis]
        is_float = out.dtype.kind == "float"
        value = to_float(builder, count, INDEX, out.dtype) if is_float else cast(count, out.dtype.compute)
        builder.store(out, where, value)


@lowers("one_hot")
def _one_hot(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (ids,), (out,) = inputs, outputs
    assert ids is not None
    axis = axis_of(call.params["axis"], len(out.shape))
    wide = U64 if ids.dtype is U64 else INDEX if ids.dtype.maximum < 2**31 else I64
    on, off = (stored_const(call.params[name], out.dtype) for name in ("on", "off"))
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        place: tuple[Position, ...] = (*where[:axis], *where[axis + 1 :])
        marked = cast(ids[place], wide).eq(cast(where[axis], wide))
        builder.store(out, where, select(marked, on, off))


_FAR = 1 << 62
"""Diagonals further out than any tensor reaches are all alike."""


@lowers("tri")
def _tri(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    diagonal = index(min(max(call.params["diagonal"], -_FAR), _FAR))
    if call.params["upper"]:
        builder.summarize(
            "A triangle of the last two axes and zeros, `y[.., i, j] = j - i >= diagonal ? x[.., i, j] : 0`."
        )
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        offset = where[-1] - where[-2]
        kept = offset >= diagonal if call.params["upper"] else offset <= diagonal
        builder.store(out, where, select(kept, x[where], const(0, out.dtype.compute)))
