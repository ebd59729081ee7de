"""Resizing images: each result element is a weighted sum of a few neighbours along each spatial axis."""

from collections.abc import Iterator
from fractions import Fraction
from math import floor, isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import Array, DType
from openinfer.errors import Advice, Code, Fix, counted
from openinfer.loops.dim import is_symbolic, span
from openinfer.ops.cases import anything, case, random
from openinfer.ops.numeric import wide
from openinfer.ops.record import SUM, Call, Case, OpCost, Param, op
from openinfer.ops.shapes import bytes_moved, gamma, per_axis
from openinfer.ops.types import ALL, OpError, Shape, parameter_error, shape_error

CUBIC = -0.75
"""The coefficient of the cubic kernel: the slope at the neighbours."""
_MOST_SCALED = 1 << 16
"""Dynamic sizes up to here are tried one by one."""
TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


def _sizes(call: Call) -> tuple[Shape, tuple[float | None, ...]]:
    """The spatial extents of the result, and the scale of each axis where one is given."""
    x, size, scale = call.input(0), call.params["size"], call.params["scale"]
    if len(x.shape) < 3:
        raise shape_error(f"'resize' takes [N, C, spatial...], not {x}", 0)
    if (size is None) == (scale is None):
        raise OpError(Code.WRONG_OPERANDS, "'resize' takes either 'size' or 'scale'")
    spatial = x.shape[2:]
    factors: tuple[float | None, ...] = (None,) * len(spatial)
    if size is not None:
        result = per_axis(size, len(spatial), "size", 0)
    else:
        scales = tuple(scale) * len(spatial) if len(scale) == 1 else tuple(scale)
        if len(scales) != len(spatial):
            message = (
                f"'scale' has {counted(len(scales), 'element')}, but there are {counted(len(spatial), 'spatial axis')}"
            )
            raise parameter_error("scale", message)
        if not all(isfinite(one) and one > 0 for one in scales):
            raise parameter_error("scale", "the elements of 'scale' are finite and above 0")
        factors, result = scales, tuple(map(_scaled, spatial, scales))
    if any(new and not old for new, old in zip(result, spatial, strict=True)):
        raise shape_error(f"{x} has no elements to make {list(result)} of", 0)
    return result, factors


def _scaled(extent: int, factor: float) -> int:
    if is_symbolic(extent):
        return _scaled_size(extent, factor)
    product = extent * factor
    if not isfinite(product):
        raise parameter_error("scale", f"{factor} times {extent} is not an extent")
    return floor(product)


