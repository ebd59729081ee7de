"""What goes in and what comes out: conversions of inputs; copies, views and packed tensors; quantized weights."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.sim.language.conftest import MakeModel
from tests.sim.language.coverage import sentence
from tests.sim.language.running import after_step, executor, floats, step

from openinfer import DTYPES, Tensor
from openinfer.errors import Code, ExecutionError, OpenInferError
from openinfer.oinf import QuantParams, QuantScale, QuantZeroPoint, TensorSpec

ONE = "dynamic {{ x: {0}; }} block entry {{ return x; }}"
EXTREMES = {name: [int(dtype.minimum), int(dtype.maximum)] for name, dtype in DTYPES.items() if dtype.kind != "float"}


def fetched(dtype: str, value: Any) -> Any:
    """A value as it comes back from an input of this type."""
    return after_step(ONE.format(dtype), x=value).fetch("x")


def refusal(dtype: str, value: Any) -> OpenInferError:
    """The error that inserting a value gives."""
    ready = executor(ONE.format(dtype))
    with pytest.raises(ExecutionError) as caught:
        ready.insert(x=value)
    return caught.value


# --- insert: plain data -----------------------------------------------------------------------------------------------


@sentence("insert.plain")
@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("f32[3]", [1, 2.5, -3], [1.0, 2.5, -3.0]),
        ("f32[3]", (1, 2, 3), [1.0, 2.0, 3.0]),
        ("f16[2]", [0.1, 1e-8], [float(np.float16(0.1)), 0.0]),
        ("f32", 0.1, float(np.float32(0.1))),
        ("f32", 7, 7.0),
        ("i8[2]", [-128, 127], [-128, 127]),
        ("i32", 5, 5),
        ("i32", 5.0, 5),
        ("u64", 2**64 - 1, 2**64 - 1),
        ("bool[2]", [True, False], [True, False]),
        ("bool", True, True),
        ("t1[2]", [-1, 1], [-1, 1]),
        ("f32[0]", [], []),
        ("f32[2, 1]", [[1], [2]], [[1.0], [2.0]]),
    ],
)
def test_lists_and_scalars_convert(dtype: str, value: Any, expected: Any) -> None:
    assert fetched(dtype, value).tolist() == expected


@sentence("insert.plain")
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("i8", 128),
        ("i8[2]", [0, -129]),
        ("u8", -1),
        ("u1", 2),
        ("i4", 8),
        ("t1", 0),
        ("t2", 2),
        ("bool", 2),
        ("i32", 1.5),
        ("u64", 2**64),
        ("i32", float("nan")),
    ],
)
def test_plain_values_out_of_range_are_errors(dtype: str, value: Any) -> None:
    assert refusal(dtype, value).code in (Code.VALUE_OUT_OF_RANGE, Code.UNSUPPORTED_ARRAY)


@sentence("insert.plain")
@pytest.mark.parametrize("value", ["text", None, [[1], [2, 3]], {"a": 1}, object(), [None], 1j])
def test_what_is_no_number_is_an_error_of_ours(value: Any) -> None:
    assert refusal("f32", value).code.startswith("E3")


# --- insert: arrays ---------------------------------------------------------------------------------------------------


@sentence("insert.arrays")
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("f32[2]", np.array([1.5, -2.0], np.float64)),
        ("f32[2]", np.array([1, 2], np.int64)),
        ("f32[2]", np.array([1, 2], np.float16)),
        ("f16[2]", np.array([0.5, np.inf], np.float32)),
        ("bf16[2]", np.array([1.0, 2.0], np.float32)),
        ("f8[2]", np.array([1.0, 1.25], np.float64)),
        ("i8[2]", np.array([1, -128], np.int64)),
        ("i8[2]", np.array([1.0, 2.0], np.float32)),
        ("u4[2]", np.array([0, 15], np.uint8)),
        ("i32[2]", np.array([True, False])),
        ("f64[2]", np.array([1.0, np.nan], np.float32)),
        ("f32[2]", np.array([1.0, 2.0], ">f4")),
        ("f32[2]", np.array([1.0, 7.0, 2.0], np.float32)[::2]),
    ],
)
def test_arrays_convert_when_no_value_changes(dtype: str, value: Any) -> None:
    found = fetched(dtype, value)
    np.testing.assert_array_equal(found.astype(np.float64), value.astype(np.float64))
    assert found.dtype == DTYPES[dtype.partition("[")[0]].array


@sentence("insert.astype")
@pytest.mark.parametrize(
    ("dtype", "value", "spelling"),
    [
        ("f32[1]", np.array([0.1], np.float64), "x.astype(np.float32)"),
        ("f32[1]", np.array([2**24 + 1], np.int64), "x.astype(np.float32)"),
        ("f32[1]", np.array([1e300], np.float64), "x.astype(np.float32)"),
        ("f16[1]", np.array([0.1], np.float32), "x.astype(np.float16)"),
        ("bf16[1]", np.array([1.01], np.float32), "x.astype(ml_dtypes.bfloat16)"),
        ("f8[1]", np.array([1.1], np.float32), "x.astype(ml_dtypes.float8_e5m2)"),
        ("f64[1]", np.array([2**53 + 1], np.int64), "x.astype(np.float64)"),
    ],
)
def test_an_array_that_would_change_is_an_error_that_names_the_conversion(
    dtype: str, value: Any, spelling: str
) -> None:
    error = refusal(dtype, value)
    assert error.code is Code.VALUE_OUT_OF_RANGE
    assert spelling in str(error.diagnostics[0].help)


@sentence("insert.astype")
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("i8[1]", np.array([128], np.int64)),
        ("i32[1]", np.array([1.5], np.float32)),
        ("u8[1]", np.array([-1], np.int8)),
        ("bool[1]", np.array([2], np.uint8)),
        ("t1[1]", np.array([0], np.int8)),
        ("i4[1]", np.array([9], np.int8)),
    ],
)
def test_integer_inputs_refuse_values_they_do_not_have(dtype: str, value: Any) -> None:
    assert refusal(dtype, value).code is Code.VALUE_OUT_OF_RANGE


@sentence("insert.arrays")
def test_scalars_of_numpy_are_arrays_and_tensors_are_taken_as_they_are() -> None:
    assert fetched("f32", np.float64(0.5)) == 0.5
    assert refusal("f32", np.float64(0.1)).code is Code.VALUE_OUT_OF_RANGE
    assert fetched("i4[3]", Tensor.from_numpy([-8, 0, 7], "i4")).astype(int).tolist() == [-8, 0, 7]
    assert fetched("f32[2]", Tensor.from_numpy([1, 2], "i4")).tolist() == [1.0, 2.0]


@sentence("insert.shape")
@pytest.mark.parametrize("value", [[1.0], [1.0, 2.0, 3.0], 1.0, [[1.0, 2.0]]])
def test_an_input_of_another_shape_is_an_error(value: Any) -> None:
    error = refusal("f32[2]", value)
    assert error.code is Code.SHAPE_MISMATCH
    assert "f32[2]" in error.diagnostics[0].message


@sentence("insert.shape")
def test_several_inputs_are_all_accepted_or_none() -> None:
    ready = executor("dynamic { a: i32; b: i32; } block entry { return; }")
    ready.insert(a=1, b=2)
    with pytest.raises(ExecutionError):
        ready.insert(a=5, b=2**40)
    ready.run_step()
    assert (ready.fetch("a"), ready.fetch("b")) == (1, 2)


@sentence("insert.shape")
@pytest.mark.parametrize("inputs", [[1], {1: 2}, {"y": 1}, {"": 1}])
def test_inputs_are_given_by_the_names_of_dynamic_variables(inputs: Any) -> None:
    with pytest.raises(ExecutionError) as caught:
        executor(ONE.format("i32")).insert(inputs)
    assert caught.value.code is Code.UNKNOWN_VARIABLE


@sentence("insert.copy")
def test_changing_the_callers_array_after_the_insert_changes_nothing() -> None:
    ready = executor("dynamic { x: f32[2]; y: f32[2]; } block entry { return; }")
    mine = floats(1, 2)
    plain = [3.0, 4.0]
    ready.insert(x=mine, y=plain)
    mine[:] = 9.0
    plain[0] = 9.0
    assert ready.fetch("x").tolist() == [1.0, 2.0]
    ready.run_step()
    mine[:] = 8.0
    assert ready.fetch("x").tolist() == [1.0, 2.0]
    assert ready.fetch("y").tolist() == [3.0, 4.0]


@sentence("insert.copy")
def test_changing_a_tensors_storage_after_the_insert_changes_nothing() -> None:
    ready = executor(ONE.format("i4[2]"))
    tensor = Tensor.from_numpy([1, 2], "i4")
    ready.insert(x=tensor)
    tensor.storage[:] = 0
    assert ready.fetch("x").astype(int).tolist() == [1, 2]


# --- fetch ------------------------------------------------------------------------------------------------------------


@sentence("fetch.dtypes")
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_dtype_goes_in_and_comes_out(dtype: str) -> None:
    value = EXTREMES.get(dtype, [-1.5, 2.0])
    ready = after_step(ONE.format(f"{dtype}[2]"), x=value)
    found = np.asarray(ready.fetch("x", dtype))
    assert found.dtype == DTYPES[dtype].array
    assert [found[0].item(), found[1].item()] == value
    assert ready.fetch_tensor("x").dtype is DTYPES[dtype]


@sentence("fetch.dtypes")
def test_small_floats_and_packed_integers_have_their_own_array_types() -> None:
    expected = {
        "bf16": ml_dtypes.bfloat16,
        "f8": ml_dtypes.float8_e5m2,
        "i4": ml_dtypes.int4,
        "u4": ml_dtypes.uint4,
        "i2": ml_dtypes.int2,
        "u2": ml_dtypes.uint2,
        "i1": np.int8,
        "u1": np.uint8,
        "t1": np.int8,
        "t2": np.int8,
    }
    for dtype, array in expected.items():
        assert fetched(f"{dtype}[2]", [-1, 1] if dtype == "t1" else [0, 0]).dtype == np.dtype(array)


@sentence("fetch.tensor")
@pytest.mark.parametrize(
    ("dtype", "value", "nbytes"), [("i4", [-8, 7, 1], 2), ("u1", [1, 0, 1, 1, 0, 0, 0, 0, 1], 2), ("t2", [1, 0, -1], 1)]
)
def test_a_fetched_tensor_is_packed_where_its_dtype_is(dtype: str, value: list[int], nbytes: int) -> None:
    ready = after_step(ONE.format(f"{dtype}[{len(value)}]"), x=value)
    tensor = ready.fetch_tensor("x")
    assert tensor.nbytes == tensor.storage.nbytes == nbytes
    assert tensor.to_numpy().astype(int).tolist() == value


@sentence("fetch.checked")
def test_a_dtype_beside_the_name_is_checked() -> None:
    ready = after_step(ONE.format("f32[1]"), x=[1.0])
    assert ready.fetch("x", "f32").tolist() == [1.0]
    with pytest.raises(ExecutionError) as caught:
        ready.fetch("x", "f16")
    assert caught.value.code is Code.WRONG_DTYPE


@sentence("fetch.several")
def test_several_names_give_a_tuple() -> None:
    ready = after_step("dynamic { a: i32; b: f32; } block entry { return; }", a=1, b=2.0)
    found = ready.fetch("a", "b")
    assert isinstance(found, tuple)
    assert [part.item() for part in found] == [1, 2.0]


@sentence("fetch.several")
@pytest.mark.parametrize("name", [3, ["x"], None, "f33"])
def test_what_is_no_name_of_a_variable_is_an_error(name: Any) -> None:
    ready = after_step(ONE.format("i32"), x=1)
    for fetch in (ready.fetch, ready.fetch_view, ready.fetch_tensor):
        with pytest.raises(ExecutionError) as caught:
            fetch(name)
        assert caught.value.code is Code.UNKNOWN_VARIABLE


@sentence("fetch.several")
def test_an_unknown_name_is_an_error_that_names_the_nearest() -> None:
    ready = executor("volatile { total: f32; } block entry { return; }")
    with pytest.raises(ExecutionError) as caught:
        ready.fetch("totl")
    assert caught.value.code is Code.UNKNOWN_VARIABLE
    assert "total" in str(caught.value.diagnostics[0].help)


KINDS = """dynamic { d: i32[2]; } volatile { v: i32[2] @init(2); } constant { c: i32[2] @init(3); }
    persistent { p: i32[2] @init(4); s: i32; K(i): i32[2] @table; M(r, q): i32[1, 2] @auto_dim(r, q); }
    block entry { assign t: i32[2]; op add(d, v) >> t; cache.write t >> K[1]; cache.read p[1] >> s;
        u = op neg(t); return; }"""


@sentence("fetch.every")
def test_every_variable_can_be_fetched() -> None:
    ready = after_step(KINDS, d=[1, 1])
    expected = {
        "d": [1, 1],
        "v": [2, 2],
        "c": [3, 3],
        "p": [4, 4],
        "s": 4,
        "t": [3, 3],
        "u": [-3, -3],
        "K": [[0, 0], [3, 3]],
        "M": [[0, 0]],
    }
    for name, value in expected.items():
        assert ready.fetch(name).tolist() == value
        assert ready.fetch_view(name).tolist() == value
        assert ready.fetch_tensor(name).to_numpy().tolist() == value


@sentence("fetch.every")
def test_variables_can_be_fetched_at_any_time_of_a_step() -> None:
    ready = executor(
        "dynamic { x: i32; } persistent { p: i32; } block entry { op add(x, x) >> p; op neg(p) >> p; return; }"
    )
    ready.insert(x=3)
    assert ready.fetch("p") == 0
    seen = [int(node.fetch("p")) for node in ready.iterate()]
    assert seen == [6, -6, -6]


@sentence("fetch.every")
def test_a_family_of_model_tensors_is_no_single_value(make_model: MakeModel) -> None:
    text = 'volatile { W(l): f32[1] @pattern("W.{l}"); } block entry { return; }'
    with pytest.raises(ExecutionError) as caught:
        executor(text, make_model({"W.0": floats(1)})).fetch("W")
    assert caught.value.code is Code.BAD_INDEXING


@sentence("fetch.copy")
@pytest.mark.parametrize("name", ["d", "v", "c", "p", "s", "t", "K", "M"])
def test_a_fetched_array_is_a_copy(name: str) -> None:
    ready = after_step(KINDS, d=[1, 1])
    before = ready.fetch(name).tolist()
    mine = ready.fetch(name)
    mine[...] = 99
    assert ready.fetch(name).tolist() == before
    tensor = ready.fetch_tensor(name)
    tensor.storage[:] = 77
    assert ready.fetch(name).tolist() == before
    step(ready, d=[1, 1])
    assert ready.fetch(name).tolist() == before


@sentence("fetch.view")
@pytest.mark.parametrize("name", ["d", "v", "c", "p", "s", "t", "K", "M"])
def test_a_view_is_read_only(name: str) -> None:
    view = after_step(KINDS, d=[1, 1]).fetch_view(name)
    with pytest.raises(ValueError, match="read-only"):
        view[...] = 1


@sentence("fetch.view")
def test_a_view_of_an_earlier_step_keeps_its_values() -> None:
    ready = after_step(ONE.format("i32[2]"), x=[1, 2])
    view = ready.fetch_view("x")
    step(ready, x=[3, 4])
    assert view.tolist() == [1, 2]


# --- quantized weights ------------------------------------------------------------------------------------------------

PER_TENSOR = QuantParams("symmetric", QuantScale.per_tensor(0.5))
PER_ROW = QuantParams("asymmetric", QuantScale.per_channel(0, [0.5, 2.0]), QuantZeroPoint.per_channel(0, [1, -1]))


@sentence("quantized.operand")
@pytest.mark.parametrize(
    ("quant", "expected"), [(PER_TENSOR, [[1.0, -2.0], [3.0, 3.5]]), (PER_ROW, [[0.5, -2.5], [14.0, 16.0]])]
)
def test_a_quantized_tensor_behaves_as_its_real_numbers_where_floats_are_expected(
    make_model: MakeModel, quant: QuantParams, expected: list[list[float]]
) -> None:
    text = """dynamic { x: f32[2, 2]; ids: i32[1]; } constant { w: i4[2, 2]; }
        volatile { y: f32[2, 2]; row: f32[1, 2]; }
        block entry { op matmul(x, w) >> y; op embedding(w, ids) >> row; return; }"""
    model = make_model({"w": TensorSpec([[2, -4], [6, 7]], "i4", quant=quant)})
    ready = after_step(text, model, x=np.eye(2, dtype=np.float32), ids=[1])
    assert ready.fetch("y").tolist() == expected
    assert ready.fetch("row").tolist() == [expected[1]]
    assert ready.fetch("w").astype(int).tolist() == [[2, -4], [6, 7]]


@sentence("quantized.operand")
def test_entries_of_a_prefix_table_have_quantizations_of_their_own(make_model: MakeModel) -> None:
    text = """dynamic { x: f32[1, 1]; n: i32; } volatile { y: f32[1, 1]; }
        constant { W(l): i8[1, 1] @pattern("W.{l}"); }
        block entry { op matmul(x, W[n]) >> y; return y; }"""
    tensors = {
        f"W.{layer}": TensorSpec([[4]], "i8", quant=QuantParams("symmetric", QuantScale.per_tensor(scale)))
        for layer, scale in enumerate((0.5, 10.0))
    }
    ready = executor(text, make_model(tensors))
    assert step(ready, x=[[3.0]], n=0).fetch("y").tolist() == [[6.0]]
    assert step(ready, x=[[3.0]], n=1).fetch("y").tolist() == [[120.0]]


@sentence("quantized.operand")
def test_integer_operands_on_both_sides_give_the_integer_path(make_model: MakeModel) -> None:
    text = """dynamic { x: i8[1, 2]; } constant { w: i8[2, 1]; } volatile { y: i32[1, 1]; }
        block entry { op matmul(x, w, acc=i32) >> y; return y; }"""
    model = make_model({"w": TensorSpec([[100], [100]], "i8", quant=PER_TENSOR)})
    assert after_step(text, model, x=[[100, 100]]).fetch("y").tolist() == [[20000]]
