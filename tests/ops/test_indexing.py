"""Gather and scatter: reading judged by PyTorch on positions, writing by plain Python, one element after another."""

import os
from collections.abc import Callable, Iterator
from math import copysign
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import pytest
import torch
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES
from openinfer.errors import Code, OpenInferError
from openinfer.oinf import QuantParams, QuantScale
from openinfer.ops import OPS, Array, Call, ReferenceKernel, TensorType, apply, complete, infer

INDEX_DTYPES = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


def taken(function: Callable[[torch.Tensor, torch.Tensor, Any], torch.Tensor]) -> Judge:
    """The function takes positions at indices that are not negative; the values follow."""

    def judge(question: Question) -> Any:
        x, ids = question.wide
        extent = x.shape[question.params.get("axis", 0)]
        front = np.array([int(at) % extent for at in ids.reshape(-1)], np.int64).reshape(ids.shape)
        positions = torch.arange(x.size).reshape(x.shape)
        return x.reshape(-1)[np.asarray(function(positions, torch.from_numpy(front), question.params))]

    return judge


def gathered(x: torch.Tensor, ids: torch.Tensor, params: Any) -> torch.Tensor:
    axis = params["axis"] % x.ndim
    found = torch.index_select(x, axis, ids.reshape(-1))
    return found.reshape(x.shape[:axis] + ids.shape + x.shape[axis + 1 :])


def gather_nd_judge(question: Question) -> Any:
    x, ids = question.wide
    batch, depth = question.params["batch_dims"], ids.shape[-1]
    y = np.zeros(ids.shape[:-1] + x.shape[batch + depth :], x.dtype)
    for place in np.ndindex(ids.shape[:-1]):
        y[place] = x[place[:batch] + tuple(int(at) for at in ids[place])]
    return y


def smaller(one: Any, other: Any) -> Any:
    if one != one or other != other:  # noqa: PLR0124  (NaN)
        return float("nan")
    return min(one, other, key=lambda value: (value, copysign(1, value)))


COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda _old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": smaller,
    "max": lambda old, new: -smaller(-old, -new),
}


def written(places: Callable[[Array, Any], Iterator[tuple[tuple[int, ...], tuple[int, ...]]]]) -> Judge:
    """One update after another; integers are Python's own."""

    def judge(question: Question) -> Any:
        x, ids, updates = question.doubles
        combine = COMBINE[question.params["reduce"]]
        y = x.copy() if x.dtype.kind in "fb" else x.astype(object)
        for target, source in places(ids, question):
            new = updates[source] if x.dtype.kind in "fb" else int(updates[source])
            y[target] = combine(y[target], new)
        return y

    return judge


def elements(ids: Array, question: Question) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    axis = question.params["axis"] % ids.ndim
    for source in np.ndindex(ids.shape):
        yield (*source[:axis], int(ids[source]), *source[axis + 1 :]), source


def parts(ids: Array, question: Question) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    shape = question.outputs[0].shape
    for place in np.ndindex(ids.shape[:-1]):
        for rest in np.ndindex(shape[ids.shape[-1] :]):
            yield (*(int(at) for at in ids[place]), *rest), (*place, *rest)


