"""Fills, indices, one-hot rows and triangles against plain Python and PyTorch."""

from fractions import Fraction
from math import inf, isfinite, isnan, nan
from typing import Any

import numpy as np
import pytest
import torch
from tests.ops.exact import each, f32, floats, i8, i32, nearest
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES, DType
from openinfer.errors import Code, GraphError
from openinfer.ops import OPS, Array, apply


def number(value: float, dtype: DType) -> Any:
    """A parameter in a dtype, rounded once."""
    if dtype.kind != "float" or not isfinite(value) or value == 0:
        return value
    return nearest(Fraction(value), dtype.name)


def filled(values: list[Any], question: Question) -> Array:
    kind = question.outputs[0]
    array = np.empty(len(values), object)
    array[:] = values
    array = array.reshape(kind.shape)
    return floats(array) if kind.dtype.kind == "float" else array


def fill(question: Question) -> Array:
    kind = question.outputs[0]
    return filled([number(question.params["value"], kind.dtype)] * kind.size, question)


def fill_nan_like(question: Question) -> Array:
    value = number(question.params["value"], question.outputs[0].dtype)
    return floats(each(lambda x: value if isnan(x) or x in (inf, -inf) else x, question.wide[0]))


def iota(question: Question) -> Array:
    kind = question.outputs[0]
    axis = question.params["axis"] % len(kind.shape)
    return filled([number(place[axis], kind.dtype) for place in np.ndindex(kind.shape)], question)


def one_hot(question: Question) -> Array:
    kind, (ids,) = question.outputs[0], question.wide
    axis = question.params["axis"] % len(kind.shape)
    on, off = (number(question.params[name], kind.dtype) for name in ("on", "off"))
    return filled(
        [on if int(ids[place[:axis] + place[axis + 1 :]]) == place[axis] else off for place in np.ndindex(kind.shape)],
        question,
    )


def tri(question: Question) -> Any:
    array, diagonal = question.wide[0], question.params["diagonal"]
    kept = np.empty(array.shape, array.dtype)
    for place in np.ndindex(array.shape):
        distance = place[-1] - place[-2]
        inside = distance >= diagonal if question.params["upper"] else distance <= diagonal
        kept[place] = array[place] if inside else 0
    return kept


JUDGES: dict[str, Judge] = {
    "fill": fill,
    "fill_nan_like": fill_nan_like,
    "iota": iota,
    "one_hot": one_hot,
    "tri": tri,
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_an_independent_implementation(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


def test_every_fill_has_a_judge() -> None:
    assert {record.name for record in OPS.values() if record.family == "Fill"} == set(JUDGES)


def test_fill_keeps_dtype_and_shape() -> None:
    assert apply("fill", np.array([True, False]), value=True).tolist() == [True, True]
    assert apply("fill", np.zeros(2, np.uint64), value=2**64 - 1).tolist() == [2**64 - 1] * 2
    assert apply("fill", i8([1, 2]), value=3.0).tolist() == [3, 3]
    assert apply("fill", np.zeros(1, np.float64), value=-(10**400)).tolist() == [-inf]


def test_bf16_values_are_rounded_once() -> None:
    # 1 + 2^-8 + 2^-40 is above the tie between 1 and 1 + 2^-7; rounding to f32 first would make it the tie.
    x = np.zeros(1, DTYPES["bf16"].array)
    assert apply("fill", x, value=1 + 2**-8 + 2**-40).astype(float).tolist() == [1 + 2**-7]


def test_fill_nan_like_leaves_finite_values() -> None:
    assert apply("fill_nan_like", f32([nan, inf, -inf, 2, -0.0]), value=7).tolist() == [7, 7, 7, 2, 0]


def test_iota_wraps_in_small_integers() -> None:
    assert apply("iota", np.zeros(4, np.int8), axis=0).tolist() == [0, 1, 2, 3]
    assert apply("iota", np.zeros(5, DTYPES["u2"].array), axis=-1).astype(int).tolist() == [0, 1, 2, 3, 0]
    assert apply("iota", np.zeros((2, 2), np.float32), axis=0).tolist() == [[0, 0], [1, 1]]


def test_one_hot_marks_nothing_out_of_range() -> None:
    assert apply("one_hot", i32([1, -1, 3]), depth=3).tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert apply("one_hot", i32([1, 0]), depth=2, axis=0, on=5, off=-5, to="i8").tolist() == [[-5, 5], [5, -5]]
    assert apply("one_hot", np.array([2**64 - 1], np.uint64), depth=2, to="bool").tolist() == [[False, False]]


def test_tri_is_tril_and_triu() -> None:
    x = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4)
    for diagonal in range(-4, 6):
        below, above = (function(torch.from_numpy(x), diagonal).numpy() for function in (torch.tril, torch.triu))
        np.testing.assert_array_equal(apply("tri", x, diagonal=diagonal), below)
        np.testing.assert_array_equal(apply("tri", x, diagonal=diagonal, upper=True), above)


X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("name", "operand", "params", "code", "message"),
    [
        ("fill", X, {}, Code.WRONG_OPERANDS, "'fill' needs the parameter 'value'"),
        ("fill", i8([1]), {"value": 200}, Code.BAD_PARAMETER, "'value' of 'fill' is 200, which is not i8"),
        ("fill_nan_like", i8([1]), {"value": 0}, Code.WRONG_DTYPE, "cannot be i8[1]"),
        ("iota", X, {"axis": 2}, Code.BAD_PARAMETER, "there is no axis 2"),
        ("iota", np.array([True]), {"axis": 0}, Code.WRONG_DTYPE, "cannot be bool[1]"),
        ("one_hot", i32([1]), {"depth": -1}, Code.BAD_PARAMETER, "'depth' is -1"),
        ("one_hot", i32([1]), {"depth": 2, "axis": 2}, Code.BAD_PARAMETER, "there is no axis 2"),
        ("one_hot", i32([1]), {"depth": 2, "to": "t1"}, Code.BAD_PARAMETER, "'off' of 'one_hot' is 0, which is not t1"),
        ("one_hot", i32([1]), {"depth": 2, "on": 0.5, "to": "i8"}, Code.BAD_PARAMETER, "is 0.5, which is not i8"),
        ("one_hot", X, {"depth": 2}, Code.WRONG_DTYPE, "the input 'ids' of 'one_hot' cannot be f32[2, 3]"),
        ("tri", f32([1, 2]), {}, Code.SHAPE_MISMATCH, "f32[2] has no last two axes"),
    ],
)
def test_refusals(name: str, operand: Array, params: dict[str, Any], code: Code, message: str) -> None:
    with pytest.raises(GraphError) as refused:
        apply(name, operand, **params)
    assert refused.value.code is code
    assert message in refused.value.diagnostics[0].message
