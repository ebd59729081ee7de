"""Normalisation: shifted and scaled to a mean of 0, a mean square of 1 or a length of 1.

Everything is computed in the next wider type and rounded once. The error bounds are those of the plain two-pass
formulas in the compute type, sums in any order.
"""

from collections.abc import Iterator
from math import inf, prod
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.ops.cases import case, random
from openinfer.ops.numeric import wide
from openinfer.ops.record import REQUIRED, SUM, Call, Case, Param, op
from openinfer.ops.shapes import axes_of, axis_of, gamma, per_input, spread, summed
from openinfer.ops.types import FLOATS, Shape, parameter_error, shape_error

FAMILY = "Normalise"
AFFINE = "x: T, gamma?: T, beta?: T -> T"
AXES = Param("axes", "ints", (-1,), "The axes to normalise over.", aliases=("axis",))
EPS = Param("eps", "float", 1e-5, "What is added to the variance or mean square before the root is taken.")
GROUPS = Param("groups", "int", REQUIRED, "How many groups the channels are divided into, in order.")
CHANNELS = Param("axis", "int", 1, "The axis of the channels.")
LENGTH_AXIS = Param("axis", "int", -1, "The axis whose vectors get the length 1.")
LEAST_LENGTH = Param("eps", "float", 1e-12, "The least length to divide by.")


# --- shapes -----------------------------------------------------------------------------------------------------------


def _require_eps(call: Call) -> None:
    eps = call.params["eps"]
    if not 0 <= eps < inf:
        raise parameter_error("eps", f"'eps' is a finite number of at least 0, not {eps}")


def _require_extents(call: Call, names: tuple[str, ...], extents: Shape, what: str) -> None:
    """The operands after the first have one element for each of these extents."""
    for slot, name in enumerate(names, start=1):
        kind = call.inputs[slot] if slot < len(call.inputs) else None
        if kind is not None and kind.shape != extents:
            raise shape_error(f"{name!r} is {kind}, but {what} of {call.input(0)} have the shape {list(extents)}", slot)


def _over_axes(call: Call) -> tuple[Shape, ...]:
    shape = call.shape(0)
    _require_eps(call)
    extents = tuple(shape[axis] for axis in axes_of(call.params["axes"], len(shape)))
    _require_extents(call, ("gamma", "beta"), extents, "the normalised axes")
    return (shape,)


def _per_channel(call: Call) -> tuple[Shape, ...]:
    shape = call.shape(0)
    _require_eps(call)
    axis = axis_of(call.params["axis"], len(shape))
    _require_extents(call, ("gamma", "beta", "mean", "var"), (shape[axis],), "the channels")
    return (shape,)


def _in_groups(call: Call) -> tuple[Shape, ...]:
    shape, groups = call.shape(0), call.params["groups"]
    _require_eps(call)
    if len(shape) < 2:
        raise shape_error(f"groups are of channels, axis 1, which {call.input(0)} does not have", 0)
    if groups < 1 or shape[1] % groups:
        raise parameter_error("groups", f"the {shape[1]} channels of {call.input(0)} do not make {groups} equal groups")
    _require_extents(call, ("gamma", "beta"), (shape[1],), "the channels")
    return (shape,)


def _instances(call: Call) -> tuple[Shape, ...]:
    shape = call.shape(0)
    _require_eps(call)
    if len(shape) < 3:
        raise shape_error(f"instances have spatial axes after batch and channels, which {call.input(0)} does not", 0)
    _require_extents(call, ("gamma", "beta"), (shape[1],), "the channels")
    return (shape,)


def _length_shape(call: Call) -> tuple[Shape, ...]:
    _require_eps(call)
    axis_of(call.params["axis"], len(call.shape(0)))
    return (call.shape(0),)


# --- the formulas and their errors ------------------------------------------------------------------------------------


