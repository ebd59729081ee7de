"""Reductions: loops over the axes that stay, and inside them a row whose elements are folded into one value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isinf, nan, prod
from typing import TypeAlias

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import Builder, Position, cast, const, index, math, pair, rounded, select, unary
from openinfer.loops.dim import is_symbolic
from openinfer.loops.ir import BOOL, INDEX, Buffer, LoopKind, Scalar, ScalarVar
from openinfer.loops.running import RunningProduct
from openinfer.ops.infer import accumulated
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.shapes import axes_of
from openinfer.ops.types import F64

I64, U64 = DTYPES["i64"], DTYPES["u64"]


def placed(axes: Sequence[int], inner: Sequence[Position], others: Sequence[Position]) -> tuple[Position, ...]:
    """A position from its parts: along some axes, and along the others, both in order.

    >>> placed((1,), [7], [4, 5])
    (4, 7, 5)
    """
    inside, outside = iter(inner), iter(others)
    rank = len(inner) + len(others)
    return tuple(next(inside) if axis in axes else next(outside) for axis in range(rank))


def extents_of(shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The extents along some axes, and those along the others."""
    inner = tuple(extent for axis, extent in enumerate(shape) if axis in axes)
    return inner, tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


@dataclass(frozen=True)
class Row:
    """Elements that belong together: their extents, and the element at a position among them."""

    builder: Builder
    extents: tuple[int, ...]
    element: Callable[[tuple[ScalarVar, ...]], Scalar]

    @property
    def count(self) -> Scalar:
        """How many elements there are."""
        return index(prod(self.extents))

    def fold(self, start: Scalar | float, dtype: DType, step: Callable[[Scalar, Scalar], Scalar]) -> ScalarVar:
        """A variable that takes in one element after the other: ``step`` of what it is and the element."""
        total = self.builder.local(start, dtype)
        with self.builder.loops(self.extents) as where:
            self.builder.assign(total, step(total, self.element(where)))
        return total

    def sum(self, dtype: DType, term: Callable[[Scalar], Scalar] = lambda value: value) -> ScalarVar:
        """The sum of a term of every element, in a dtype."""
        return self.fold(0, dtype, lambda total, value: total + cast(term(value), dtype))

    def square_sum(self, dtype: DType, term: Callable[[Scalar], Scalar] = lambda value: value) -> ScalarVar:
        """The sum of the squares of a term of every element."""

        def step(total: Scalar, value: Scalar) -> Scalar:
            root = self.builder.let(term(value))
            return total + root * root

        return self.fold(0, dtype, step)


RowReduction: TypeAlias = Callable[[Call, Row], Scalar]
"""The value of a row, in the compute type of the output."""


def reduces(name: str) -> Callable[[RowReduction], RowReduction]:
    """Make a function of a row the lowering of a reduction."""

    def register(reduction: RowReduction) -> RowReduction:
        def lowering(
            call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
        ) -> None:
            (x,), (out,) = inputs, outputs
            assert x is not None
            axes = axes_of(call.params["axes"], len(x.shape))
            inner, kept = extents_of(x.shape, axes)
            with builder.loops(kept, LoopKind.PARALLEL) as where:
                row = Row(builder, inner, lambda inside: x[placed(axes, inside, where)])
                value = reduction(call, row)
                place = placed(axes, [0] * len(inner), where) if call.params["keepdims"] else where
                builder.store(out, place, value)

        lowers(name)(lowering)
        return reduction

    return register


# --- accumulators -----------------------------------------------------------------------------------------------------


def accumulates_in(call: Call) -> DType:
    """The type in which values are added up."""
    return accumulated(call)[0].compute


def summand(call: Call, value: Scalar) -> Scalar:
    """A value as the accumulator holds it, in the type in which values are added up."""
    accumulator = accumulated(call)[0]
    entered = cast(value, accumulates_in(call))
    if accumulator.kind == "float" and accumulator.bits < value.dtype.bits:
        return rounded(entered, accumulator)
    return entered


def total_of(call: Call, total: Scalar) -> Scalar:
    """A total rounded or wrapped to the accumulator, in the compute type of the output."""
    accumulator, output = accumulated(call)
    return cast(rounded(cast(total, accumulator.compute), accumulator), output.compute)


# --- sums and products ------------------------------------------------------------------------------------------------


def _sum(call: Call, row: Row) -> Scalar:
    return row.sum(accumulates_in(call), lambda value: summand(call, value))


@reduces("sum_axis")
def _sum_axis(call: Call, row: Row) -> Scalar:
    return total_of(call, _sum(call, row))


