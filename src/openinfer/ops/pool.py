"""Pooling: the largest or the mean value under a sliding window, on [N, C, spatial...]."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import counted
from openinfer.ops.cases import anything, case, extremes, random
from openinfer.ops.numeric import wide
from openinfer.ops.record import EXACT, REQUIRED, SUM, Call, Case, OpCost, Param, op
from openinfer.ops.shapes import bytes_moved, gamma, pads_of, per_axis, per_input, summed, taps
from openinfer.ops.types import FLOATS, NUMBERS, TERNARY, Shape, parameter_error, shape_error

FAMILY = "Pool"
ONE = "x: T -> T"
PARAMS = (
    Param("kernel", "ints", REQUIRED, "The extent of the window: one number or one for each spatial axis."),
    Param("strides", "ints", None, "How far the window moves; its own extent where nothing is given."),
    Param(
        "pads",
        "ints",
        (0,),
        "The padding of the spatial axes: one number, one for each axis, or all at the beginning, then all at the end.",
    ),
    Param("dilations", "ints", (1,), "The distance between positions of the window."),
    Param(
        "ceil_mode",
        "bool",
        default=False,
        doc="Whether a last window may reach past the padding, if it starts before the padding at the end.",
    ),
)


@dataclass(frozen=True)
class PoolWindows:
    """How windows lie over an operand: one number for each spatial axis."""

    spatial: Shape
    result: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape
    begins: Shape
    ends: Shape


def _spatial(call: Call) -> Shape:
    x = call.input(0)
    if len(x.shape) < 3:
        raise shape_error(f"pooling takes [N, C, spatial...], not {x}", 0)
    return x.shape[2:]


def _windows(call: Call) -> PoolWindows:
    spatial = _spatial(call)
    rank = len(spatial)
    kernel = per_axis(call.params["kernel"], rank, "kernel", 1)
    strides = kernel if call.params["strides"] is None else per_axis(call.params["strides"], rank, "strides", 1)
    dilations = per_axis(call.params["dilations"], rank, "dilations", 1)
    begins, ends = pads_of(call.params["pads"], rank)
    result = []
    for axis, extent in enumerate(spatial):
        reach = dilations[axis] * (kernel[axis] - 1) + 1
        if max(begins[axis], ends[axis]) >= reach:
            message = (
                f"a padding of {max(begins[axis], ends[axis])} hides a window that spans {counted(reach, 'element')}"
            )
            raise parameter_error("pads", message)
        rest = extent + begins[axis] + ends[axis] - reach
        if rest < 0:
            padded = f"{counted(rest + reach, 'element')} of {call.input(0)} with its padding"
            raise shape_error(f"the window spans {counted(reach, 'element')}, more than the {padded}", 0)
        count = rest // strides[axis] + 1
        # A window more, for what is left over, unless it would start in the padding at the end.
        if call.params["ceil_mode"] and rest % strides[axis] and count * strides[axis] < extent + begins[axis]:
            count += 1
        result.append(count)
    return PoolWindows(spatial, tuple(result), kernel, strides, dilations, begins, ends)


def _pool_shape(call: Call) -> tuple[Shape, ...]:
    return ((*call.shape(0)[:2], *_windows(call).result),)


def _pool_cost(call: Call) -> OpCost:
    return OpCost(call.outputs[0].size * prod(_windows(call).kernel), *bytes_moved(call))


def _seen(at: PoolWindows) -> Iterator[tuple[Any, Any]]:
    """For each position of the window, which results see which elements."""
    for _, near, far in taps(at.spatial, at.result, at.kernel, at.strides, at.dilations, at.begins):
        yield (..., *near), (..., *far)


def _least(dtype: DType) -> float:
    """What the maximum of nothing is."""
    return float("-inf") if dtype.kind == "float" else int(dtype.minimum)


def _has_negative_zeros(x: Array) -> bool:
    """Whether NumPy's maximum, which knows one zero, may give the wrong one."""
    return x.dtype.kind == "f" and bool((np.signbit(x) & (x == 0)).any())