JUDGES: dict[str, Judge] = {
    "gather": taken(gathered),
    "embedding": taken(lambda x, ids, _params: torch.nn.functional.embedding(ids, x)),
    "take_along": taken(lambda x, ids, params: torch.take_along_dim(x, ids, params["axis"])),
    "gather_nd": gather_nd_judge,
    "scatter": written(elements),
    "scatter_nd": written(parts),
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_an_independent_implementation(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


def test_indexing_exists_for_every_dtype() -> None:
    assert all(set(OPS[name].dtypes) == set(DTYPES.values()) for name in JUDGES)


# --- definitions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", INDEX_DTYPES)
def test_indices_have_any_integer_dtype(dtype: str) -> None:
    x, ids = np.arange(300.0), np.array([0, 2, 127], DTYPES[dtype].array)
    assert apply("gather", x, ids).tolist() == [0, 2, 127]
    assert apply("gather_nd", x, ids[:, None]).tolist() == [0, 2, 127]
    assert apply("take_along", x, ids, axis=0).tolist() == [0, 2, 127]
    assert apply("embedding", x[:, None], ids).tolist() == [[0], [2], [127]]
    assert apply("scatter", x, ids, x[:3] - 1, axis=0)[ids].tolist() == [-1, 0, 1]
    assert apply("scatter_nd", x, ids[:, None], x[:3] - 1)[ids].tolist() == [-1, 0, 1]


def test_the_last_of_several_updates_of_one_element_stays() -> None:
    count = 100_000  # far more than NumPy writes in one go
    ids = np.zeros(count, np.int64)
    updates = np.arange(count, dtype=np.float32)
    assert apply("scatter", np.zeros(2, np.float32), ids, updates, axis=0).tolist() == [count - 1, 0]
    assert apply("scatter_nd", np.zeros(2, np.float32), ids[:, None], updates).tolist() == [count - 1, 0]
    both = np.array([1, -1, 1])  # the same place in two spellings
    assert apply("scatter", np.zeros(2, np.int8), both, np.array([5, 6, 7], np.int8), axis=0).tolist() == [0, 7]


def test_updates_of_small_floats_are_rounded_once() -> None:
    x = np.array([256], DTYPES["bf16"].array)  # neighbours are 2 apart
    ones = np.ones(3, DTYPES["bf16"].array)
    got = apply("scatter", x, np.zeros(3, np.int64), ones, axis=0, reduce="add")
    assert got.astype(float).tolist() == [260]  # 259 rounded to even; one by one they would vanish


def test_sums_and_products_of_packed_integers_wrap_at_their_width() -> None:
    x = np.array([7, -8], DTYPES["i4"].array)
    ids, updates = np.array([0, 1]), np.array([1, 3], DTYPES["i4"].array)
    assert apply("scatter", x, ids, updates, axis=0, reduce="add").astype(int).tolist() == [-8, -5]
    assert apply("scatter", x, ids, updates, axis=0, reduce="mul").astype(int).tolist() == [7, -8]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_smaller_and_larger_tell_zeros_apart_and_keep_nan(dtype: Any) -> None:
    x = np.array([0.0, -0.0, 1, np.nan, -1, -np.inf], dtype)
    updates = np.array([-0.0, 0.0, np.nan, 2, -3, np.inf], dtype)
    for reduce, want in (
        ("min", [-0.0, -0.0, np.nan, np.nan, -3, -np.inf]),
        ("max", [0.0, 0.0, np.nan, np.nan, -1, np.inf]),
    ):
        got = apply("scatter", x, np.arange(6), updates, axis=0, reduce=reduce)
        np.testing.assert_array_equal(got, want)
        assert np.signbit(got[:2]).tolist() == np.signbit(want[:2]).tolist()


def test_replacing_keeps_every_bit() -> None:
    x = np.array([0.0, -0.0, np.inf, 5], np.float32)
    updates = np.array([-0.0, 1e-45], np.float32)
    got = apply("scatter_nd", x, np.array([[0], [-1]]), updates)
    assert got.tobytes() == np.array([-0.0, -0.0, np.inf, 1e-45], np.float32).tobytes()


def test_the_operand_of_a_scatter_does_not_change() -> None:
    x = np.zeros(3)
    apply("scatter", x, np.array([1]), np.ones(1), axis=0)
    apply("scatter_nd", x, np.array([[1]]), np.ones(1), reduce="add")
    assert x.tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["gather", "embedding"])
def test_a_quantized_table_gives_its_real_numbers(name: str) -> None:
    table = np.array([[1, -2], [3, 4]], np.int8)
    quant = QuantParams("symmetric", QuantScale.per_channel(0, [0.5, 2.0]))
    kinds = (TensorType(DTYPES["i8"], (2, 2), quant), TensorType(DTYPES["i64"], (2,)))
    for wanted, values in (("f32", [[6, 8], [0.5, -1]]), ("f16", [[6, 8], [0.5, -1]]), ("i8", [[3, 4], [1, -2]])):
        record = OPS[name]
        given = Call(kinds, complete(record, {}), (TensorType(DTYPES[wanted], (2, 2)),))
        call = infer(record, given)
        (got,) = ReferenceKernel(record, call, [DTYPES["i8"], DTYPES["i64"]])([table, np.array([1, 0])])
        assert got.dtype == DTYPES[wanted].array
        assert got.astype(float).tolist() == values


# --- refusals ---------------------------------------------------------------------------------------------------------


def refused(name: str, *arrays: Any, **params: Any) -> tuple[Code, str]:
    with pytest.raises(OpenInferError) as raised:
        apply(name, *arrays, **params)
    return raised.value.code, raised.value.message


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.array([0, 5], np.int8), "the index 5 at [1] is outside an axis of extent 5"),
        (np.array([[0], [-6]]), "the index -6 at [1, 0] is outside an axis of extent 5"),
        (np.array(2**64 - 1, np.uint64), "the index 18446744073709551615 is outside an axis of extent 5"),
        (np.array([-(2**63)]), "the index -9223372036854775808 at [0] is outside an axis of extent 5"),
    ],
)
def test_an_index_out_of_range_is_an_error(ids: Array, message: str) -> None:
    x, updates = np.zeros(5), np.zeros(ids.shape)
    assert refused("gather", x, ids) == (Code.BAD_VALUE, message)
    assert refused("embedding", x[:, None], ids) == (Code.BAD_VALUE, message)
    assert refused("gather_nd", x, ids[..., None]) == (Code.BAD_VALUE, message)
    assert refused("scatter_nd", x, ids[..., None], updates) == (Code.BAD_VALUE, message)
    if ids.ndim == 1:
        assert refused("take_along", x, ids, axis=0) == (Code.BAD_VALUE, message)
        assert refused("scatter", x, ids, updates, axis=0) == (Code.BAD_VALUE, message)


