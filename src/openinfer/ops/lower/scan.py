"""Running sums and products: scans, and around them loops over the other axes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from openinfer.dtypes import DType
from openinfer.loops.build import Builder, cast, index
from openinfer.loops.ir import ACCUMULATOR, Axis, Buffer, LoopKind, Result, Scalar, ScalarVar, Scan
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.lower.reduce import accumulates_in, extents_of, placed, summand, total_of
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of
from openinfer.ops.types import F64


@lowers("cumsum")
def _cumsum(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    def finished(total: Scalar) -> Scalar:
        return total_of(call, total)

    _summarize("sums", "+", call, builder)
    _scanning(call, builder, inputs, outputs, _Fold("add", accumulates_in(call), lambda x: summand(call, x), finished))


@lowers("cumprod")
def _cumprod(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    compute = call.dtype().compute
    # Partial products of floats leave the range long before the last one has to.
    wide = F64 if compute.kind == "float" else compute

    def finished(total: Scalar) -> Scalar:
        return cast(total, compute)

    _summarize("products", "*", call, builder)
    _scanning(call, builder, inputs, outputs, _Fold("mul", wide, lambda x: cast(x, wide), finished))


def _summarize(what: str, sign: str, call: Call, builder: Builder) -> None:
    """Says which terms a result has: those before it or after it, with its own or without."""
    exclusive, reverse = call.params["exclusive"], call.params["reverse"]
    first, last = ("i + 1" if exclusive else "i", "n - 1") if reverse else ("0", "i - 1" if exclusive else "i")
    builder.summarize(f"Running {what} along an axis, `y[i] = x[{first}] {sign} ... {sign} x[{last}]`.")


@dataclass(frozen=True)
class _Fold:
    """How terms are made of elements and combined, and what is stored of totals."""

    op: Literal["add", "mul"]
    accumulator: DType
    term: Callable[[Scalar], Scalar]
    finished: Callable[[Scalar], Scalar]


def _scanning(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...], fold: _Fold
) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    axis = axis_of(call.params["axis"], len(x.shape))
    (extent,), kept = extents_of(x.shape, (axis,))
    with builder.loops(kept, LoopKind.PARALLEL) as where:
        along = Axis(builder.fresh("i"), extent)
        place = tuple(map(index, placed((axis,), (along.index,), where)))
        builder.add(
            Scan(
                along,
                fold.op,
                fold.accumulator,
                fold.term(x[place]),
                Result(out, place, fold.finished(ScalarVar(ACCUMULATOR, fold.accumulator))),
                is_exclusive=call.params["exclusive"],
                is_reversed=call.params["reverse"],
            )
        )