# --- test inputs ------------------------------------------------------------------------------------------------------

_SETTINGS: tuple[tuple[Shape, dict[str, Any]], ...] = (
    ((2, 3, 6, 5), {"kernel": 2}),
    ((1, 2, 7), {"kernel": 3, "strides": 1}),
    ((1, 1, 1, 1), {"kernel": 1}),
    ((1, 2, 7, 6), {"kernel": (3, 2), "strides": (2, 1), "pads": 1}),
    ((2, 1, 5, 6), {"kernel": 3, "strides": 2, "pads": (2, 0, 1, 1)}),
    ((1, 2, 9, 8), {"kernel": 3, "strides": 1, "dilations": (2, 3), "pads": (1, 2)}),
    ((1, 1, 7, 8), {"kernel": 2, "strides": (2, 3), "ceil_mode": True}),
    ((1, 1, 6, 6), {"kernel": 3, "strides": 2, "pads": 1, "ceil_mode": True}),
    ((1, 1, 5), {"kernel": 2, "strides": 4, "pads": (0, 1), "ceil_mode": True}),
    ((1, 2, 4, 3, 5), {"kernel": (2, 1, 3), "strides": (1, 2, 2)}),
    ((0, 2, 4, 4), {"kernel": 2}),
    ((2, 0, 4), {"kernel": 2}),
    ((1, 2, 0), {"kernel": 2, "pads": 1, "strides": 1}),
    ((1, 1, 1), {"kernel": 2, "dilations": 3, "pads": 2}),
)


def _max_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, params in _SETTINGS:
        yield case(dtype, anything(rng, dtype, shape), **params)
    yield case(dtype, extremes(dtype).reshape(1, 1, -1), kernel=2, strides=1)
    if dtype.kind == "float":
        yield case(dtype, rng.choice([0.0, -0.0], (1, 3, 4, 16)).astype(dtype.array), kernel=(1, 2), strides=1)


def _mean_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, params in _SETTINGS:
        for included in (False, True):
            yield case(dtype, random(rng, dtype, shape), **params, count_include_pad=included)
    yield case(dtype, extremes(dtype).reshape(1, 1, -1), kernel=1)


def _global_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape in ((2, 3, 5, 4), (1, 1, 7), (1, 2, 1, 1, 1), (2, 1, 3, 2, 5), (0, 2, 3), (2, 2, 0)):
        yield case(dtype, random(rng, dtype, shape))
    yield case(dtype, extremes(dtype).reshape(1, -1, 1))
    if dtype.kind == "float":
        yield case(dtype, rng.choice([0.0, -0.0, -1.0], (1, 16, 2)).astype(dtype.array))


# --- the ops ----------------------------------------------------------------------------------------------------------


@op(
    FAMILY,
    ONE,
    *PARAMS,
    shape=_pool_shape,
    cost=_pool_cost,
    tolerance=EXACT,
    cases=_max_cases,
    T=NUMBERS + TERNARY,
)
def max_pool(call: Call, x: Array) -> Array:
    """The largest element under the window, `y[n, c, o] = max_k x[n, c, o*stride + k*dilation - pad]`; NaN if any is.

    Padding takes no part; a window that sees nothing gives -inf, or the smallest integer. +0 counts as larger than -0.
    """
    at = _windows(call)
    largest = np.full(call.outputs[0].shape, _least(call.dtype()), x.dtype)
    signed = _has_negative_zeros(x)
    for near, far in _seen(at):
        one, other = largest[near], x[far]
        # The sum of two zeros is the larger of them.
        zeros = (one + other, (one == 0) & (other == 0)) if signed else None
        np.maximum(one, other, out=one)
        if zeros is not None:
            np.copyto(one, zeros[0], where=zeros[1])
    return largest


