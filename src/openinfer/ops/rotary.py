"""Rotary embeddings: pairs of elements rotated by an angle that grows with the position."""

from collections.abc import Iterator
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import counted
from openinfer.ops.cases import case, extremes, random
from openinfer.ops.numeric import wide
from openinfer.ops.record import SUM, Call, Case, Param, op
from openinfer.ops.shapes import broadcast_pair, gamma, per_element
from openinfer.ops.types import FLOATS, I64, POSITIONS, Shape, dtypes, parameter_error, shape_error

FAMILY = "Attention"
INTERLEAVED = Param(
    "interleaved", "bool", default=False, doc="Whether neighbours are pairs, and not element i of either half."
)
_TURN = np.longdouble("6.283185307179586476925286766559005768")


def _rotary(call: Call) -> int:
    """How many elements at the beginning of the last axis are rotated."""
    x = call.input(0)
    if not x.shape:
        raise shape_error(f"'rope' rotates the last axis, and {x} has none", 0)
    given: int | None = call.params["rotary_dim"]
    count = x.shape[-1] if given is None else given
    if count % 2 or not 0 <= count <= x.shape[-1]:
        message = f"the {counted(count, 'element')} to rotate are not an even number within the last axis of {x}"
        raise parameter_error("rotary_dim", message)
    return count


def _rope_shape(call: Call) -> tuple[Shape, ...]:
    x, positions = call.input(0), call.input(1)
    _rotary(call)
    base, scale = call.params["base"], call.params["scale"]
    if not (isfinite(base) and base > 0):
        raise parameter_error("base", f"'base' is finite and above 0, not {base}")
    if not isfinite(scale):
        raise parameter_error("scale", f"'scale' is finite, not {scale}")
    if broadcast_pair(x.shape[:-1], positions.shape) != x.shape[:-1]:
        raise shape_error(f"{positions} does not broadcast to the {list(x.shape[:-1])} rows of {x}", 1)
    return (x.shape,)


@lru_cache(maxsize=64)
def _frequencies(count: int, base: float) -> Array:
    exponents = -np.arange(0, count, 2, dtype=np.longdouble) / np.longdouble(max(count, 1))
    return np.power(np.longdouble(base), exponents)


def _angles(call: Call, positions: Array, *, precise: bool) -> Array:
    """The angle of each pair; less whole turns, and in f64, unless a precise result is wanted."""
    rates = _frequencies(_rotary(call), call.params["base"]) * np.longdouble(call.params["scale"])
    angles = positions[..., None].astype(np.longdouble) * rates
    return angles if precise else np.fmod(angles, _TURN).astype(np.float64)