def _scaled_size(extent: int, factor: float) -> int:
    """A dynamic extent times a factor: as a quotient of integers that rounds as the product of floats does."""
    most = span(extent)[1]
    for largest in (1 << 10, 1 << 20, 1 << 52):
        ratio = Fraction(factor).limit_denominator(largest)
        top, bottom = ratio.numerator, ratio.denominator
        if most <= _MOST_SCALED and all(floor(one * factor) == one * top // bottom for one in range(most + 1)):
            return extent * top // bottom
    message = f"{factor} times the dynamic size {extent!r} is not a quotient of small integers"
    raise parameter_error("scale", message, f"give 'size', or let it be at most {_MOST_SCALED}")


def _resize_shape(call: Call) -> tuple[Shape, ...]:
    if call.params["mode"] != "nearest" and call.dtype().kind != "float":
        message = f"the mode {call.params['mode']!r} is for floats, not {call.input(0)}"
        fix = Fix('"nearest"', f'"{call.params["mode"]}"')
        raise parameter_error("mode", message, Advice('mode="nearest" only moves values', fix))
    return ((*call.shape(0)[:2], *_sizes(call)[0]),)


def _source(coordinates: str, old: int, new: int, factor: float | None) -> npt.NDArray[np.float64]:
    """Where each result element lies among the input's."""
    index = np.arange(new, dtype=np.float64)
    if coordinates == "align_corners":
        return index * (old - 1) / (new - 1) if new > 1 else index
    if coordinates == "asymmetric":
        return index * old / new if factor is None else index / factor
    # One division of integers: what lies exactly on an element, or between two, does so in f64.
    return ((2 * index + 1) * old - new) / (2 * new) if factor is None else (index + 0.5) / factor - 0.5


def _nearest(rounding: str, at: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    match rounding:
        case "floor":
            return np.floor(at)
        case "ceil":
            return np.ceil(at)
        case "round_prefer_ceil":
            return np.floor(at + 0.5)
        case _:
            return np.ceil(at - 0.5)


def _cubic(distance: Array) -> Array:
    """The weight of a neighbour at a distance up to 2."""
    near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * CUBIC - 4 * CUBIC
    return np.where(distance <= 1, near, far)


def _neighbours(call: Call, old: int, new: int, factor: float | None) -> Iterator[tuple[Array, Array | None]]:
    """Index and weight of each neighbour of every result element; None for a weight of 1."""
    at = _source(call.params["coordinates"], old, new, factor)
    if call.params["mode"] == "nearest":
        yield np.clip(_nearest(call.params["nearest"], at), 0, old - 1).astype(np.intp), None
        return
    below = np.floor(at)
    steps = (0, 1) if call.params["mode"] == "linear" else (-1, 0, 1, 2)
    for step in steps:
        distance = np.abs(at - (below + step)).astype(np.longdouble)
        weight = 1 - distance if len(steps) == 2 else _cubic(distance)
        yield np.clip(below + step, 0, old - 1).astype(np.intp), weight


def _resized(call: Call, x: Array, *, magnitudes: bool = False) -> Array:
    result, factors = _sizes(call)
    for axis, (new, factor) in enumerate(zip(result, factors, strict=True), start=2):
        total: Array | None = None
        old = x.shape[axis]
        if old == new == 0:
            continue
        for index, weight in _neighbours(call, old, new, factor):
            part = np.take(x, index, axis)
            if weight is not None:
                own = np.abs(weight) if magnitudes else weight
                part *= own.astype(x.dtype).reshape(-1, *[1] * (x.ndim - axis - 1))
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None
        x = total
    return x


def _bound(call: Call, x: Array) -> Any:
    mode, accumulator = call.params["mode"], call.dtype().compute
    if mode == "nearest":
        return 0.0
    # For each axis: the sum of the taps, and a weight and a product that are each rounded.
    roundings = (x.ndim - 2) * (TAPS[mode] + 2)
    return gamma(roundings, accumulator) * _resized(call, np.abs(x), magnitudes=True) + 2 * accumulator.least_positive


def _cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    settings: tuple[tuple[Shape, dict[str, Any]], ...] = (
        ((2, 3, 5, 4), {"size": (7, 9)}),
        ((1, 2, 5, 8), {"size": (3, 2)}),
        ((1, 1, 4, 4), {"scale": 2.0}),
        ((1, 2, 6, 5), {"scale": (0.5, 1.5)}),
        ((1, 2, 7), {"scale": 0.6}),
        ((1, 1, 1, 1), {"size": (3, 1)}),
        ((1, 1, 5), {"size": 1}),
        ((1, 1, 3, 2, 4), {"size": (2, 4, 5)}),
        ((0, 2, 3, 3), {"size": (4, 4)}),
        ((1, 2, 3), {"size": 0}),
        ((1, 2, 0), {"scale": 2.0}),
    )
    modes = [{"mode": "nearest", "nearest": nearest} for nearest in NEAREST.choices]
    if dtype.kind == "float":
        modes += [{"mode": "linear"}, {"mode": "cubic"}]
    for shape, given in settings:
        for coordinates in COORDINATES.choices:
            for mode in modes:
                values = anything if mode["mode"] == "nearest" else random
                yield case(dtype, values(rng, dtype, shape), **given, coordinates=coordinates, **mode)


MODE = Param("mode", "str", "nearest", "How elements between others get their value.", choices=tuple(TAPS))
COORDINATES = Param(
    "coordinates",
    "str",
    "half_pixel",
    "Where result element i lies: (i + 0.5)/scale - 0.5, i*(old - 1)/(new - 1), or i/scale.",
    choices=("half_pixel", "align_corners", "asymmetric"),
)
NEAREST = Param(
    "nearest",
    "str",
    "round_prefer_floor",
    "Which neighbour is the nearest.",
    choices=("round_prefer_floor", "floor", "ceil", "round_prefer_ceil"),
)


@op(
    "Pool",
    "x: T -> T",
    Param("size", "ints", None, "The spatial extents of the result: one number or one for each axis."),
    Param("scale", "floats", None, "In place of size: the result has floor(extent * scale) elements."),
    MODE,
    COORDINATES,
    NEAREST,
    shape=_resize_shape,
    cost=lambda call: OpCost(
        2 * call.outputs[0].size * TAPS[call.params["mode"]] * (len(call.shape(0)) - 2), *bytes_moved(call)
    ),
    tolerance=SUM,
    bound=_bound,
    cases=_cases,
    T=ALL,
)
def resize(call: Call, x: Array) -> Array:
    """Other extents for the spatial axes of [N, C, spatial...]: `y[i] = sum_t weight[i, t] * x[index[i, t]]`.

    The nearest neighbour moves values of any dtype; linear (2 neighbours) and cubic (4, with the coefficient -0.75) are
    for floats. The first and last elements stand for all that lies outside. The scale is exactly size / extent where a
    size is given; coordinates are f64. As ONNX Resize, one axis after the other.
    """
    if call.outputs[0].size == 0:
        return np.zeros(call.outputs[0].shape, x.dtype)
    return _resized(call, x if call.params["mode"] == "nearest" else wide(x))