def _along(values: Array | None, axes: tuple[int, ...], shape: Shape) -> Array | None:
    """A parameter of some axes shaped to broadcast with the whole."""
    if values is None:
        return None
    return values.reshape([extent if axis in axes else 1 for axis, extent in enumerate(shape)])


def _count(shape: Shape, axes: tuple[int, ...]) -> int:
    return prod(shape[axis] for axis in axes)


def _standard(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    """``(x - mean) / sqrt(var + eps)`` in the next wider type."""
    values, count = wide(x), _count(x.shape, axes)
    values -= np.add.reduce(values, axis=axes, keepdims=True) / count
    variance = np.add.reduce(np.square(values), axis=axes, keepdims=True) / count
    values /= np.sqrt(variance + eps)
    return values


def _affine(values: Array, scale: Array | None, shift: Array | None) -> Array:
    if scale is not None:
        values *= scale
    if shift is not None:
        values += shift
    return values


def _affine_bound(error: Array, result: Array, scale: Array | None, shift: Array | None, dtype: DType) -> Array:
    """The error after scale and shift, with the roundings of those two."""
    factor = np.abs(scale) if scale is not None else 1
    offset = np.abs(shift) if shift is not None else 0
    return error * factor + gamma(4, dtype) * (np.abs(result) * factor + offset)


def _scaled_bound(values: Array, shift: Any, count: int, square: Array, error: Array, dtype: DType) -> Array:
    """The error of ``values / sqrt(square)`` where each value is off by ``shift`` and the square by ``error``.

    Where squares may overflow, or nothing is left of them, it says nothing.
    """
    relative = (error + dtype.least_positive) / square
    root = np.sqrt(square)
    bound = (np.abs(values) * (relative + gamma(8, dtype)) + shift) / root + dtype.least_positive
    certain = (relative < 0.5) & (square * max(count, 1) < dtype.maximum)
    return np.where(certain, bound, np.where(np.isfinite(square), inf, 0))


def _standard_bound(x: Array, axes: tuple[int, ...], eps: float, dtype: DType) -> tuple[Array, Array]:
    """The error of ``_standard`` in a compute dtype, and its exact result."""
    count = _count(x.shape, axes)

    def mean(values: Array) -> Array:
        return np.add.reduce(values, axis=axes, keepdims=True) / count

    distance = x - mean(x)
    shift = gamma(summed(count) + 2, dtype) * mean(np.abs(x)) + 2 * dtype.least_positive
    square = mean(np.square(distance))
    error = gamma(summed(count) + 4, dtype) * square + 2 * shift * mean(np.abs(distance)) + shift * shift
    bound = _scaled_bound(distance, shift, count, square + eps, error, dtype)
    return bound, distance / np.sqrt(square + eps)


# --- over axes --------------------------------------------------------------------------------------------------------


def _axes_cases(rng: np.random.Generator, dtype: DType, operands: int) -> Iterator[Case]:
    """Over several axes, with gamma and beta present and absent."""

    def row(*shape: int) -> Array:
        return random(rng, dtype, shape, -2, 2)

    def rest(*shape: int) -> list[Array | None]:
        return [row(*shape) for _ in range(operands)]

    none: list[Array | None] = [None] * operands
    yield case(dtype, row(3, 7), *none)
    yield case(dtype, row(2, 3, 8), *rest(8), eps=0.5)
    yield case(dtype, row(9), *none[1:], row(9), axis=0)
    yield case(dtype, row(2, 3, 4), row(3, 4), *none[1:], axes=[-1, 1], eps=1e-3)
    yield case(dtype, row(2, 3, 4), *rest(2, 4), axes=[0, 2])
    yield case(dtype, row(2, 5, 3), *rest(5), axes=[1])
    yield case(dtype, row(4, 1), *rest(1))
    yield case(dtype, row(0, 3), *rest(3))
    yield case(dtype, row(3, 0), *rest(0))
    yield case(dtype, random(rng, dtype, (2, 65), 9, 11), *none)
    yield case(dtype, np.array([[0, 0, 0], [1, np.inf, 2], [np.nan, 0, 1], [3, 3, 3]]).astype(dtype.array), *none)


def _layer_bound(call: Call, x: Array, scale: Array | None = None, shift: Array | None = None) -> Array:
    axes, dtype = axes_of(call.params["axes"], x.ndim), call.dtype().compute
    error, result = _standard_bound(x, axes, call.params["eps"], dtype)
    return _affine_bound(error, result, _along(scale, axes, x.shape), _along(shift, axes, x.shape), dtype)


@op(
    FAMILY,
    AFFINE,
    AXES,
    EPS,
    shape=_over_axes,
    cost=per_input(8),
    tolerance=SUM,
    cases=lambda rng, dtype: _axes_cases(rng, dtype, 2),
    bound=_layer_bound,
    T=FLOATS,
)
def layer_norm(call: Call, x: Array, scale: Array | None = None, shift: Array | None = None) -> Array:
    """Mean 0 and variance 1 over axes, `y = (x - mean(x)) / sqrt(var(x) + eps) * gamma + beta`.

    The variance divides by the number of elements. `gamma` (1 when absent) and `beta` (0) have the shape of the
    normalised axes.
    """
    axes = axes_of(call.params["axes"], x.ndim)
    values = _standard(x, axes, call.params["eps"])
    return _affine(values, _along(scale, axes, x.shape), _along(shift, axes, x.shape))


def _rms_bound(call: Call, x: Array, scale: Array | None = None) -> Array:
    axes, dtype, eps = axes_of(call.params["axes"], x.ndim), call.dtype().compute, call.params["eps"]
    count = _count(x.shape, axes)
    square = np.add.reduce(np.square(x), axis=axes, keepdims=True) / count
    error = _scaled_bound(x, 0, count, square + eps, gamma(summed(count) + 4, dtype) * square, dtype)
    return _affine_bound(error, x / np.sqrt(square + eps), _along(scale, axes, x.shape), None, dtype)


@op(
    FAMILY,
    "x: T, gamma?: T -> T",
    AXES,
    EPS,
    shape=_over_axes,
    cost=per_input(4),
    tolerance=SUM,
    cases=lambda rng, dtype: _axes_cases(rng, dtype, 1),
    bound=_rms_bound,
    T=FLOATS,
)
def rms_norm(call: Call, x: Array, scale: Array | None = None) -> Array:
    """Mean square 1 over axes, `y = x / sqrt(mean(x**2) + eps) * gamma`; `gamma` as in layer_norm, 1 when absent."""
    axes = axes_of(call.params["axes"], x.ndim)
    values = wide(x)
    square = np.add.reduce(np.square(values), axis=axes, keepdims=True) / _count(x.shape, axes)
    values /= np.sqrt(square + call.params["eps"])
    return _affine(values, _along(scale, axes, x.shape), None)


def _length_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, axis in (((7,), 0), ((3, 5), -1), ((2, 3, 4), 1), ((4, 1), 1), ((0, 3), 1), ((3, 0), 1)):
        yield case(dtype, random(rng, dtype, shape), axis=axis)
    yield case(dtype, random(rng, dtype, (5, 3), -0.1, 0.1), eps=0.125)
    yield case(dtype, np.array([[0, 0, 0], [1, np.inf, 2], [np.nan, 0, 1], [3, 3, 3]]).astype(dtype.array))


def _length_bound(call: Call, x: Array) -> Array:
    dtype, axis = call.dtype().compute, call.params["axis"]
    count = x.shape[axis]
    square = np.add.reduce(np.square(x), axis=axis, keepdims=True)
    floor = max(call.params["eps"], dtype.least_positive) ** 2
    error = gamma(summed(count) + 4, dtype) * square + count * dtype.least_positive
    return _scaled_bound(x, 0, 1, np.maximum(square, floor), error, dtype)


@op(
    FAMILY,
    "x: T -> T",
    LENGTH_AXIS,
    LEAST_LENGTH,
    shape=_length_shape,
    cost=per_input(4),
    tolerance=SUM,
    cases=_length_cases,
    bound=_length_bound,
    T=FLOATS,
)
def l2_normalize(call: Call, x: Array) -> Array:
    """Length 1 along an axis, `y = x / max(sqrt(sum(x**2)), eps)`."""
    values = wide(x)
    length = np.sqrt(np.add.reduce(np.square(values), axis=call.params["axis"], keepdims=True))
    values /= np.maximum(length, call.params["eps"])
    return values


# --- per channel ------------------------------------------------------------------------------------------------------


_BATCHES: tuple[tuple[Shape, dict[str, Any]], ...] = (
    ((2, 3), {}),
    ((2, 3, 4, 5), {"eps": 0.25}),
    ((2, 4, 3), {"axis": -1}),
    ((5,), {"axis": 0}),
    ((1, 1), {}),
    ((0, 3), {}),
    ((2, 0, 4), {}),
)


def _batch_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, params in _BATCHES:
        extent = (shape[params.get("axis", 1)],)
        rest = [random(rng, dtype, extent, -2, 2) for _ in range(3)]
        yield case(dtype, random(rng, dtype, shape), *rest, random(rng, dtype, extent, 0.5, 3), **params)
    odd = np.array([0, np.inf, np.nan, -1]).astype(dtype.array)
    ones = np.ones(4, dtype.array)
    yield case(dtype, random(rng, dtype, (3, 4)), ones, ones, ones, odd)
    yield case(dtype, np.stack([odd, odd]), ones, ones, odd, ones)


def _batch_bound(call: Call, x: Array, scale: Array, shift: Array, mean: Array, var: Array) -> Array:
    """Also that of the folded form, ``x * a + b`` with ``a`` and ``b`` computed beforehand."""
    axis, dtype = call.params["axis"] % x.ndim, call.dtype().compute
    factor = np.abs(spread(scale / np.sqrt(var + call.params["eps"]), axis, x.ndim))
    magnitude = (np.abs(x) + np.abs(spread(mean, axis, x.ndim))) * factor + np.abs(spread(shift, axis, x.ndim))
    return gamma(10, dtype) * magnitude + (2 + np.abs(spread(scale, axis, x.ndim))) * dtype.least_positive


@op(
    FAMILY,
    "x: T, gamma: T, beta: T, mean: T, var: T -> T",
    EPS,
    CHANNELS,
    shape=_per_channel,
    cost=per_input(2),
    tolerance=SUM,
    cases=_batch_cases,
    bound=_batch_bound,
    T=FLOATS,
)
def batch_norm(call: Call, x: Array, scale: Array, shift: Array, mean: Array, var: Array) -> Array:
    """Each channel with a given mean and variance, `y = (x - mean) / sqrt(var + eps) * gamma + beta`.

    `gamma`, `beta`, `mean` and `var` have one element for each channel, the index along `axis`.
    """
    axis = call.params["axis"] % x.ndim
    values = wide(x)
    values -= spread(mean, axis, x.ndim)
    values /= np.sqrt(spread(wide(var), axis, x.ndim) + call.params["eps"])
    return _affine(values, spread(scale, axis, x.ndim), spread(shift, axis, x.ndim))


def _channel_cases(rng: np.random.Generator, dtype: DType, shapes: tuple[tuple[Shape, dict[str, Any]], ...]) -> Any:
    for shape, params in shapes:
        extent = (shape[1],)
        x, pair = random(rng, dtype, shape), (random(rng, dtype, extent), random(rng, dtype, extent))
        yield case(dtype, x, *pair, **params)
        yield case(dtype, x, None, None, **params)
    yield case(dtype, x, pair[0], None, **params, eps=0.5)
    yield case(dtype, x, None, pair[1], **params)
    odd = np.array([[[1, np.inf], [np.nan, 0]], [[3, 3], [0, 1]]]).astype(dtype.array)
    yield case(dtype, odd, None, None, **({"groups": 2} if params else {}))


_GROUPED: tuple[tuple[Shape, dict[str, Any]], ...] = (
    ((2, 6), {"groups": 2}),
    ((1, 4, 1), {"groups": 4}),
    ((0, 4, 3), {"groups": 2}),
    ((2, 0, 3), {"groups": 3}),
    ((2, 4, 0), {"groups": 2}),
    ((2, 6, 3, 5), {"groups": 3}),
)
_INSTANCES: tuple[tuple[Shape, dict[str, Any]], ...] = tuple(
    (shape, {}) for shape in ((1, 4, 1), (0, 4, 3), (2, 0, 3), (2, 4, 0), (2, 6, 7), (2, 3, 4, 5))
)


def _grouped(x: Array, groups: int) -> Array:
    """Each group of channels as one row."""
    batch, channels, rest = x.shape[0], x.shape[1], prod(x.shape[2:])
    rows = min(groups, max(channels, 1))  # no channels make any number of groups
    return x.reshape(batch, rows, channels // groups * rest if groups else 0)


def _grouped_bound(x: Array, groups: int, eps: float, pair: tuple[Array | None, ...], dtype: DType) -> Array:
    error, result = _standard_bound(_grouped(x, groups), (2,), eps, dtype)
    channels = [_along(values, (1,), x.shape) for values in pair]
    return _affine_bound(error.reshape(x.shape), result.reshape(x.shape), channels[0], channels[1], dtype)


def _group_bound(call: Call, x: Array, *pair: Array | None) -> Array:
    return _grouped_bound(x, call.params["groups"], call.params["eps"], pair, call.dtype().compute)


def _instance_bound(call: Call, x: Array, *pair: Array | None) -> Array:
    return _grouped_bound(x, x.shape[1], call.params["eps"], pair, call.dtype().compute)


@op(
    FAMILY,
    AFFINE,
    GROUPS,
    EPS,
    shape=_in_groups,
    cost=per_input(8),
    tolerance=SUM,
    cases=lambda rng, dtype: _channel_cases(rng, dtype, _GROUPED),
    bound=_group_bound,
    T=FLOATS,
)
def group_norm(call: Call, x: Array, scale: Array | None = None, shift: Array | None = None) -> Array:
    """Mean 0 and variance 1 over each group of channels and all that follows, `y = standard(x) * gamma + beta`.

    `x` is [batch, channels, ...]; `standard(x) = (x - mean) / sqrt(var + eps)` over `channels / groups` consecutive
    channels of one batch element. `gamma` (1 when absent) and `beta` (0) have one element for each channel.
    """
    values = _standard(_grouped(x, call.params["groups"]), (2,), call.params["eps"]).reshape(x.shape)
    return _affine(values, _along(scale, (1,), x.shape), _along(shift, (1,), x.shape))


@op(
    FAMILY,
    AFFINE,
    EPS,
    shape=_instances,
    cost=per_input(8),
    tolerance=SUM,
    cases=lambda rng, dtype: _channel_cases(rng, dtype, _INSTANCES),
    bound=_instance_bound,
    T=FLOATS,
)
def instance_norm(call: Call, x: Array, scale: Array | None = None, shift: Array | None = None) -> Array:
    """Mean 0 and variance 1 over the spatial axes, `y = (x - mean) / sqrt(var + eps) * gamma + beta`.

    `x` is [batch, channels, spatial...]: group_norm with as many groups as channels.
    """
    values = _standard(_grouped(x, x.shape[1]), (2,), call.params["eps"]).reshape(x.shape)
    return _affine(values, _along(scale, (1,), x.shape), _along(shift, (1,), x.shape))
