"""Reductions over axes, and the accumulators of sums and products."""

from collections.abc import Callable, Iterator, Mapping
from math import inf, isinf, isnan, prod
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import Advice, Code
from openinfer.ops.cases import anything, case, extremes, grid, random
from openinfer.ops.infer import accumulated
from openinfer.ops.numeric import leaving, wide, wrapped
from openinfer.ops.record import EXACT, SUM, Call, Case, Cases, Param, op
from openinfer.ops.shapes import axes_of, gamma, per_input, summed
from openinfer.ops.types import ALL, BOOL, FLOATS, NUMBERS, TERNARY, WITH_ACC, OpError, Shape, dtypes, parameter_error

FAMILY = "Reduce"
ONE = "x: T -> T"
AXES = Param("axes", "ints", None, "The axes to reduce; all of them when absent, none when empty.", aliases=("axis",))
KEEP = Param("keepdims", "bool", default=False, doc="Keep the reduced axes with extent 1.")
ACC = Param("acc", "dtypes", None, "The accumulator, or that and the output dtype; wider floats are rounded to it.")
DDOF = Param("ddof", "int", 0, "What is subtracted from the number of elements before dividing by it.")
ORDER = Param("p", "float", 2.0, "The order of the norm; inf and -inf are the largest and smallest magnitude.")


def reduced(call: Call) -> tuple[Shape, ...]:
    """The shape without the reduced axes, or with extent 1 there."""
    shape = call.shape(0)
    axes = axes_of(call.params["axes"], len(shape))
    if call.params["keepdims"]:
        return (tuple(1 if axis in axes else extent for axis, extent in enumerate(shape)),)
    return (tuple(extent for axis, extent in enumerate(shape) if axis not in axes),)


def _over(call: Call) -> dict[str, Any]:
    """The axes and keepdims of a call as NumPy's reductions take them."""
    rank = len(call.shape(0))
    return {"axis": axes_of(call.params["axes"], rank), "keepdims": call.params["keepdims"]}


def _count(call: Call) -> int:
    """How many elements are reduced to one."""
    shape = call.shape(0)
    return prod(shape[axis] for axis in axes_of(call.params["axes"], len(shape)))


# --- test inputs ------------------------------------------------------------------------------------------------------

_LAYOUTS: tuple[tuple[Shape, dict[str, Any]], ...] = (
    ((), {}),
    ((1,), {"axes": [0], "keepdims": True}),
    ((129,), {}),
    ((3, 5), {"axis": -1}),
    ((3, 5), {"axes": [-2], "keepdims": True}),
    ((2, 3, 4), {"axes": [-1, 0]}),
    ((2, 3, 4), {"axes": []}),
    ((2, 1, 3, 5), {"axes": [1, 2], "keepdims": True}),
    ((2, 0, 3), {"axes": [1]}),
    ((2, 0, 3), {}),
    ((0, 3), {"axes": [1]}),
)


def reduction(*params: Mapping[str, Any], low: float = -4, high: float = 4) -> Cases:
    """Cases of an op with axes: every layout, all magnitudes, every pair of extremes; a few with each set of params."""

    def cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
        for shape, layout in _LAYOUTS:
            yield case(dtype, random(rng, dtype, shape, low, high), **layout)
        for given in ({}, *params):
            yield case(dtype, random(rng, dtype, (3, 7), low, high), **{"axis": 1} | dict(given))
            yield case(dtype, anything(rng, dtype, (5, 8)), **{"axis": 0} | dict(given))
            yield case(dtype, np.stack(grid(dtype, 2)), **{"axis": 0} | dict(given))
        yield case(dtype, extremes(dtype))

    return cases