def _pairs(count: int, *, interleaved: bool) -> tuple[Any, Any]:
    """Where the first and the second elements of the pairs are."""
    if interleaved:
        return (..., slice(0, count, 2)), (..., slice(1, count, 2))
    return (..., slice(0, count // 2)), (..., slice(count // 2, count))


def _rotated(call: Call, x: Array, cos: Array, sin: Array) -> Array:
    first, second = _pairs(2 * cos.shape[-1], interleaved=call.params["interleaved"])
    result = x.copy()
    result[first] = x[first] * cos - x[second] * sin
    result[second] = x[first] * sin + x[second] * cos
    return result


def _bound(call: Call, x: Array, cos: Array, sin: Array) -> Array:
    """The error of two products and their sum, of factors that are each rounded; elements that only move have none."""
    first, second = _pairs(2 * cos.shape[-1], interleaved=call.params["interleaved"])
    result, accumulator = np.zeros_like(x), call.dtype().compute
    one, other = np.abs(x[first]), np.abs(x[second])
    result[first] = gamma(4, accumulator) * (one * np.abs(cos) + other * np.abs(sin)) + 2 * accumulator.least_positive
    result[second] = gamma(4, accumulator) * (one * np.abs(sin) + other * np.abs(cos)) + 2 * accumulator.least_positive
    return result


def _rope_bound(call: Call, x: Array, positions: Array) -> Any:
    # A sine near 0 has the error of its angle, not its own. Positions are exact up to 2^53, angles to some 60 bits.
    angles = np.abs(_angles(call, positions, precise=True))
    is_rounded = np.abs(positions.astype(np.longdouble))[..., None] > 2.0**53
    errors = np.minimum(angles * np.where(is_rounded, 2.0**-53, 2.0**-60), 2)
    factors = 1 + (errors / gamma(4, call.dtype().compute)).astype(np.float64)
    return _bound(call, x, factors, factors)


def _rope_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    settings: tuple[tuple[Shape, Shape, dict[str, Any]], ...] = (
        ((2, 3, 5, 8), (5,), {}),
        ((2, 3, 5, 8), (2, 1, 5), {"interleaved": True}),
        ((5, 6), (), {"base": 500000.0}),
        ((4, 7), (4,), {"rotary_dim": 4}),
        ((4, 9), (4,), {"rotary_dim": 6, "interleaved": True}),
        ((3, 4), (3,), {"scale": 0.25}),
        ((6,), (), {"scale": -1.0, "rotary_dim": 0}),
        ((1, 2), (1,), {}),
        ((0, 4), (0,), {}),
        ((3, 0), (3,), {}),
    )
    for shape, places, params in settings:
        for kind in dtypes("i32 i64 u8 u64"):
            high = 127 if kind.bits == 8 else 100_000
            positions = rng.integers(0 if kind.kind == "uint" else -high, high, places).astype(kind.array)
            yield Case((random(rng, dtype, shape), positions), (dtype, kind), params)
    values = extremes(dtype)
    pairs = np.stack([values, values[::-1]], axis=-1)
    yield Case((pairs, np.arange(len(values))), (dtype, I64))


@op(
    FAMILY,
    "x: T, positions: P -> T",
    Param("base", "float", 10000.0, "What the angles of the later pairs are divided by powers of."),
    INTERLEAVED,
    Param("rotary_dim", "int", None, "How many elements of the last axis are rotated; all where nothing is given."),
    Param("scale", "float", 1.0, "What positions are multiplied with."),
    shape=_rope_shape,
    cost=per_element(3),
    tolerance=SUM,
    bound=_rope_bound,
    cases=_rope_cases,
    T=FLOATS,
    P=POSITIONS,
)
def rope(call: Call, x: Array, positions: Array) -> Array:
    """Rotary embedding: pair i of the last axis is rotated by the angle `positions * scale * base**(-2*i/rotary_dim)`.

    A pair (a, b) becomes `(a*cos - b*sin, a*sin + b*cos)`; pairs are elements i and i + rotary_dim/2, or 2*i and
    2*i + 1 if interleaved. Elements from rotary_dim on stay. The positions broadcast to the shape of x without its
    last axis.
    """
    double = wide(x)
    angles = _angles(call, positions, precise=x.dtype == np.float64)
    return _rotated(call, double, np.cos(angles), np.sin(angles))


def _cached_shape(call: Call) -> tuple[Shape, ...]:
    x, cos, sin = (call.input(slot) for slot in range(3))
    if not (x.shape and cos.shape and sin.shape) or cos.shape[-1] != sin.shape[-1]:
        raise shape_error(f"{cos} and {sin} do not hold the cosine and sine of the same pairs of {x}", 1)
    if 2 * cos.shape[-1] > x.shape[-1]:
        advice = "there is one cosine and one sine for each pair, not for each element"
        raise shape_error(
            f"{cos} has more than half the {counted(x.shape[-1], 'element')} of the last axis of {x}", 1, advice
        )
    rows = (*x.shape[:-1], cos.shape[-1])
    for slot, kind in ((1, cos), (2, sin)):
        if broadcast_pair(rows, kind.shape) != rows:
            raise shape_error(f"{kind} does not broadcast to the pairs {list(rows)} of {x}", slot)
    return (x.shape,)


def _cached_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, table in (
        ((2, 3, 5, 8), (5, 4)),
        ((5, 9), (5, 3)),
        ((2, 4, 6), (2, 1, 3)),
        ((4,), (2,)),
        ((3, 2), (1,)),
        ((0, 4), (0, 2)),
        ((3, 4), (0,)),
    ):
        for interleaved in (False, True):
            arrays = (random(rng, dtype, one, -1, 1) for one in (shape, table, table))
            yield case(dtype, *arrays, interleaved=interleaved)
    values = extremes(dtype)
    ones = np.ones((1, 1), dtype.array)
    yield case(dtype, np.stack([values, values[::-1]], axis=-1), ones, values[:, None])


@op(
    FAMILY,
    "x: T, cos: T, sin: T -> T",
    INTERLEAVED,
    shape=_cached_shape,
    cost=per_element(3),
    tolerance=SUM,
    bound=_bound,
    cases=_cached_cases,
    T=FLOATS,
)
def rope_cached(call: Call, x: Array, cos: Array, sin: Array) -> Array:
    """Rotary embedding with given cosines and sines: a pair (a, b) becomes `(a*cos - b*sin, a*sin + b*cos)`.

    With n cosines in their last axis, pairs are elements i and i + n of the last axis of x, or 2*i and 2*i + 1 if
    interleaved; elements from 2*n on stay. The cosines and sines broadcast to [rows of x..., n].
    """
    return _rotated(call, *(wide(array) for array in (x, cos, sin)))
