"""Convolutions and their transposes, over one to three spatial axes.

Both slide a window with ``taps``: no operand is ever padded, and what falls outside takes no part.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import counted
from openinfer.ops.cases import case, extremes
from openinfer.ops.linear import (
    ACC,
    OPERANDS,
    accumulators,
    biased_dtype,
    closed,
    contract,
    error_bound,
    opened,
    require_bias,
    spread_values,
)
from openinfer.ops.record import SUM, Call, Case, Cases, CostRule, OpCost, Param, ShapeRule, op
from openinfer.ops.shapes import bytes_moved, pads_of, per_axis, taps
from openinfer.ops.types import Shape, dtypes, parameter_error, shape_error

FAMILY = "Linear"
INPUTS = "x: T~, w: T~, bias?: B -> T"
LARGEST_COLUMNS = 1 << 26
"""Elements that the unfolded input of one sample may have; beyond, each position of the window is a product."""

_EVERY: tuple[Any, ...] = (slice(None), slice(None))
"""All groups and channels of a sample."""

STRIDES = Param("strides", "ints", (1,), "How far the window moves, one number or one for each spatial axis.")
PADS = Param(
    "pads",
    "ints",
    (0,),
    "The padding of the spatial axes: one number, one for each axis, or all at the beginning, then all at the end.",
)
DILATIONS = Param("dilations", "ints", (1,), "The distance between positions of the window.")
GROUPS = Param("groups", "int", 1, "Into how many independent parts the channels fall.")
LAYOUT = Param(
    "layout", "str", "NCHW", "Where the channels are: before the spatial axes, or last.", choices=("NCHW", "NHWC")
)
OUTPUT_PADDING = Param("output_padding", "ints", (0,), "How many elements the result has more at the end of each axis.")


@dataclass(frozen=True)
class Geometry:
    """The extents of one convolution, with one number for each spatial axis where there are several."""

    batch: int
    channels: int
    spatial: Shape
    groups: int
    features: int
    kernel: Shape
    result: Shape
    strides: Shape
    dilations: Shape
    begins: Shape

    @property
    def inputs(self) -> int:
        """The channels of a group."""
        return self.channels // self.groups

    @property
    def outputs(self) -> int:
        """The features of a group."""
        return self.features // self.groups


def _geometry(call: Call, rank: int, *, transposed: bool) -> Geometry:
    channels, spatial, features = _channels(call, rank, transposed=transposed)
    kernel = call.shape(1)[2:]
    strides = per_axis(call.params["strides"], rank, "strides", 1)
    dilations = per_axis(call.params["dilations"], rank, "dilations", 1)
    begins, ends = pads_of(call.params["pads"], rank)
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True))
    padding = [begin + end for begin, end in zip(begins, ends, strict=True)]
    if transposed:
        result = _expanded(call, spatial, strides, dilations, reach, padding)
    else:
        result = _reduced(call, spatial, strides, reach, padding)
    require_bias(call, features)
    groups, batch = call.params["groups"], call.shape(0)[0]
    return Geometry(batch, channels, spatial, groups, features, kernel, result, strides, dilations, begins)


def _channels(call: Call, rank: int, *, transposed: bool) -> tuple[int, Shape, int]:
    """The channels and the spatial extents of x, and the channels of the result."""
    x, w, groups = call.input(0), call.input(1), call.params["groups"]
    order = "[C, M/groups, k...]" if transposed else "[M, C/groups, k...]"
    for slot, kind in enumerate((x, w)):
        if len(kind.shape) != rank + 2:
            message = f"a convolution over {rank} spatial {'axis' if rank == 1 else 'axes'} takes {rank + 2} axes"
            raise shape_error(f"{message}, not {kind}", slot)
    if groups < 1:
        raise parameter_error("groups", f"'groups' is at least 1, not {groups}")
    last = call.params["layout"] == "NHWC"
    channels, spatial = (x.shape[-1], x.shape[1:-1]) if last else (x.shape[1], x.shape[2:])
    if channels % groups or w.shape[0] % groups:
        raise parameter_error("groups", f"the channels of {x} and {w} do not divide into {groups} groups")
    if channels != (w.shape[0] if transposed else w.shape[1] * groups):
        advice = f"the weights are {order}, in every layout"
        raise shape_error(f"{x} has {channels} channels, and {w} is for others", 1, advice)
    if 0 in w.shape[2:]:
        raise shape_error(f"the window of {w} is empty", 1)
    return channels, spatial, w.shape[1] * groups if transposed else w.shape[0]


def _reduced(call: Call, spatial: Shape, strides: Shape, reach: Shape, padding: list[int]) -> Shape:
    rests = [extent + pad - far for extent, pad, far in zip(spatial, padding, reach, strict=True)]
    if min(rests) < 0:
        axis = rests.index(min(rests))
        padded = f"{counted(spatial[axis] + padding[axis], 'element')} of {call.input(0)} with its padding"
        raise shape_error(f"the window spans {counted(reach[axis], 'element')}, more than the {padded}", 0)
    return tuple(rest // stride + 1 for rest, stride in zip(rests, strides, strict=True))


def _expanded(call: Call, spatial: Shape, strides: Shape, dilations: Shape, reach: Shape, padding: list[int]) -> Shape:
    more = per_axis(call.params["output_padding"], len(spatial), "output_padding", 0)
    for extra, stride, dilation in zip(more, strides, dilations, strict=True):
        if extra >= max(stride, dilation):
            message = f"'output_padding' is less than the stride or the dilation, not {extra}"
            raise parameter_error("output_padding", message)
    parts = zip(spatial, strides, reach, padding, more, strict=True)
    result = tuple((extent - 1) * stride + far - pad + extra for extent, stride, far, pad, extra in parts)
    if min(result) < 0:
        raise shape_error(f"the padding is more than {call.input(0)} expands to: {list(result)}", 0)
    return result


# --- computing --------------------------------------------------------------------------------------------------------


def _first(call: Call, x: Array) -> Array:
    """The input with its channels first."""
    return np.ascontiguousarray(np.moveaxis(x, -1, 1)) if call.params["layout"] == "NHWC" else x


def _finished(call: Call, total: Array, bias: Array | None) -> Array:
    """A result with its bias, and its channels where the layout has them."""
    if bias is not None:
        total += bias.astype(total.dtype, copy=False).reshape(-1, *[1] * (total.ndim - 2))
    return np.moveaxis(total, 1, -1) if call.params["layout"] == "NHWC" else total


def _zeros(x: Array, shape: Shape) -> Array:
    return np.zeros(shape, x.dtype if x.dtype.kind == "f" else np.int64)


def _forward(call: Call, rank: int, x: Array, w: Array, bias: Array | None) -> Array:
    """The sums of a convolution."""
    at = _geometry(call, rank, transposed=False)
    total = _zeros(x, (at.batch, at.groups, at.outputs, *at.result))
    samples = _first(call, x).reshape(at.batch, at.groups, at.inputs, *at.spatial)
    weights = w.reshape(at.groups, at.outputs, at.inputs, *at.kernel)
    window = prod(at.kernel)
    if total.size == 0 or at.channels == 0:
        pass
    elif window > 1 and window * at.channels * prod(at.result) <= LARGEST_COLUMNS and _finite(w):
        _unfolded(at, samples, weights, total)
    else:
        _by_position(at, samples, weights, total)
    return _finished(call, total.reshape(at.batch, at.features, *at.result), bias)


def _finite(w: Array) -> bool:
    """Whether a zero times a weight is zero: then padding can be zeros."""
    return w.dtype.kind != "f" or bool(np.isfinite(w).all())


def _unfolded(at: Geometry, samples: Array, weights: Array, total: Array) -> None:
    """Each sample as one matrix product with everything that the window sees."""
    columns = np.zeros((at.groups, at.inputs, *at.kernel, *at.result), samples.dtype)
    matrix = weights.reshape(at.groups, at.outputs, -1)
    window = list(taps(at.spatial, at.result, at.kernel, at.strides, at.dilations, at.begins))
    for sample, result in zip(samples, total, strict=True):
        for offset, near, far in window:
            columns[(*_EVERY, *offset, *near)] = sample[(*_EVERY, *far)]
        unfolded = columns.reshape(at.groups, matrix.shape[-1], -1)
        result[...] = contract(matrix, unfolded).reshape(result.shape)


def _by_position(at: Geometry, samples: Array, weights: Array, total: Array) -> None:
    """One matrix product for each position of the window, over what that position sees."""
    for offset, near, far in taps(at.spatial, at.result, at.kernel, at.strides, at.dilations, at.begins):
        matrix = weights[(*_EVERY, slice(None), *offset)]
        for sample, result in zip(samples, total, strict=True):
            seen = sample[(*_EVERY, *far)]
            part = contract(matrix, seen.reshape(at.groups, at.inputs, -1))
            result[(*_EVERY, *near)] += part.reshape(at.groups, at.outputs, *seen.shape[2:])


def _backward(call: Call, rank: int, x: Array, w: Array, bias: Array | None) -> Array:
    """The sums of a transposed convolution: each input element adds a window to the result."""
    at = _geometry(call, rank, transposed=True)
    total = _zeros(x, (at.batch, at.groups, at.outputs, *at.result))
    samples = _first(call, x).reshape(at.batch, at.groups, at.inputs, prod(at.spatial))
    weights = w.reshape(at.groups, at.inputs, at.outputs, *at.kernel)
    window = taps(at.result, at.spatial, at.kernel, at.strides, at.dilations, at.begins)
    for offset, near, far in window if at.channels and total.size else ():
        matrix = np.ascontiguousarray(weights[(*_EVERY, slice(None), *offset)].swapaxes(1, 2))
        for sample, result in zip(samples, total, strict=True):
            part = contract(matrix, sample).reshape(at.groups, at.outputs, *at.spatial)
            result[(*_EVERY, *far)] += part[(*_EVERY, *near)]
    return _finished(call, total.reshape(at.batch, at.features, *at.result), bias)


# --- test inputs ------------------------------------------------------------------------------------------------------

_Shapes = tuple[Shape, Shape, dict[str, Any]]


def _settings(rank: int, *, transposed: bool) -> Iterator[_Shapes]:
    """Shapes of x and w (channels first), and parameters."""

    def sized(*extents: int) -> Shape:
        return extents[:rank]

    def weights(features: int, channels: int, *kernel: int) -> Shape:
        return (channels, features, *kernel[:rank]) if transposed else (features, channels, *kernel[:rank])

    yield (2, 3, *sized(6, 5, 4)), weights(4, 3, 3, 2, 2), {}
    yield (1, 1, *sized(1, 1, 1)), weights(1, 1, 1, 1, 1), {}
    yield (1, 5, *sized(4, 3, 2)), weights(2, 5, 1, 1, 1), {}
    yield (1, 2, *sized(7, 6, 5)), weights(3, 2, 3, 3, 2), {"strides": 2, "pads": 1}
    yield (2, 2, *sized(7, 8, 5)), weights(2, 2, 2, 3, 2), {"dilations": sized(3, 2, 1), "strides": sized(1, 2, 1)}
    yield (1, 2, *sized(5, 4, 3)), weights(2, 2, 3, 3, 2), {"pads": (*sized(2, 0, 1), *sized(1, 1, 0))}
    yield (0, 3, *sized(5, 4, 3)), weights(2, 3, 3, 2, 1), {}
    yield (1, 0, *sized(5, 4, 3)), weights(2, 0, 3, 2, 1), {}
    yield (2, 3, *sized(5, 4, 3)), weights(0, 3, 3, 2, 1), {}
    yield (1, 2, *sized(0, 4, 3)), weights(2, 2, 3, 1, 1), {"pads": 0 if transposed else 2}
    grouped = (4, 2, *sized(3, 2, 2)) if transposed else (6, 2, *sized(3, 2, 2))
    yield (2, 4, *sized(5, 4, 3)), grouped, {"groups": 2, "pads": 1}
    depthwise = (3, 1, *sized(3, 3, 2))
    yield (1, 3, *sized(5, 4, 3)), depthwise, {"groups": 3, "pads": 1}
    if transposed:
        yield (1, 2, *sized(4, 3, 2)), weights(3, 2, 3, 2, 3), {"strides": 3, "output_padding": sized(2, 1, 0)}


def _cases(rank: int, *, transposed: bool) -> Cases:
    def cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
        choices = accumulators(dtype)
        settings = list(_settings(rank, transposed=transposed))
        biased = dtype if not dtype.values else dtypes("i32")[0]
        for shape, window, params in settings:
            arrays = spread_values(rng, dtype, shape), spread_values(rng, dtype, window)
            yield case(dtype, *arrays, None, **params, **choices[0])
            features = window[1] * params.get("groups", 1) if transposed else window[0]
            bias = spread_values(rng, biased, (features,))
            last = (np.moveaxis(arrays[0], 1, -1), arrays[1], bias)
            yield Case(last, (dtype, dtype, biased), {**params, **choices[0], "layout": "NHWC"})
        shape, window, params = settings[3]
        for chosen in choices[1:]:
            yield case(dtype, spread_values(rng, dtype, shape), spread_values(rng, dtype, window), **params, **chosen)
        values, ones = extremes(dtype), (1,) * rank
        columns = values.reshape((1, -1, *ones) if transposed else (-1, 1, *ones))
        yield case(dtype, values.reshape(1, 1, -1, *ones[1:]), columns, None, **choices[0])

    return cases


# --- the ops ----------------------------------------------------------------------------------------------------------


def _shape_rule(rank: int, *, transposed: bool) -> ShapeRule:
    def shape(call: Call) -> tuple[Shape, ...]:
        at = _geometry(call, rank, transposed=transposed)
        last = call.params["layout"] == "NHWC"
        return ((at.batch, *at.result, at.features) if last else (at.batch, at.features, *at.result),)

    return shape


def _cost_rule(rank: int, *, transposed: bool) -> CostRule:
    def cost(call: Call) -> OpCost:
        at = _geometry(call, rank, transposed=transposed)
        steps = at.batch * prod(at.spatial if transposed else at.result)
        return OpCost(2 * steps * prod(at.kernel) * at.features * at.inputs, *bytes_moved(call))

    return cost


def _declare(rank: int, *, transposed: bool) -> None:
    """The record of a convolution, or of its transpose, over a number of spatial axes."""
    compute = _backward if transposed else _forward

    def reference(call: Call, x: Array, w: Array, bias: Array | None = None) -> Array:
        inputs, weights = opened(call, x, w)
        return closed(call, compute(call, rank, inputs, weights, bias))

    def bound(call: Call, x: Array, w: Array, bias: Array | None = None) -> Any:
        at = _geometry(call, rank, transposed=transposed)
        magnitudes = compute(call, rank, np.abs(x), np.abs(w), None if bias is None else np.abs(bias))
        return error_bound(call, at.inputs * prod(at.kernel) + (bias is not None), magnitudes)

    axes = f"{rank} spatial ax{'i' if rank == 1 else 'e'}s"
    doc = _TRANSPOSED_DOC if transposed else _DOC
    op(
        FAMILY,
        INPUTS,
        *(STRIDES, PADS, DILATIONS, GROUPS, LAYOUT),
        *((OUTPUT_PADDING,) if transposed else ()),
        ACC,
        shape=_shape_rule(rank, transposed=transposed),
        dtype=biased_dtype,
        cost=_cost_rule(rank, transposed=transposed),
        tolerance=SUM,
        bound=bound,
        cases=_cases(rank, transposed=transposed),
        name=f"conv_transpose{rank}d" if transposed else f"conv{rank}d",
        doc=doc.format(axes=axes),
        T=OPERANDS,
        B=OPERANDS,
    )(reference)


_DOC = """A convolution over {axes}, `y[n, m, o] = sum_c,k x[n, c, o*stride + k*dilation - pad] * w[m, c, k] + bias[m]`.

The weights are [M, C/groups, k...] in either layout; x and y are [N, C, spatial...] (NCHW) or [N, spatial..., C]
(NHWC). Positions of the window that fall on the padding take no part. Group g of the M features sees group g of the
channels. The result has floor((extent + pads - dilation*(k - 1) - 1) / stride) + 1 elements along each axis.
"""
_TRANSPOSED_DOC = """The transpose of a convolution over {axes}: each input element adds a window to the result,
`y[n, m, i*stride + k*dilation - pad] += x[n, c, i] * w[c, m, k]` for all c and k, plus `bias[m]`.

The weights are [C, M/groups, k...] in either layout; x and y are [N, C, spatial...] (NCHW) or [N, spatial..., C]
(NHWC). The result has (extent - 1)*stride - pads + dilation*(k - 1) + 1 + output_padding elements along each axis.
"""

for _rank in (1, 2, 3):
    _declare(_rank, transposed=False)
for _rank in (1, 2, 3):
    _declare(_rank, transposed=True)
