"""Test inputs that the records' generators are made of: random values, extremes, broadcasting and empty shapes."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.ops.numeric import leaving
from openinfer.ops.record import Case, Cases
from openinfer.ops.types import Shape

UNARY_SHAPES: tuple[Shape, ...] = ((), (1,), (7,), (3, 5), (2, 0, 3), (2, 3, 4, 5))
BINARY_SHAPES: tuple[tuple[Shape, Shape], ...] = (
    ((), ()),
    ((5,), (5,)),
    ((2, 3), (3,)),
    ((4, 1), (1, 3)),
    ((17,), ()),
    ((0, 3), (3,)),
    ((2, 1, 3), (5, 1)),
)


def random(rng: np.random.Generator, dtype: DType, shape: Shape, low: float = -4, high: float = 4) -> Array:
    """Values spread over a range that the dtype has, in stored form."""
    if dtype.kind == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.values:
        return rng.choice(np.array(dtype.values, dtype.array), shape)
    if dtype.kind == "float":
        return leaving(dtype)(rng.uniform(low, high, shape))
    least, most = max(int(low), int(dtype.minimum)), min(int(high), int(dtype.maximum))
    kind = np.uint64 if dtype.kind == "uint" else np.int64
    return rng.integers(least, most, shape, kind, endpoint=True).astype(dtype.array)


def anything(rng: np.random.Generator, dtype: DType, shape: Shape) -> Array:
    """Values spread over all the dtype has: every magnitude of a float, every integer."""
    if dtype.kind != "float":
        return random(rng, dtype, shape, dtype.minimum, dtype.maximum)
    reach = float(np.log2(dtype.maximum))
    exponent = rng.uniform(-reach, reach, shape)
    with np.errstate(all="ignore"):
        return leaving(dtype)(np.exp2(exponent) * rng.choice([-1.0, 1.0], shape))


def extremes(dtype: DType) -> Array:
    """The values at which implementations go wrong."""
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.values:
        return np.array(dtype.values, dtype.array)
    if dtype.kind == "float":
        tiny = dtype.least_positive
        values = [0.0, -0.0, 1, -1, 0.5, -2.5, 3, tiny, -tiny, dtype.maximum, -dtype.maximum, np.inf, -np.inf, np.nan]
        return np.array(values).astype(np.float64).astype(dtype.array)
    values = sorted({int(dtype.minimum), int(dtype.maximum), 0, 1, -1, 2, 3, -3, int(dtype.maximum) - 1})
    fitting = [value for value in values if dtype.minimum <= value <= dtype.maximum]
    kind = np.uint64 if dtype.kind == "uint" else np.int64
    return np.array(fitting, kind).astype(dtype.array)


def grid(dtype: DType, arity: int) -> tuple[Array, ...]:
    """Every combination of extremes, one array per operand."""
    values = extremes(dtype)
    picks = np.array(list(product(range(len(values)), repeat=arity)), dtype=np.intp).T
    return tuple(values[pick] for pick in picks)


def case(dtype: DType, *arrays: Array | None, **params: Any) -> Case:
    """A case whose operands all have one dtype."""
    return Case(arrays, tuple(None if array is None else dtype for array in arrays), params)


def unary(*params: Mapping[str, Any], low: float = -4, high: float = 4) -> Cases:
    """Cases of an op of one operand, for each set of parameters: shapes, all magnitudes, extremes."""

    def cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
        for given in params or ({},):
            for shape in UNARY_SHAPES:
                yield case(dtype, random(rng, dtype, shape, low, high), **given)
            yield case(dtype, anything(rng, dtype, (64,)), **given)
            yield case(dtype, extremes(dtype), **given)

    return cases


def binary(*params: Mapping[str, Any], low: float = -4, high: float = 4) -> Cases:
    """Cases of an op of two operands that broadcast, for each set of parameters."""

    def cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
        for given in params or ({},):
            for one, other in BINARY_SHAPES:
                yield case(dtype, random(rng, dtype, one, low, high), random(rng, dtype, other, low, high), **given)
            yield case(dtype, anything(rng, dtype, (64,)), anything(rng, dtype, (64,)), **given)
            yield case(dtype, *grid(dtype, 2), **given)

    return cases


def special(rng: np.random.Generator, dtype: DType, shape: Shape) -> Array:
    """Values spread over all the dtype has, with its extremes among them."""
    values = np.array(anything(rng, dtype, shape))
    places = rng.permutation(values.size)
    chosen = extremes(dtype)[: values.size]
    values.reshape(-1)[places[: chosen.size]] = chosen
    return values