def test_an_empty_axis_has_no_index() -> None:
    assert refused("gather", np.zeros((0, 3)), np.zeros(1, np.int64))[0] is Code.BAD_VALUE
    assert refused("gather_nd", np.zeros((0, 3)), np.zeros((1, 1), np.int64))[0] is Code.BAD_VALUE
    assert refused("take_along", np.zeros(0), np.zeros(1, np.int64), axis=0)[0] is Code.BAD_VALUE
    assert refused("scatter_nd", np.zeros(0), np.zeros((1, 1), np.int64), np.zeros(1))[0] is Code.BAD_VALUE


def ids(*shape: int) -> Array:
    return np.zeros(shape, np.int64)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


SHAPE, PARAMETER = Code.SHAPE_MISMATCH, Code.BAD_PARAMETER


@pytest.mark.parametrize(
    ("name", "arrays", "params", "code", "message"),
    [
        ("gather", (zeros(3), ids(2)), {"axis": 1}, PARAMETER, "there is no axis 1"),
        ("gather", (zeros(), ids(2)), {}, PARAMETER, "there is no axis 0"),
        ("gather", (zeros(3), zeros(2)), {}, Code.WRONG_DTYPE, "the input 'ids' of 'gather' cannot be f32[2]"),
        ("embedding", (zeros(3), ids(2)), {}, SHAPE, "the table is [entries, features], not f32[3]"),
        ("take_along", (zeros(3, 4), ids(2)), {"axis": 0}, SHAPE, "i64[2] does not broadcast with f32[3, 4]"),
        ("take_along", (zeros(3, 4), ids(2, 3)), {"axis": 0}, SHAPE, "along the axes other than 0"),
        ("gather_nd", (zeros(3, 4), ids(2, 3)), {}, SHAPE, "the last axis of i64[2, 3] should hold 1 to 2 indices"),
        ("gather_nd", (zeros(3, 4), ids(2, 0)), {}, SHAPE, "should hold 1 to 2 indices into f32[3, 4]"),
        ("gather_nd", (zeros(3, 4), ids()), {}, SHAPE, "the last axis of i64 should hold"),
        ("gather_nd", (zeros(), ids(1)), {}, SHAPE, "a scalar f32 has no axes"),
        ("gather_nd", (zeros(3, 4), ids(3, 1)), {"batch_dims": 2}, PARAMETER, "do not have 2 axes in common"),
        ("gather_nd", (zeros(3, 4), ids(3, 1)), {"batch_dims": -1}, PARAMETER, "do not have -1 axes in common"),
        (
            "gather_nd",
            (zeros(3, 4), ids(2, 1)),
            {"batch_dims": 1},
            SHAPE,
            "the first 1 axes of f32[3, 4] and i64[2, 1]",
        ),
        ("scatter", (zeros(3), ids(2), zeros(1)), {"axis": 0}, SHAPE, "f32[1] does not have the shape of the indices"),
        ("scatter", (zeros(3, 4), ids(2), zeros(2)), {"axis": 0}, SHAPE, "i64[2] does not have as many axes"),
        ("scatter", (zeros(3, 1), ids(3, 2), zeros(3, 2)), {"axis": 0}, SHAPE, "i64[3, 2] is larger than f32[3, 1]"),
        ("scatter", (zeros(3), ids(2), zeros(2)), {"axis": 0, "reduce": "avg"}, PARAMETER, "'reduce' of 'scatter'"),
        ("scatter_nd", (zeros(3), ids(2, 2), zeros(2)), {}, SHAPE, "the last axis of i64[2, 2] should hold 1 to 1"),
        ("scatter_nd", (zeros(3, 4), ids(2, 1), zeros(2)), {}, SHAPE, "the updates are f32[2], but the indices"),
    ],
)
def test_refuses(name: str, arrays: tuple[Array, ...], params: dict[str, Any], code: Code, message: str) -> None:
    found = refused(name, *arrays, **params)
    assert found[0] is code
    assert message in found[1]


@pytest.mark.parametrize(("dtype", "reduce"), [("t1", "add"), ("t2", "add"), ("bool", "mul"), ("bool", "max")])
def test_refuses_to_combine_what_would_leave_the_dtype(dtype: str, reduce: str) -> None:
    x = np.ones(2, DTYPES[dtype].array)
    for name, given, params in (("scatter", ids(2), {"axis": 0}), ("scatter_nd", ids(2, 1), {})):
        found = refused(name, x, given, x, dtypes=[dtype, "i64", dtype], reduce=reduce, **params)
        assert found == (PARAMETER, f"{dtype}[2] has no reduce={reduce!r}")
