"""Where the extremes of a tensor are, and its elements in order.

Elements are ordered with NaN as the largest value, equal to NaN; -0 equals +0, and among equals the lower index comes
first. A search for an extreme finds a NaN before anything else, as max_axis and min_axis do.
"""

from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import counted
from openinfer.ops.cases import anything, case, extremes, grid, random
from openinfer.ops.record import EXACT, REQUIRED, Call, Case, Param, op
from openinfer.ops.shapes import axis_of, per_input
from openinfer.ops.types import ALL, Shape, parameter_error, shape_error

FAMILY = "Reduce"
INDEX = "x: T -> i64"
PAIR = "x: T -> values: T, indices: i64"
ONE_AXIS = Param("axis", "int", None, "The axis to search; absent: all elements, counted in row-major order.")
KEEP = Param("keepdims", "bool", default=False, doc="Keep the reduced axes with extent 1.")
FIRST = Param("select_first", "bool", default=True, doc="The first of equal elements, or else the last.")
LAST_AXIS = Param("axis", "int", -1, "The axis to order along.")
LARGEST = Param("largest", "bool", default=True, doc="The largest elements, or else the smallest.")
HOW_MANY = Param("k", "int", REQUIRED, "How many elements to find.")
DESCENDING = Param("descending", "bool", default=False, doc="The largest first.")


# --- where the extremes are -------------------------------------------------------------------------------------------


def _found(call: Call) -> tuple[Shape, ...]:
    shape, axis, keep = call.shape(0), call.params["axis"], call.params["keepdims"]
    searched = range(len(shape)) if axis is None else (axis_of(axis, len(shape)),)
    if prod(shape[one] for one in searched) == 0:
        raise shape_error(f"there is no extreme among the zero elements of {call.input(0)} along this axis", 0)
    return (tuple(1 if one in searched else extent for one, extent in enumerate(shape) if keep or one not in searched),)


def _search_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for first in (True, False):
        for shape, axis in (((1,), 0), ((17,), -1), ((3, 5), 0), ((2, 3, 4), -2), ((0, 3), 1)):
            yield case(dtype, random(rng, dtype, shape, -2, 2), axis=axis, select_first=first)
        for every in ((), (3, 5)):
            yield case(dtype, random(rng, dtype, every, -2, 2), select_first=first)
    yield case(dtype, random(rng, dtype, (2, 3, 4)), axis=1, keepdims=True)
    yield case(dtype, random(rng, dtype, (2, 3, 4)), keepdims=True)
    yield case(dtype, anything(rng, dtype, (4, 9)), axis=1)
    for first in (True, False):
        yield case(dtype, np.stack(grid(dtype, 2)), axis=0, select_first=first)


def _searched(call: Call, x: Array, search: Callable[..., Array]) -> Array:
    shape = call.outputs[0].shape
    rows = x.reshape(1, -1) if call.params["axis"] is None else np.moveaxis(x, call.params["axis"], -1)
    if call.params["select_first"]:
        return search(rows, axis=-1).reshape(shape)
    return (rows.shape[-1] - 1 - search(rows[..., ::-1], axis=-1)).reshape(shape)


@op(FAMILY, INDEX, ONE_AXIS, FIRST, KEEP, shape=_found, cost=per_input(1), tolerance=EXACT, cases=_search_cases, T=ALL)
def argmax_axis(call: Call, x: Array) -> Array:
    """The index of the largest element along an axis, of a NaN if there is one.

    Of equal elements the first counts, or the last with `select_first=false`.
    """
    return _searched(call, x, np.argmax)


@op(FAMILY, INDEX, ONE_AXIS, FIRST, KEEP, shape=_found, cost=per_input(1), tolerance=EXACT, cases=_search_cases, T=ALL)
def argmin_axis(call: Call, x: Array) -> Array:
    """The index of the smallest element along an axis, of a NaN if there is one.

    Of equal elements the first counts, or the last with `select_first=false`.
    """
    return _searched(call, x, np.argmin)


# --- in order ---------------------------------------------------------------------------------------------------------


def _ordered(x: Array, count: int, axis: int, *, descending: bool) -> tuple[Array, Array]:
    """The first elements in order along an axis, and where they were."""
    rows = np.moveaxis(x, axis, -1)
    if descending:
        # Backwards twice: equal elements keep their order.
        order = (rows.shape[-1] - 1 - np.argsort(rows[..., ::-1], axis=-1, kind="stable"))[..., ::-1]
    else:
        order = np.argsort(rows, axis=-1, kind="stable")
    picked = order[..., :count]
    values = np.take_along_axis(rows, picked, axis=-1)
    return np.moveaxis(values, -1, axis), np.moveaxis(picked, -1, axis)


def _top_shape(call: Call) -> tuple[Shape, ...]:
    shape, k = call.shape(0), call.params["k"]
    axis = axis_of(call.params["axis"], len(shape))
    if not 0 <= k <= shape[axis]:
        raise parameter_error(
            "k", f"'k' is {k}, but axis {axis} of {call.input(0)} has {counted(shape[axis], 'element')}"
        )
    found = (*shape[:axis], k, *shape[axis + 1 :])
    return found, found


def _top_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, axis, k in (
        ((1,), 0, 1),
        ((17,), -1, 5),
        ((3, 5), 0, 3),
        ((2, 7, 4), 1, 2),
        ((2, 3), 1, 0),
        ((0, 3), 1, 2),
        ((2, 0), 1, 0),
    ):
        for largest in (True, False):
            yield case(dtype, random(rng, dtype, shape, -3, 3), k=k, axis=axis, largest=largest)
    yield case(dtype, anything(rng, dtype, (4, 9)), k=3)
    for largest in (True, False):
        yield case(dtype, np.stack(grid(dtype, 2)), k=2, axis=0, largest=largest)


@op(
    FAMILY,
    PAIR,
    HOW_MANY,
    LAST_AXIS,
    LARGEST,
    shape=_top_shape,
    cost=per_input(4),
    tolerance=EXACT,
    cases=_top_cases,
    T=ALL,
)
def topk(call: Call, x: Array) -> tuple[Array, Array]:
    """The `k` largest elements along an axis, the largest first, and their indices; `largest=false`: the smallest.

    Of equal elements the lower index comes first. NaN counts as larger than everything.
    """
    params = call.params
    return _ordered(x, params["k"], params["axis"], descending=params["largest"])


def _sort_shape(call: Call) -> tuple[Shape, ...]:
    axis_of(call.params["axis"], len(call.shape(0)))
    return call.shape(0), call.shape(0)


def _sort_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for descending in (False, True):
        for shape, axis in (((1,), 0), ((33,), -1), ((3, 5), 0), ((2, 3, 4), -2), ((0, 3), 1), ((2, 0), 1)):
            yield case(dtype, random(rng, dtype, shape, -3, 3), axis=axis, descending=descending)
        yield case(dtype, anything(rng, dtype, (4, 9)), descending=descending)
        yield case(dtype, np.concatenate([extremes(dtype), extremes(dtype)]), descending=descending)


@op(
    FAMILY,
    PAIR,
    LAST_AXIS,
    DESCENDING,
    shape=_sort_shape,
    cost=per_input(8),
    tolerance=EXACT,
    cases=_sort_cases,
    T=ALL,
)
def sort(call: Call, x: Array) -> tuple[Array, Array]:
    """The elements along an axis in ascending or descending order, and their indices, `values[i] = x[indices[i]]`.

    Equal elements keep their order either way. NaN counts as larger than everything.
    """
    params = call.params
    return _ordered(x, call.shape(0)[params["axis"]], params["axis"], descending=params["descending"])