_F64 = dtypes("f64")
_INTEGER_ACC: tuple[tuple[DType, ...], ...] = (*map(dtypes, ("i32", "i64", "u8", "i4")), dtypes("i16 i32"))
_FLOAT_ACC = {
    "f8": (dtypes("f32"), dtypes("f32 f32"), dtypes("f16")),
    "bf16": (dtypes("f32 f32"), _F64),
    "f16": (dtypes("f32"), dtypes("f32 bf16"), dtypes("f16")),
    "f32": (dtypes("f32"), _F64, dtypes("bf16"), dtypes("f32 f64")),
    "f64": (_F64, dtypes("f32"), dtypes("f64 f16")),
}


def accumulating(dtype: DType) -> Iterator[dict[str, Any]]:
    """Every kind of ``acc`` that a dtype can have; None is not one for values that cannot be summed in themselves."""
    if dtype.kind != "bool" and not dtype.values:
        yield {}
    for acc in _FLOAT_ACC.get(dtype.name, ((dtype.compute,),)) if dtype.kind == "float" else _INTEGER_ACC:
        yield {"acc": acc}


def _summed(*params: Mapping[str, Any]) -> Cases:
    """Cases of a reduction with ``acc``."""

    def cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
        for given in accumulating(dtype):
            yield case(dtype, random(rng, dtype, (2, 3, 5)), axes=[0, -1], **given)
            yield case(dtype, random(rng, dtype, (0, 5)), axes=[0], **given)
        given = next(accumulating(dtype))
        plain = reduction(*params)
        for one in plain(rng, dtype):
            yield Case(one.arrays, one.dtypes, {**one.params, **given})

    return cases


# --- accumulators -----------------------------------------------------------------------------------------------------


def summable(call: Call) -> tuple[DType, ...]:
    """The output dtype of a sum; values that are not closed under addition need an accumulator."""
    dtype = call.dtype()
    if call.params["acc"] is None and (dtype.kind == "bool" or dtype.values):
        message = f"a sum of {call.input(0)} does not stay {dtype.name}"
        raise OpError(Code.WRONG_DTYPE, message, 0, Advice("add acc=i32", WITH_ACC))
    return (accumulated(call)[1],)


def _output(call: Call) -> tuple[DType, ...]:
    return (accumulated(call)[1],)


def summands(call: Call, x: Array) -> Array:
    """The values as the accumulator holds them, in a type wide enough that summing them is as good as exact."""
    accumulator = accumulated(call)[0]
    if accumulator.kind != "float":
        return x.astype(accumulator.compute.array, copy=False)
    if accumulator.bits < x.dtype.itemsize * 8:
        x = leaving(accumulator)(x)
    return wide(x.astype(accumulator.compute.array, copy=False))


def total_of(call: Call, total: Array) -> Array:
    """A total rounded or wrapped to the accumulator, in the compute form of the output."""
    accumulator, output = accumulated(call)
    if accumulator.kind != "float":
        return wrapped(wrapped(np.asarray(total), accumulator), output)
    return leaving(accumulator)(np.asarray(total)).astype(accumulator.compute.array, copy=False)


def certain(error: Any, magnitude: Any, accumulator: DType, rest: Any = 0) -> Array:
    """An error bound where everything stays in range; none where a partial result may overflow.

    Infinite or NaN operands have a definite result, whatever the order, unless the ``rest``, the magnitude of the
    finite ones, may overflow before it meets an infinity.
    """
    bounded = np.where(magnitude > accumulator.maximum, inf, error)
    infinite = np.where(np.isinf(magnitude) & (rest > accumulator.maximum), inf, 0)
    return np.where(np.isfinite(magnitude), bounded, infinite)


def finite_magnitudes(x: Array) -> Array:
    """The magnitudes of operands, 0 for those that are infinite or NaN."""
    return np.where(np.isfinite(x), np.abs(x), 0)


# --- sums and products ------------------------------------------------------------------------------------------------


def _sum_bound(call: Call, x: Array) -> Any:
    accumulator = accumulated(call)[0]
    if accumulator.kind != "float":
        return 0
    magnitude, count = np.sum(np.abs(x), **_over(call)), _count(call)
    rest = np.sum(finite_magnitudes(x), **_over(call))
    # One rounding more where the operands are wider than the accumulator, and one into the output.
    error = gamma(summed(count) + 1, accumulator) * magnitude + count * accumulator.least_positive
    return certain(error, magnitude, accumulator, rest)