def _counts(call: Call, at: PoolWindows) -> Array:
    """How many elements each mean is over."""
    counts: Array = np.ones((), np.int64)
    for axis, result in enumerate(at.result):
        low, high = 0, at.spatial[axis]
        if call.params["count_include_pad"]:
            low, high = low - at.begins[axis], high + at.ends[axis]
        # The window starts at `first` and has a position at every `dilation`: those between low and high count.
        first = np.arange(result) * at.strides[axis] - at.begins[axis]
        dilation, kernel = at.dilations[axis], at.kernel[axis]
        before = np.clip(-((first - low) // dilation), 0, kernel)
        until = np.clip(-((first - high) // dilation), 0, kernel)
        counts = np.multiply.outer(counts, until - before)
    return counts


def _mean(call: Call, x: Array) -> Array:
    at = _windows(call)
    if call.outputs[0].size == 0:
        return np.zeros(call.outputs[0].shape, x.dtype)
    total = np.zeros(call.outputs[0].shape, x.dtype)
    for near, far in _seen(at):
        total[near] += x[far]
    total /= _counts(call, at)
    return total


def _mean_bound(call: Call, x: Array) -> Any:
    accumulator = call.dtype().compute
    terms = prod(_windows(call).kernel)
    # One rounding more, of the division; where it underflows, that is another loss.
    return gamma(summed(terms) + 1, accumulator) * _mean(call, np.abs(x)) + accumulator.least_positive


@op(
    FAMILY,
    ONE,
    *PARAMS,
    Param(
        "count_include_pad",
        "bool",
        default=False,
        doc="Whether padding counts as zeros; what is past it, which only ceil_mode reaches, never does.",
    ),
    shape=_pool_shape,
    cost=_pool_cost,
    tolerance=SUM,
    bound=_mean_bound,
    cases=_mean_cases,
    T=FLOATS,
)
def avg_pool(call: Call, x: Array) -> Array:
    """The mean of the elements under the window, `y[n, c, o] = sum_k x[n, c, o*stride + k*dilation - pad] / count`.

    A window that sees nothing gives NaN, or 0 where the padding counts.
    """
    return _mean(call, wide(x))


def _global_shape(call: Call) -> tuple[Shape, ...]:
    return ((*call.shape(0)[:2], *(1,) * len(_spatial(call))),)


def _global_bound(call: Call, x: Array) -> Any:
    accumulator, axes = call.dtype().compute, tuple(range(2, x.ndim))
    magnitudes = np.abs(x).sum(axes, keepdims=True) / prod(x.shape[2:]) if x.size else 0
    return gamma(summed(prod(x.shape[2:])) + 1, accumulator) * magnitudes + accumulator.least_positive


@op(
    FAMILY,
    ONE,
    shape=_global_shape,
    cost=per_input(1),
    tolerance=SUM,
    bound=_global_bound,
    cases=_global_cases,
    T=FLOATS,
)
def global_avg_pool(_call: Call, x: Array) -> Array:
    """The mean over all spatial axes, `y[n, c, 1...] = sum_i x[n, c, i] / count`; NaN of nothing.

    The spatial axes stay, with extent 1.
    """
    axes = tuple(range(2, x.ndim))
    kind = np.longdouble if x.dtype == np.float64 else np.float64
    count = np.float64(prod(x.shape[2:]))
    return x.sum(axes, dtype=kind, keepdims=True) / count


@op(
    FAMILY,
    ONE,
    shape=_global_shape,
    cost=per_input(1),
    tolerance=EXACT,
    cases=_global_cases,
    T=NUMBERS + TERNARY,
)
def global_max_pool(call: Call, x: Array) -> Array:
    """The largest element over all spatial axes, `y = max(x)`, which stay with extent 1; NaN if any is.

    Of nothing it is -inf, or the smallest integer. +0 counts as larger than -0.
    """
    least: Any = _least(call.dtype())
    axes = tuple(range(2, x.ndim))
    largest = x.max(axes, keepdims=True, initial=least)
    if not _has_negative_zeros(x):
        return largest
    positive = ((x == 0) & ~np.signbit(x)).any(axes, keepdims=True)
    zeros = np.where(positive, x.dtype.type(0.0), x.dtype.type(-0.0))
    return np.where(largest == 0, zeros, largest)
