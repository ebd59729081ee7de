"""Ops that read or write elements at computed places: the gather and scatter family.

Indices may have any integer dtype of a byte and more; negative ones count from the end, and those out of range are
errors.
"""

from collections.abc import Iterator
from math import prod

import numpy as np

from openinfer.dtypes import DTYPES, Array, DType
from openinfer.errors import Code, counted
from openinfer.oinf.quant import group_shape
from openinfer.ops.cases import random, special
from openinfer.ops.record import EXACT, REQUIRED, SUM, Call, Case, OpCost, Param, op
from openinfer.ops.shapes import axis_of, broadcast_pair, bytes_moved
from openinfer.ops.types import (
    ALL,
    NUMBERS,
    POSITIONS,
    TERNARY,
    OpError,
    Shape,
    parameter_error,
    shape_error,
    value_error,
)

FAMILY = "Move"
I8, I32, I64, U8, U64 = (DTYPES[name] for name in ("i8", "i32", "i64", "u8", "u64"))


def _counted(ids: Array, extent: int, slot: int = 1) -> Array:
    """Indices counted from the front, or a fault at the first one out of range."""
    outside = (ids >= extent) | (ids < -extent)
    if np.any(outside):
        place = np.argwhere(np.atleast_1d(outside))[0].tolist()[: ids.ndim]
        found = ids[tuple(place)]
        where = f" at {place}" if place else ""
        raise value_error(f"the index {found}{where} is outside an axis of extent {extent}", slot)
    positions = ids.astype(np.int64)
    return np.where(positions < 0, positions + extent, positions)


def _picks(call: Call) -> OpCost:
    """As many elements are read as written, and the indices."""
    written = call.outputs[0].nbytes
    return OpCost(0, written + call.input(1).nbytes, written)


def _indices(rng: np.random.Generator, dtype: DType, shape: Shape, extent: int) -> Array:
    """Legal indices of an axis, also negative ones where the dtype has them."""
    low = -extent if dtype.minimum < 0 else 0
    return random(rng, dtype, shape, low, extent - 1)


# --- reading ----------------------------------------------------------------------------------------------------------


