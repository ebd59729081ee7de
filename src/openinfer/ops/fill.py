"""Tensors made of a few values: constants, indices, one-hot rows, triangles."""

from collections.abc import Iterator
from math import inf

import numpy as np

from openinfer.dtypes import DTYPES, Array, DType, convert
from openinfer.ops.cases import UNARY_SHAPES, anything, case, extremes, random
from openinfer.ops.numeric import leaving
from openinfer.ops.record import EXACT, REQUIRED, Call, Case, OpCost, Param, op
from openinfer.ops.shapes import axis_of, bytes_moved, per_element, same, spread
from openinfer.ops.types import ALL, FLOATS, INTEGERS, NUMBERS, Shape, parameter_error, shape_error

FAMILY = "Fill"
ONE = "x: T -> T"


def stored_number(value: float, dtype: DType) -> Array:
    """A number that a dtype has, or the float nearest to it, in stored form.

    >>> stored_number(10**400, DTYPES["f16"]), stored_number(-2, DTYPES["i4"])
    (array(inf, dtype=float16), array(-2, dtype=int4))
    """
    if dtype.kind != "float":
        return np.array(int(value)).astype(dtype.array)
    if isinstance(value, int) and value.bit_length() > 64:
        value = float(value) if value.bit_length() <= 1023 else inf if value > 0 else -inf
    return convert(np.asarray(value), dtype)


def _writes(call: Call) -> OpCost:
    """Nothing is read but types."""
    return OpCost(0, 0, bytes_moved(call)[1])


def _some_numbers(dtype: DType) -> tuple[float, ...]:
    if dtype.kind == "float":
        return (0.1, -3, True, inf, float("nan"), 1e9, 2**70)
    return (int(dtype.minimum), int(dtype.maximum))


def _fill_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for value in _some_numbers(dtype):
        for shape in ((), (7,), (2, 0, 3), (3, 5)):
            yield case(dtype, anything(rng, dtype, shape), value=value)


@op(
    FAMILY,
    ONE,
    Param("value", "number", REQUIRED, "What every element is."),
    shape=same,
    cost=_writes,
    tolerance=EXACT,
    cases=_fill_cases,
    stored=True,
    T=ALL,
)
def fill(call: Call, x: Array) -> Array:
    """One value everywhere, `y = value`, in the dtype and shape of `x`."""
    return np.full(x.shape, stored_number(call.params["value"], call.dtype()), call.dtype().array)


def _fill_nan_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for value in (0, 0.1, -inf):
        for shape in UNARY_SHAPES:
            yield case(dtype, rng.choice(extremes(dtype), shape), value=value)
        yield case(dtype, extremes(dtype), value=value)


@op(
    FAMILY,
    ONE,
    Param("value", "number", REQUIRED, "Replaces NaN and infinities."),
    shape=same,
    cost=per_element(1),
    tolerance=EXACT,
    cases=_fill_nan_cases,
    stored=True,
    T=FLOATS,
)
def fill_nan_like(call: Call, x: Array) -> Array:
    """NaN and both infinities replaced, `y = is_finite(x) ? x : value`."""
    return np.where(np.isfinite(x), x, stored_number(call.params["value"], call.dtype()))


def _iota_shape(call: Call) -> tuple[Shape, ...]:
    axis_of(call.params["axis"], len(call.shape(0)))
    return same(call)


def _iota_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, axis in (((1,), 0), ((300,), -1), ((3, 5), 0), ((3, 5), 1), ((2, 0, 3), 2), ((2, 3, 4), -2), ((0,), 0)):
        yield case(dtype, random(rng, dtype, shape), axis=axis)
    if dtype.is_small_float:
        yield case(dtype, np.zeros(70000, dtype.array), axis=0)


@op(
    FAMILY,
    ONE,
    Param("axis", "int", REQUIRED, "The axis along which the elements count."),
    shape=_iota_shape,
    cost=_writes,
    tolerance=EXACT,
    cases=_iota_cases,
    stored=True,
    T=NUMBERS,
)
def iota(call: Call, x: Array) -> Array:
    """The index along an axis, `y[.., i, ..] = i`, in the dtype and shape of `x`. Integers wrap, floats round."""
    axis, dtype = axis_of(call.params["axis"], x.ndim), call.dtype()
    indices = np.arange(x.shape[axis])
    line = convert(indices, dtype) if dtype.kind == "float" else leaving(dtype)(indices)
    return np.array(np.broadcast_to(spread(line, axis, x.ndim), x.shape))