@reduces("mean_axis")
def _mean_axis(call: Call, row: Row) -> Scalar:
    total = _sum(call, row)
    return total_of(call, total / cast(row.count, total.dtype))


@reduces("var_axis")
def _var_axis(call: Call, row: Row) -> Scalar:
    dtype, ddof = accumulates_in(call), call.params["ddof"]
    average = row.builder.let(_sum(call, row) / cast(row.count, dtype), "mean")
    squares = row.square_sum(dtype, lambda value: summand(call, value) - average)
    variance = squares / cast(row.count - index(ddof), dtype)
    count = prod(row.extents)
    if ddof > 0 and (is_symbolic(count) or count <= ddof):
        variance = select(row.count <= ddof, _by_nothing(call, row), variance)
    return total_of(call, variance)


def _by_nothing(call: Call, row: Row) -> Scalar:
    """The sum of the squared distances by 0: infinite where there are any, which squares in this type may not show."""
    dtype = accumulates_in(call)
    low = row.fold(inf, dtype, lambda found, value: pair("min", found, summand(call, value)))
    high = row.fold(-inf, dtype, lambda found, value: pair("max", found, summand(call, value)))
    return select((low < high) & (low > -inf) & (high < inf), const(inf, dtype), const(nan, dtype))


@reduces("prod_axis")
def _prod_axis(call: Call, row: Row) -> Scalar:
    product = RunningProduct(row.builder, accumulates_in(call))
    with row.builder.loops(row.extents) as where:
        product.take(summand(call, row.element(where)))
    return total_of(call, product.value)


# --- extremes and truth -----------------------------------------------------------------------------------------------


def least(dtype: DType) -> float:
    """What no value of a dtype is smaller than."""
    return -inf if dtype.kind == "float" else 0 if dtype.kind == "bool" else dtype.minimum


def greatest(dtype: DType) -> float:
    """What no value of a dtype is larger than."""
    return inf if dtype.kind == "float" else 1 if dtype.kind == "bool" else dtype.maximum


@reduces("max_axis")
def _max_axis(call: Call, row: Row) -> Scalar:
    return row.fold(least(call.dtype()), call.dtype().compute, lambda most, value: pair("max", most, value))


@reduces("min_axis")
def _min_axis(call: Call, row: Row) -> Scalar:
    return row.fold(greatest(call.dtype()), call.dtype().compute, lambda most, value: pair("min", most, value))


def _is_true(value: Scalar) -> Scalar:
    return value if value.dtype is BOOL else value.ne(0)


@reduces("any_axis")
def _any_axis(_call: Call, row: Row) -> Scalar:
    return row.fold(const(0, BOOL), BOOL, lambda found, value: found | _is_true(value))


@reduces("all_axis")
def _all_axis(_call: Call, row: Row) -> Scalar:
    return row.fold(const(1, BOOL), BOOL, lambda found, value: found & _is_true(value))


# --- norms ------------------------------------------------------------------------------------------------------------


@reduces("logsumexp_axis")
def _logsumexp_axis(call: Call, row: Row) -> Scalar:
    dtype = call.dtype().compute
    largest = row.fold(-inf, dtype, lambda most, value: pair("max", most, value))
    is_finite = unary("abs", largest) < inf
    offset = row.builder.let(select(is_finite, largest, 0))
    return math("log", row.sum(dtype, lambda value: math("exp", value - offset))) + offset


@reduces("norm_axis")
def _norm_axis(call: Call, row: Row) -> Scalar:
    p, dtype = call.params["p"], call.dtype().compute

    def magnitude(value: Scalar) -> Scalar:
        return unary("abs", value)

    if isinf(p):
        end, start = ("max", 0.0) if p > 0 else ("min", inf)
        row.builder.summarize(f"The {'largest' if p > 0 else 'smallest'} magnitude over axes, `y = {end}(|x|)`.")
        return row.fold(start, dtype, lambda found, value: pair(end, found, magnitude(value)))
    if p == 0:
        row.builder.summarize("How many elements over axes are not 0, `y = sum(x != 0)`.")
        return cast(row.sum(INDEX, lambda value: select(value.ne(0), index(1), index(0))), dtype)
    if p == 1:
        return row.sum(dtype, magnitude)
    if p == 2:
        return unary("sqrt", row.square_sum(dtype))
    # f64, since rounding the exponent to f32 would cost more than the bound allows.
    total = row.sum(F64, lambda value: math("pow", cast(magnitude(value), F64), const(p, F64)))
    return cast(math("pow", total, const(1 / p, F64)), dtype)