def _picked(call: Call, x: Array, places: Array, axis: int) -> Array:
    """Slices along an axis; of a quantized tensor only what is picked becomes real numbers."""
    picked = np.take(x, places, axis)
    kind = call.input(0)
    if kind.quant is None or x.dtype == kind.dtype.array:
        return picked
    channel, group = kind.quant.scale.axis, kind.quant.scale.group

    def along(values: Array) -> Array:
        """What belongs to each slice of the tensor, to broadcast over what was picked."""
        if channel is None:
            return values.reshape(())
        if group is not None:
            groups = values.reshape(group_shape(x.shape, channel, group))
            if channel == axis:
                return np.take(groups, places // group, axis)
            behind = channel if channel < axis else channel - 1 + places.ndim
            repeated = np.repeat(np.take(groups, places, axis), group, behind)
            return repeated[(slice(None),) * behind + (slice(x.shape[channel]),)]
        own = values[places] if channel == axis else values
        first = channel if channel <= axis else channel - 1 + places.ndim
        return own.reshape((*own.shape, *(1,) * (picked.ndim - first - own.ndim)))

    real = picked.astype(np.float32)
    if kind.quant.zero_point is not None:
        real -= along(kind.quant.zero_point.values).astype(np.float32)
    real *= along(kind.quant.scale.values).astype(np.float32)
    if kind.quant.offset is not None:
        real += along(kind.quant.offset.values).astype(np.float32)
    return real.astype(kind.dtype.array, copy=False)


def _gathered(call: Call) -> tuple[Shape, ...]:
    shape = call.shape(0)
    axis = axis_of(call.params["axis"], len(shape))
    return ((*shape[:axis], *call.shape(1), *shape[axis + 1 :]),)


def _gather_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, ids, kind, axis in (
        ((7,), (), I64, 0),
        ((7,), (5,), U8, 0),
        ((3, 5), (2, 3), I8, 0),
        ((3, 5), (2, 3), I32, -1),
        ((2, 3, 5), (4,), U64, 1),
        ((2, 1, 5), (2, 1), I64, 1),
        ((2, 3), (0,), I64, 0),
    ):
        places = _indices(rng, kind, ids, shape[axis])
        yield Case((special(rng, dtype, shape), places), (dtype, kind), {"axis": axis})
    empty = np.zeros((0, 4), np.int16)
    yield Case((special(rng, dtype, (0, 3)), empty), (dtype, DTYPES["i16"]))
    yield Case((special(rng, dtype, (9, 2)), np.array([8, 0, 8], np.uint16)), (dtype, DTYPES["u16"]))
    yield Case((special(rng, dtype, (9, 0)), np.array([3], np.uint32)), (dtype, DTYPES["u32"]))


@op(
    FAMILY,
    "x: T~, ids: I -> T",
    Param("axis", "int", 0, "The axis that the indices belong to."),
    shape=_gathered,
    cost=_picks,
    tolerance=EXACT,
    cases=_gather_cases,
    stored=True,
    T=ALL,
    I=POSITIONS,
)
def gather(call: Call, x: Array, ids: Array) -> Array:
    """Slices of `x` at indices along an axis, `y[..., j..., ...] = x[..., ids[j...], ...]`, as NumPy's `take`.

    Negative indices count from the end; an index out of range is an error.
    """
    axis = axis_of(call.params["axis"], x.ndim)
    return _picked(call, x, _counted(ids, x.shape[axis]), axis)


def _embedded(call: Call) -> tuple[Shape, ...]:
    table = call.input(0)
    if len(table.shape) != 2:
        raise shape_error(f"the table is [entries, features], not {table}", 0)
    return ((*call.shape(1), table.shape[1]),)


def _embedding_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for table, ids, kind in (((7, 3), (), I64), ((7, 3), (2, 5), I32), ((1, 1), (4,), U8), ((5, 0), (3,), I8)):
        arrays = (special(rng, dtype, table), _indices(rng, kind, ids, table[0]))
        yield Case(arrays, (dtype, kind))
    yield Case((special(rng, dtype, (0, 4)), np.zeros((2, 0), np.uint64)), (dtype, U64))


@op(
    FAMILY,
    "table: T~, ids: I -> T",
    shape=_embedded,
    cost=_picks,
    tolerance=EXACT,
    cases=_embedding_cases,
    stored=True,
    T=ALL,
    I=POSITIONS,
)
def embedding(call: Call, table: Array, ids: Array) -> Array:
    """Rows of a table, `y[j..., :] = table[ids[j...], :]`.

    Negative indices count from the end; an index out of range is an error.
    """
    return _picked(call, table, _counted(ids, len(table)), 0)


def _taken(call: Call) -> tuple[Shape, ...]:
    x, ids = call.input(0), call.input(1)
    axis = axis_of(call.params["axis"], len(x.shape))
    others = [shape[:axis] + shape[axis + 1 :] for shape in (x.shape, ids.shape)]
    joined = broadcast_pair(*others) if len(ids.shape) == len(x.shape) else None
    if joined is None:
        raise shape_error(f"{ids} does not broadcast with {x} along the axes other than {axis}", 1)
    return ((*joined[:axis], ids.shape[axis], *joined[axis:]),)


def _take_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, ids, kind, axis in (
        ((7,), (3,), I64, 0),
        ((3, 5), (3, 2), I8, -1),
        ((3, 5), (4, 5), U8, 0),
        ((3, 5), (1, 2), I32, 1),
        ((1, 4, 5), (3, 2, 1), U64, -2),
        ((2, 0, 3), (2, 0, 4), I64, 2),
        ((2, 3), (0, 3), I64, 0),
    ):
        arrays = (special(rng, dtype, shape), _indices(rng, kind, ids, shape[axis]))
        yield Case(arrays, (dtype, kind), {"axis": axis})
    yield Case((special(rng, dtype, (3, 0)), np.zeros((3, 0), np.int64)), (dtype, I64), {"axis": 1})


@op(
    FAMILY,
    "x: T, ids: I -> T",
    Param("axis", "int", REQUIRED, "The axis that the indices belong to."),
    shape=_taken,
    cost=_picks,
    tolerance=EXACT,
    cases=_take_cases,
    stored=True,
    T=ALL,
    I=POSITIONS,
)
def take_along(call: Call, x: Array, ids: Array) -> Array:
    """Elements of `x` at indices along an axis, `y[i..., j, k...] = x[i..., ids[i..., j, k...], k...]`.

    As NumPy's `take_along_axis`: the other axes of `x` and `ids` broadcast. Negative indices count from the end; an
    index out of range is an error.
    """
    axis = axis_of(call.params["axis"], x.ndim)
    return np.take_along_axis(x, _counted(ids, x.shape[axis]), axis)


def _require_depth(x: Shape, ids: Shape, batch: int, call: Call) -> int:
    """How many axes of `x` each vector of indices addresses."""
    if not x:
        raise shape_error(f"a scalar {call.input(0)} has no axes that indices could address", 0)
    if len(ids) <= batch or not 1 <= ids[-1] <= len(x) - batch:
        message = (
            f"the last axis of {call.input(1)} should hold 1 to {counted(len(x) - batch, 'index')} into {call.input(0)}"
        )
        raise shape_error(message, 1)
    return ids[-1]


def _gathered_nd(call: Call) -> tuple[Shape, ...]:
    x, ids, batch = call.shape(0), call.shape(1), call.params["batch_dims"]
    if not 0 <= batch < max(min(len(x), len(ids)), 1):
        message = f"{call.input(0)} and {call.input(1)} do not have {batch} axes in common before the indices"
        raise parameter_error("batch_dims", message)
    if x[:batch] != ids[:batch]:
        raise shape_error(f"the first {batch} axes of {call.input(0)} and {call.input(1)} differ", 1)
    depth = _require_depth(x, ids, batch, call)
    return (ids[:-1] + x[batch + depth :],)


def _vectors(rng: np.random.Generator, kind: DType, ids: Shape, extents: Shape) -> Array:
    """Legal vectors of indices along the last axis."""
    parts = [_indices(rng, kind, ids[:-1], extent) for extent in extents]
    return np.stack(parts, axis=-1).astype(kind.array)


def _gather_nd_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, ids, kind, batch in (
        ((7,), (1,), I64, 0),
        ((3, 5), (2,), I32, 0),
        ((3, 5), (4, 1), U8, 0),
        ((2, 3, 5), (2, 4, 2), I8, 0),
        ((2, 3, 5), (2, 4, 1), I64, 1),
        ((2, 3, 5), (2, 2), U64, 1),
        ((2, 3, 5), (2, 3, 1), I64, 2),
        ((2, 3, 0), (0, 2), I64, 0),
        ((2, 3, 0), (4, 2), I64, 0),
    ):
        places = _vectors(rng, kind, ids, shape[batch : batch + ids[-1]])
        yield Case((special(rng, dtype, shape), places), (dtype, kind), {"batch_dims": batch})


@op(
    FAMILY,
    "x: T, ids: I -> T",
    Param("batch_dims", "int", 0, "How many leading axes `x` and `ids` share."),
    shape=_gathered_nd,
    cost=_picks,
    tolerance=EXACT,
    cases=_gather_nd_cases,
    stored=True,
    T=ALL,
    I=POSITIONS,
)
def gather_nd(call: Call, x: Array, ids: Array) -> Array:
    """Parts of `x` at vectors `v = ids[b..., j...]` of indices, `y[b..., j..., ...] = x[b..., v[0], v[1]..., ...]`.

    The last axis of `ids` holds the vectors. Negative indices count from the end; an index out of range is an error.
    """
    batch = call.params["batch_dims"]
    places = ids.shape[:-1]
    shared = np.ix_(*(np.arange(extent) for extent in places[:batch]))
    own = [axis.reshape(axis.shape + (1,) * (len(places) - batch)) for axis in shared]
    given = [_counted(ids[..., at], x.shape[batch + at]) for at in range(ids.shape[-1])]
    return x[(*own, *given)]


# --- writing ----------------------------------------------------------------------------------------------------------

REDUCE = Param(
    "reduce",
    "str",
    "none",
    "What happens to the element that is there: it is replaced, or added to, multiplied, or the smaller or larger "
    "of the two stays.",
    choices=("none", "add", "mul", "min", "max"),
)
REDUCIBLE = {"none": ALL, "add": NUMBERS, "mul": NUMBERS + TERNARY, "min": NUMBERS + TERNARY, "max": NUMBERS + TERNARY}
UFUNCS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _require_reducible(call: Call) -> None:
    reduce = call.params["reduce"]
    if call.dtype() not in REDUCIBLE[reduce]:
        message = f"{call.input(0)} has no reduce={reduce!r}"
        choices = ", ".join(dtype.name for dtype in REDUCIBLE[reduce])
        raise OpError(Code.BAD_PARAMETER, message, "reduce", f"it exists for {choices}")


def _scattered(call: Call, x: Array, places: Array, updates: Array) -> Array:
    """A copy of `x` with updates at flat places, applied in order."""
    reduce = call.params["reduce"]
    result, places, updates = x.copy().reshape(-1), places.reshape(-1), updates.reshape(-1)
    if reduce == "none":
        # Where a place occurs twice the last update stays; NumPy's own assignment does not promise that.
        places, last = np.unique(places[::-1], return_index=True)
        result[places] = updates[::-1][last]
    elif reduce in ("min", "max") and x.dtype.kind == "f":
        ordered = _ordered(result, reduce)
        UFUNCS[reduce].at(ordered, places, _ordered(updates, reduce))
        result = _flipped(ordered).view(x.dtype)
    else:
        UFUNCS[reduce].at(result, places, updates)
    return result.reshape(x.shape)


def _flipped(bits: Array) -> Array:
    """Between the bits of floats and integers in the same order; its own inverse."""
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _ordered(values: Array, reduce: str) -> Array:
    """Floats as integers whose order has -0 below +0 and NaN where it stays whatever it is compared with."""
    limits = np.iinfo(f"i{values.itemsize}")
    integers = _flipped(values.view(limits.dtype))
    return np.where(np.isnan(values), limits.min if reduce == "min" else limits.max, integers)


def _scatter_bound(call: Call, x: Array, places: Array, updates: Array) -> Array:
    """Rounding errors of sums and products in any order; nothing else rounds."""
    reduce, unit = call.params["reduce"], 2.0**-53 if call.dtype().name == "f64" else 2.0**-24
    size, flat = np.abs(x).reshape(-1), places.reshape(-1)
    if reduce not in ("add", "mul"):
        return np.zeros(x.shape)
    UFUNCS[reduce].at(size, flat, np.abs(updates).reshape(-1))
    terms = np.bincount(flat, minlength=x.size) * unit
    return (terms / (1 - terms) * size).reshape(x.shape)


def _writes(call: Call) -> OpCost:
    flops = 0 if call.params["reduce"] == "none" else call.input(2).size
    return OpCost(flops, *bytes_moved(call))


def _elements(call: Call, ids: Array) -> Array:
    """The flat place in `x` that each element of `ids` addresses."""
    shape = call.shape(0)
    axis = axis_of(call.params["axis"], len(shape))
    index: list[Array] = list(np.ix_(*(np.arange(extent) for extent in ids.shape)))
    index[axis] = _counted(ids, shape[axis])
    strides = [prod(shape[at + 1 :]) for at in range(len(shape))]
    return sum((at * stride for at, stride in zip(index, strides, strict=True)), np.zeros(ids.shape, np.int64))


def _scatter_shape(call: Call) -> tuple[Shape, ...]:
    x, ids, updates = (call.input(slot) for slot in range(3))
    _require_reducible(call)
    axis = axis_of(call.params["axis"], len(x.shape))
    if updates.shape != ids.shape:
        raise shape_error(f"{updates} does not have the shape of the indices {ids}", 2)
    if len(ids.shape) != len(x.shape):
        raise shape_error(f"{ids} does not have as many axes as {x}", 1)
    pairs = enumerate(zip(ids.shape, x.shape, strict=True))
    if any(own > extent for at, (own, extent) in pairs if at != axis):
        raise shape_error(f"{ids} is larger than {x} along an axis other than {axis}", 1)
    return (x.shape,)


def _reductions(dtype: DType) -> Iterator[str]:
    return (reduce for reduce, kinds in REDUCIBLE.items() if dtype in kinds)


def _updates(rng: np.random.Generator, dtype: DType, shape: Shape, reduce: str) -> Array:
    """Sums and products of updates to one element stay in range; anything else may be anything."""
    return random(rng, dtype, shape) if reduce in ("add", "mul") else special(rng, dtype, shape)


def _scatter_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for reduce in _reductions(dtype):
        for shape, ids, kind, axis in (
            ((7,), (5,), I64, 0),
            ((3, 5), (2, 9), I8, -1),
            ((3, 5), (6, 4), U8, 0),
            ((2, 3, 5), (2, 1, 5), I32, 1),
            ((2, 0, 3), (2, 0, 4), I64, 2),
            ((2, 3), (0, 3), U64, 0),
        ):
            arrays = (
                _updates(rng, dtype, shape, reduce),
                _indices(rng, kind, ids, shape[axis]),
                _updates(rng, dtype, ids, reduce),
            )
            yield Case(arrays, (dtype, kind, dtype), {"axis": axis, "reduce": reduce})
        once = rng.permutation(17) - 17
        arrays = (special(rng, dtype, (17,)), once, special(rng, dtype, (17,)))
        yield Case(arrays, (dtype, I64, dtype), {"axis": 0, "reduce": reduce})


@op(
    FAMILY,
    "x: T, ids: I, updates: T -> T",
    Param("axis", "int", REQUIRED, "The axis that the indices belong to."),
    REDUCE,
    shape=_scatter_shape,
    cost=_writes,
    tolerance=SUM,
    bound=lambda call, x, ids, updates: _scatter_bound(call, x, _elements(call, ids), updates),
    cases=_scatter_cases,
    T=ALL,
    I=POSITIONS,
)
def scatter(call: Call, x: Array, ids: Array, updates: Array) -> Array:
    """`x` with elements replaced, `y[i..., ids[i..., j, k...], k...] = updates[i..., j, k...]`, in row-major order.

    `ids` and `updates` have one shape, no larger than `x` along the other axes. Where an index occurs twice the last
    update stays; with `reduce` every one counts, integers wrap, and floats are rounded once at the end. Negative
    indices count from the end; an index out of range is an error.
    """
    return _scattered(call, x, _elements(call, ids), updates)


def _slices(call: Call, ids: Array) -> Array:
    """The flat places in `x` that each vector of indices addresses."""
    shape, depth = call.shape(0), ids.shape[-1]
    start = np.zeros(ids.shape[:-1], np.int64)
    for at in range(depth):
        start += _counted(ids[..., at], shape[at]) * prod(shape[at + 1 :])
    return start[..., None] + np.arange(prod(shape[depth:]))


def _scatter_nd_shape(call: Call) -> tuple[Shape, ...]:
    x, ids, updates = call.shape(0), call.shape(1), call.input(2)
    _require_reducible(call)
    depth = _require_depth(x, ids, 0, call)
    wanted = ids[:-1] + x[depth:]
    if updates.shape != wanted:
        raise shape_error(f"the updates are {updates}, but the indices {call.input(1)} address {list(wanted)}", 2)
    return (x,)


def _scatter_nd_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for reduce in _reductions(dtype):
        for shape, ids, kind in (
            ((7,), (5, 1), I64),
            ((7,), (1,), U8),
            ((3, 5), (6, 2), I8),
            ((3, 5), (2, 2, 1), I32),
            ((2, 3, 5), (4, 2), U64),
            ((2, 3, 0), (4, 2), I64),
            ((2, 3), (0, 1), I64),
        ):
            arrays = (
                _updates(rng, dtype, shape, reduce),
                _vectors(rng, kind, ids, shape[: ids[-1]]),
                _updates(rng, dtype, ids[:-1] + shape[ids[-1] :], reduce),
            )
            yield Case(arrays, (dtype, kind, dtype), {"reduce": reduce})
        once = np.stack(np.unravel_index(rng.permutation(18), (3, 6)), -1)
        arrays = (special(rng, dtype, (3, 6)), once, special(rng, dtype, (18,)))
        yield Case(arrays, (dtype, I64, dtype), {"reduce": reduce})


@op(
    FAMILY,
    "x: T, ids: I, updates: T -> T",
    REDUCE,
    shape=_scatter_nd_shape,
    cost=_writes,
    tolerance=SUM,
    bound=lambda call, x, ids, updates: _scatter_bound(call, x, _slices(call, ids), updates),
    cases=_scatter_nd_cases,
    T=ALL,
    I=POSITIONS,
)
def scatter_nd(call: Call, x: Array, ids: Array, updates: Array) -> Array:
    """`x` with parts replaced, `y[ids[j..., 0], ids[j..., 1]..., ...] = updates[j..., ...]`, in row-major order.

    The last axis of `ids` holds vectors of indices. Where one occurs twice the last update stays; with `reduce` every
    one counts, integers wrap, and floats are rounded once at the end. Negative indices count from the end; an index
    out of range is an error.
    """
    return _scattered(call, x, _slices(call, ids), updates)
