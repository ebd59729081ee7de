"""Running sums and products along an axis."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.ops.cases import anything, case, extremes, grid, random
from openinfer.ops.infer import accumulated
from openinfer.ops.record import REQUIRED, SUM, Call, Case, Param, op
from openinfer.ops.reduce import (
    ACC,
    FAMILY,
    ONE,
    accumulating,
    certain,
    finite_magnitudes,
    product_bound,
    summable,
    summands,
    total_of,
)
from openinfer.ops.shapes import axis_of, gamma, per_input, summed
from openinfer.ops.types import BOOL, NUMBERS, TERNARY, Shape

AXIS = Param("axis", "int", REQUIRED, "The axis to run along.")
EXCLUSIVE = Param("exclusive", "bool", default=False, doc="Leave each element out of its own result.")
REVERSE = Param("reverse", "bool", default=False, doc="Run from the end to the start.")


def _along(call: Call) -> tuple[Shape, ...]:
    axis_of(call.params["axis"], len(call.shape(0)))
    return (call.shape(0),)


def _running(call: Call, x: Array, add: np.ufunc) -> Array:
    """Totals of everything up to each element."""
    way = slice(None, None, -1 if call.params["reverse"] else 1)
    along = np.moveaxis(x, call.params["axis"], -1)[..., way]
    totals = np.empty_like(along)
    if call.params["exclusive"]:
        totals[..., :1] = add.identity
        add.accumulate(along[..., :-1], axis=-1, out=totals[..., 1:])
    else:
        add.accumulate(along, axis=-1, out=totals)
    return np.moveaxis(totals[..., way], -1, call.params["axis"])


def _running_cases(rng: np.random.Generator, dtype: DType, *accumulators: Mapping[str, Any]) -> Iterator[Case]:
    for given in accumulators:
        yield case(dtype, random(rng, dtype, (2, 5)), axis=-1, exclusive=True, **given)
        yield case(dtype, np.stack(grid(dtype, 2)), axis=0, **given)
    first = accumulators[0]
    for shape, axis in (((1,), 0), ((33,), -1), ((3, 5), -2), ((2, 3, 4), 1), ((2, 0, 3), 1), ((0, 3), 1)):
        for ways in ({}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True}):
            yield case(dtype, random(rng, dtype, shape), axis=axis, **first, **ways)
    yield case(dtype, anything(rng, dtype, (4, 9)), axis=1, **first)
    yield case(dtype, extremes(dtype), axis=0, reverse=True, **first)


def _cumsum_bound(call: Call, x: Array) -> Any:
    accumulator, count = accumulated(call)[0], call.shape(0)[call.params["axis"]]
    if accumulator.kind != "float":
        return 0
    magnitude, rest = (_running(call, values, np.add) for values in (np.abs(x), finite_magnitudes(x)))
    error = gamma(summed(count) + 1, accumulator) * magnitude + count * accumulator.least_positive
    return certain(error, magnitude, accumulator, rest)


@op(
    FAMILY,
    ONE,
    AXIS,
    EXCLUSIVE,
    REVERSE,
    ACC,
    shape=_along,
    cost=per_input(1),
    tolerance=SUM,
    cases=lambda rng, dtype: _running_cases(rng, dtype, *accumulating(dtype)),
    dtype=summable,
    bound=_cumsum_bound,
    T=NUMBERS + TERNARY + BOOL,
)
def cumsum(call: Call, x: Array) -> Array:
    """Running sums along an axis, `y[i] = x[0] + ... + x[i]`.

    `exclusive` stops before `x[i]`, `reverse` starts at the end. Integers wrap at the width of the accumulator
    `acc`; t1, t2 and bool need one.
    """
    return total_of(call, _running(call, summands(call, x), np.add))


def _cumprod_bound(call: Call, x: Array) -> Any:
    count = call.shape(0)[call.params["axis"]]
    return product_bound(call.dtype().compute, count, x, lambda values: _running(call, values, np.multiply))


@op(
    FAMILY,
    ONE,
    AXIS,
    EXCLUSIVE,
    REVERSE,
    shape=_along,
    cost=per_input(1),
    tolerance=SUM,
    cases=lambda rng, dtype: _running_cases(rng, dtype, {}),
    bound=_cumprod_bound,
    T=NUMBERS + TERNARY,
)
def cumprod(call: Call, x: Array) -> Array:
    """Running products along an axis, `y[i] = x[0] * ... * x[i]`.

    `exclusive` stops before `x[i]`, `reverse` starts at the end. Integers wrap at their own width.
    """
    exact = x if x.dtype.kind != "f" else x.astype(np.longdouble)
    return _running(call, exact, np.multiply)