def _one_hot_shape(call: Call) -> tuple[Shape, ...]:
    shape, depth = call.shape(0), call.params["depth"]
    if depth < 0:
        raise parameter_error("depth", f"'depth' is {depth}, and a dimension is not negative")
    axis = axis_of(call.params["axis"], len(shape) + 1)
    return ((*shape[:axis], depth, *shape[axis:]),)


def _one_hot_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, axis in (((), 0), ((7,), -1), ((3, 5), 0), ((3, 5), 1), ((2, 0), -3), ((2, 3), 2)):
        yield case(dtype, random(rng, dtype, shape, -2, 9), depth=6, axis=axis)
    yield case(dtype, extremes(dtype), depth=3, on=0.1, off=-0.0, to=DTYPES["f16"])
    yield case(dtype, random(rng, dtype, (5,)), depth=0)
    for to in ALL:
        least, most = (-1, 1) if to.kind == "float" or to.values else (int(to.minimum), int(to.maximum))
        yield case(dtype, random(rng, dtype, (5,)), depth=3, on=most, off=least, to=to)


@op(
    FAMILY,
    "ids: T -> f32",
    Param("depth", "int", REQUIRED, "The extent of the new axis."),
    Param("axis", "int", -1, "Where the new axis is in the result."),
    Param("on", "number", 1, "The value at the index."),
    Param("off", "number", 0, "The value everywhere else."),
    Param("to", "dtype", DTYPES["f32"], "The dtype of the result."),
    shape=_one_hot_shape,
    dtype=lambda call: (call.params["to"],),
    cost=per_element(1),
    tolerance=EXACT,
    cases=_one_hot_cases,
    stored=True,
    T=INTEGERS,
)
def one_hot(call: Call, ids: Array) -> Array:
    """A new axis that marks an index, `y[.., i, ..] = (i == ids) ? on : off`.

    An index that is negative, or `depth` and more, marks nothing.
    """
    to: DType = call.params["to"]
    axis = axis_of(call.params["axis"], ids.ndim + 1)
    wide = ids.astype(ids.dtype if ids.itemsize == 8 else np.int64)
    indices = spread(np.arange(call.params["depth"]).astype(wide.dtype), axis, ids.ndim + 1)
    on, off = (stored_number(call.params[name], to) for name in ("on", "off"))
    return np.where(np.expand_dims(wide, axis) == indices, on, off)


def _tri_shape(call: Call) -> tuple[Shape, ...]:
    if len(call.shape(0)) < 2:
        raise shape_error(f"{call.input(0)} has no last two axes", 0)
    return same(call)


def _tri_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape in ((1, 1), (3, 5), (5, 3), (2, 4, 4), (3, 0), (0, 2), (0, 3, 2)):
        for given in ({}, {"diagonal": 1}, {"diagonal": -2, "upper": True}, {"upper": True}, {"diagonal": 99}):
            yield case(dtype, anything(rng, dtype, shape), **given)
    values = extremes(dtype)
    yield case(dtype, np.stack([values, values[::-1]]), diagonal=-(2**62), upper=False)


@op(
    FAMILY,
    ONE,
    Param("diagonal", "int", 0, "Which diagonal bounds the triangle; above the main one where positive."),
    Param("upper", "bool", default=False, doc="Whether what is above the diagonal is kept, not what is below."),
    shape=_tri_shape,
    cost=per_element(0),
    tolerance=EXACT,
    cases=_tri_cases,
    stored=True,
    T=tuple(dtype for dtype in ALL if dtype.has_zero),
)
def tri(call: Call, x: Array) -> Array:
    """A triangle of the last two axes and zeros, `y[.., i, j] = j - i <= diagonal ? x[.., i, j] : 0`.

    With `upper`, `j - i >= diagonal` is kept. The diagonal itself always is.
    """
    rows, columns = x.shape[-2:]
    # Beyond the corners all diagonals are alike.
    diagonal = min(max(call.params["diagonal"], -rows - 1), columns + 1)
    offset = np.arange(columns) - np.arange(rows)[:, None]
    kept = offset >= diagonal if call.params["upper"] else offset <= diagonal
    return np.where(kept, x, np.zeros((), x.dtype))