@op(
    FAMILY,
    ONE,
    AXES,
    KEEP,
    ACC,
    shape=reduced,
    cost=per_input(1),
    tolerance=SUM,
    cases=_summed(),
    dtype=summable,
    bound=_sum_bound,
    T=NUMBERS + TERNARY + BOOL,
)
def sum_axis(call: Call, x: Array) -> Array:
    """The sum over axes, `y = sum(x)`; 0 over no elements.

    Integers wrap at the width of the accumulator `acc`, their own without one. t1, t2 and bool, which counts true
    values, need an accumulator.
    """
    return total_of(call, np.add.reduce(summands(call, x), **_over(call)))


def _mean_bound(call: Call, x: Array) -> Any:
    accumulator, count = accumulated(call)[0], _count(call)
    magnitude = np.sum(np.abs(x), **_over(call))
    error = gamma(summed(count) + 2, accumulator) * magnitude / max(count, 1) + 2 * accumulator.least_positive
    return certain(error, magnitude, accumulator, np.sum(finite_magnitudes(x), **_over(call)))


@op(
    FAMILY,
    ONE,
    AXES,
    KEEP,
    ACC,
    shape=reduced,
    cost=per_input(1),
    tolerance=SUM,
    cases=_summed(),
    dtype=_output,
    bound=_mean_bound,
    T=FLOATS,
)
def mean_axis(call: Call, x: Array) -> Array:
    """The mean over axes, `y = sum(x) / n`; NaN over no elements. Integers have none: cast them to a float first."""
    return total_of(call, np.add.reduce(summands(call, x), **_over(call)) / _count(call))


def _var_bound(call: Call, x: Array) -> Any:
    accumulator, count = accumulated(call)[0], _count(call)
    over = _over(call) | {"keepdims": True}
    kept = {"axis": over["axis"]} if not call.params["keepdims"] else {"axis": ()}
    average = np.sum(x, **over) / max(count, 1)
    distance = np.abs(x - average)
    # The mean is off by this much, and every distance from it.
    shift = gamma(summed(count) + 3, accumulator) * np.sum(np.abs(x), **over) / max(count, 1)
    shift = shift + 2 * accumulator.least_positive
    squares = np.sum(distance * distance, **over)
    error = (
        gamma(summed(count) + 5, accumulator) * squares + 2 * shift * np.sum(distance, **over) + count * shift * shift
    )
    divisor = max(count - call.params["ddof"], 0)
    error = error + count * accumulator.least_positive
    magnitude = np.sum(np.abs(x), **over) + np.sum(x * x, **over)
    return np.squeeze(certain(error / divisor if divisor else error * 0, magnitude, accumulator), **kept)


def _var_shape(call: Call) -> tuple[Shape, ...]:
    if call.params["ddof"] < 0:
        raise parameter_error("ddof", f"'ddof' is at least 0, not {call.params['ddof']}")
    return reduced(call)


@op(
    FAMILY,
    ONE,
    AXES,
    KEEP,
    ACC,
    DDOF,
    shape=_var_shape,
    cost=per_input(4),
    tolerance=SUM,
    cases=_summed({"ddof": 1}, {"ddof": 9}),
    dtype=_output,
    bound=_var_bound,
    T=FLOATS,
)
def var_axis(call: Call, x: Array) -> Array:
    """The variance over axes, `y = sum((x - mean(x))**2) / max(n - ddof, 0)`, in two passes; NaN over no elements."""
    values, over = summands(call, x), _over(call)
    average = np.add.reduce(values, axis=over["axis"], keepdims=True) / _count(call)
    squares = np.add.reduce(np.square(values - average), **over)
    return total_of(call, squares / max(_count(call) - call.params["ddof"], 0))


def product_bound(accumulator: DType, count: int, x: Array, multiply: Callable[[Array], Any]) -> Any:
    if accumulator.kind != "float":
        return 0
    magnitude = np.abs(x)
    # The largest and the smallest number that any order of multiplication meets; behind them nothing is certain.
    largest, least = multiply(np.maximum(magnitude, 1)), multiply(np.where(magnitude == 0, 1, np.minimum(magnitude, 1)))
    error = gamma(count + 1, accumulator) * multiply(magnitude)
    is_small = least < accumulator.least_positive * 2.0**60
    rest = np.where(is_small, inf, multiply(np.maximum(finite_magnitudes(x), 1)))
    return certain(np.where(is_small, inf, error), largest, accumulator, rest)


def _prod_bound(call: Call, x: Array) -> Any:
    return product_bound(accumulated(call)[0], _count(call), x, lambda values: np.prod(values, **_over(call)))


@op(
    FAMILY,
    ONE,
    AXES,
    KEEP,
    ACC,
    shape=reduced,
    cost=per_input(1),
    tolerance=SUM,
    cases=_summed(),
    dtype=_output,
    bound=_prod_bound,
    T=NUMBERS + TERNARY,
)
def prod_axis(call: Call, x: Array) -> Array:
    """The product over axes, `y = prod(x)`; 1 over no elements. Integers wrap at the width of the accumulator."""
    values = summands(call, x)
    # Partial products leave the range of an f64 long before the product of them all has to.
    exact = values if values.dtype.kind != "f" else values.astype(np.longdouble, copy=False)
    return total_of(call, np.multiply.reduce(exact, **_over(call)))


# --- extremes and truth -----------------------------------------------------------------------------------------------


def _signed_zero(call: Call, x: Array, found: Array, sign: float) -> Array:
    """The extreme of floats with the zero that the order of signed zeros asks for, whatever order they came in."""
    if x.dtype.kind != "f" or not np.any(found == 0):
        return found
    zero = x.dtype.type(np.copysign(0, sign))
    preferred = np.any((x == 0) & (np.signbit(x) == np.signbit(zero)), **_over(call))
    return np.where(found == 0, np.where(preferred, zero, -zero), found)


@op(
    FAMILY,
    ONE,
    AXES,
    KEEP,
    shape=reduced,
    cost=per_input(1),
    tolerance=EXACT,
    cases=reduction(),
    T=NUMBERS + TERNARY,
)
def max_axis(call: Call, x: Array) -> Array:
    """The largest value over axes, `y = max(x)`, NaN if one is; +0 counts as larger than -0.

    Over no elements: -inf, or the smallest integer of the dtype.
    """
    identity = x.dtype.type(-inf if x.dtype.kind == "f" else call.dtype().minimum)
    found = np.asarray(np.maximum.reduce(x, initial=identity, **_over(call)))
    return _signed_zero(call, x, found, 1)


@op(
    FAMILY,
    ONE,
    AXES,
    KEEP,
    shape=reduced,
    cost=per_input(1),
    tolerance=EXACT,
    cases=reduction(),
    T=NUMBERS + TERNARY,
)
def min_axis(call: Call, x: Array) -> Array:
    """The smallest value over axes, `y = min(x)`, NaN if one is; -0 counts as smaller than +0.

    Over no elements: inf, or the largest integer of the dtype.
    """
    identity = x.dtype.type(inf if x.dtype.kind == "f" else call.dtype().maximum)
    found = np.asarray(np.minimum.reduce(x, initial=identity, **_over(call)))
    return _signed_zero(call, x, found, -1)


TRUTH = "x: T -> bool"


@op(FAMILY, TRUTH, AXES, KEEP, shape=reduced, cost=per_input(1), tolerance=EXACT, cases=reduction(), T=ALL)
def any_axis(call: Call, x: Array) -> Array:
    """Whether any element over axes is true, `y = any(x != 0)`. False over no elements."""
    return np.any(x, **_over(call))


@op(FAMILY, TRUTH, AXES, KEEP, shape=reduced, cost=per_input(1), tolerance=EXACT, cases=reduction(), T=ALL)
def all_axis(call: Call, x: Array) -> Array:
    """Whether all elements over axes are true, `y = all(x != 0)`. True over no elements."""
    return np.all(x, **_over(call))


# --- norms ------------------------------------------------------------------------------------------------------------


def _logsumexp_bound(call: Call, x: Array) -> Any:
    largest = np.max(x, initial=-inf, **_over(call))
    total = logsumexp_axis(call, x)
    # Rounding x - max costs |x - max| * u of exp(x - max), which is never more than one unit: two roundings a term.
    error = gamma(2 * summed(_count(call)) + 8, call.dtype().compute) * (1 + np.abs(largest) + np.abs(total))
    return np.where(np.isfinite(total), error, 0)


@op(
    FAMILY,
    ONE,
    AXES,
    KEEP,
    shape=reduced,
    cost=per_input(12),
    tolerance=SUM,
    cases=reduction(),
    bound=_logsumexp_bound,
    T=FLOATS,
)
def logsumexp_axis(call: Call, x: Array) -> Array:
    """The logarithm of the sum of exponentials over axes, `y = m + ln(sum(exp(x - m)))` with `m = max(x)`.

    -inf over no elements or where all are; inf where one is.
    """
    over = _over(call)
    largest = np.maximum.reduce(x, axis=over["axis"], keepdims=True, initial=-inf)
    offset = wide(np.asarray(np.where(np.isfinite(largest), largest, x.dtype.type(0))))
    total = np.log(np.add.reduce(np.exp(wide(x) - offset), **over))
    return total + offset.reshape(np.shape(total))


def _norm_shape(call: Call) -> tuple[Shape, ...]:
    if isnan(call.params["p"]):
        raise parameter_error("p", "the order 'p' of a norm is a number, not NaN")
    return reduced(call)


def _powers(magnitude: Array, p: float) -> Array:
    """The terms of a norm of finite order."""
    if p == 0:
        return (magnitude != 0).astype(magnitude.dtype)
    if p == 1:
        return magnitude
    return np.square(magnitude) if p == 2 else np.power(magnitude, magnitude.dtype.type(p))


def _norm_bound(call: Call, x: Array) -> Any:
    p, dtype = call.params["p"], call.dtype().compute
    if isinf(p) or p == 0:
        return 0
    total = np.sum(_powers(np.abs(x), p), **_over(call))
    # The root divides relative errors by p; rounding 1/p itself costs |ln(total)|/p more.
    count = (_count(call) + 8) * max(1, 1 / abs(p)) + 8
    norm = np.power(total, 1 / p)
    error = norm * (gamma(summed(count), dtype) + gamma(1, dtype) * np.abs(np.log(total)) / abs(p))
    return certain(np.where(total < dtype.least_positive * 2.0**60, inf, error), total, dtype)


@op(
    FAMILY,
    ONE,
    AXES,
    KEEP,
    ORDER,
    shape=_norm_shape,
    cost=per_input(2),
    tolerance=SUM,
    cases=reduction(*({"p": p} for p in (1, 0, 3, -1, 0.5, inf, -inf))),
    bound=_norm_bound,
    T=FLOATS,
)
def norm_axis(call: Call, x: Array) -> Array:
    """The norm over axes, `y = sum(|x|**p) ** (1/p)`.

    `p = 0` counts what is not 0, `inf` and `-inf` give the largest and smallest magnitude. Over no elements it is 0, or
    inf for negative `p`.
    """
    p, over = call.params["p"], _over(call)
    if isinf(p):
        ends = np.maximum if p > 0 else np.minimum
        return ends.reduce(np.abs(x), initial=x.dtype.type(0 if p > 0 else inf), **over)
    total = np.add.reduce(_powers(wide(np.abs(x)), p), **over)
    if p in (0, 1):
        return total
    return np.sqrt(total) if p == 2 else np.power(total, total.dtype.type(1) / total.dtype.type(p))
