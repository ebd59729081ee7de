"""Matrix products against PyTorch in double, NumPy in f80, and Python's integers."""

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import pytest
import torch
from tests.ops.harness import Judge, Question, every_dtype, judge_op, wrapped

from openinfer.dtypes import DTYPES
from openinfer.errors import Code, GraphError
from openinfer.oinf.quant import QuantParams, QuantScale, QuantZeroPoint
from openinfer.ops import OPS, Array, Call, OpError, ReferenceKernel, TensorType, apply, complete, infer


def exact_operands(question: Question) -> list[Array | None]:
    """Integers as Python's own, floats in the next wider type."""
    return [
        None if array is None else array.astype(object) if array.dtype.kind != "f" else array
        for array in question.doubles
    ]


def in_accumulator(question: Question, total: Array) -> Array:
    acc = question.params["acc"]
    if acc is None or acc[0].kind == "float":
        return total
    return wrapped(np.asarray(total, dtype=object), acc[0]).astype(object)


def naive_einsum(equation: str, *operands: Array) -> Array:
    """NumPy's own loops, which know neither BLAS nor the order of the reference."""
    return np.asarray(np.einsum(equation, *operands, optimize=False))


def matmul_judge(question: Question) -> Array:
    a, b = exact_operands(question)
    assert a is not None
    assert b is not None
    a = np.moveaxis(a, -1, -2) if question.params["transpose_a"] else a
    b = np.moveaxis(b, -1, -2) if question.params["transpose_b"] else b
    if a.dtype == np.float64:
        return np.asarray(torch.matmul(torch.tensor(a), torch.tensor(b)).numpy())
    return in_accumulator(question, np.asarray(np.matmul(a, b)))


def linear_judge(question: Question) -> Array:
    x, w, *rest = exact_operands(question)
    assert x is not None
    assert w is not None
    total = np.asarray(np.tensordot(x, w, axes=([x.ndim - 1], [1])))
    if rest and rest[0] is not None:
        total = total + rest[0]
    return in_accumulator(question, total)


def einsum_judge(question: Question) -> Array:
    operands = [array for array in exact_operands(question) if array is not None]
    return in_accumulator(question, naive_einsum(question.params["equation"], *operands))


def outer_judge(question: Question) -> Array:
    a, b = (array if array.dtype.kind == "f" else array.astype(object) for array in question.wide)
    flat = np.array([x * y for x in a.reshape(-1) for y in b.reshape(-1)], dtype=a.dtype)
    return flat.reshape(a.shape + b.shape)


JUDGES: dict[str, Judge] = {
    "matmul": matmul_judge,
    "linear": linear_judge,
    "outer": outer_judge,
    "einsum": einsum_judge,
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_an_independent_implementation(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


# --- definitions by hand ----------------------------------------------------------------------------------------------


def test_integers_wrap_at_their_own_width_without_an_accumulator() -> None:
    a = np.array([[7, 7]], DTYPES["i4"].array)
    b = np.array([[7], [1]], DTYPES["i4"].array)
    assert apply("matmul", a, b).astype(int).tolist() == [[-8]]
    assert apply("matmul", a, b, acc="i32").tolist() == [[56]]


def test_the_accumulator_wraps_before_the_output_does() -> None:
    a, b = np.array([100], np.int8), np.array([2], np.int8)
    wide = apply("matmul", a, b, acc=["i8", "i32"])
    assert wide.dtype == np.int32
    assert wide.tolist() == -56


def test_large_integers_are_exact_modulo_their_width() -> None:
    a = np.full((1, 3), 2**62 + 1, np.int64)
    assert apply("matmul", a, a.T).tolist() == [[(3 * (2**62 + 1) ** 2 + 2**63) % 2**64 - 2**63]]
    b = np.full((1, 2), 2**64 - 1, np.uint64)
    assert apply("matmul", b, b.T).tolist() == [[2]]
    # One more than f64 can count to: the sum 2**53 + 1 needs the integer path.
    c = np.array([[2**52, 2**52, 1]], np.int64)
    assert apply("matmul", c, np.ones((3, 1), np.int64)).tolist() == [[2**53 + 1]]


def test_ternary_weights_need_a_wider_accumulator() -> None:
    a = np.array([[1, -1, 1]], np.int8)
    kinds = ["t1", "t1"]
    assert apply("matmul", a, a.T, dtypes=kinds, acc="i32").tolist() == [[3]]
    with pytest.raises(GraphError, match="a sum of t1 values is not t1") as caught:
        apply("matmul", a, a.T, dtypes=kinds)
    assert caught.value.diagnostics[0].code is Code.BAD_PARAMETER


def test_a_float_accumulator_rounds_before_the_output() -> None:
    ones = np.full(4, 1 + 2.0**-10, np.float32)
    assert float(apply("matmul", ones, np.ones(4, np.float32))) == 4 + 2.0**-8
    # bf16 has eight bits: 4 + 1/256 is 4 in it.
    assert float(apply("matmul", ones, np.ones(4, np.float32), acc="bf16")) == 4
    halves = np.full(4, 300, np.float16)
    assert apply("matmul", halves, halves, acc=["f32", "f32"]) == np.float32(360000)
    assert np.isinf(apply("matmul", halves, halves))


def test_a_bias_is_added_in_the_accumulator() -> None:
    x, w = np.array([[100, 100]], np.int8), np.array([[100, 100]], np.int8)
    bias = np.array([-20001], np.int32)
    assert apply("linear", x, w, bias, acc="i32").tolist() == [[-1]]
    with pytest.raises(GraphError, match=r"the bias is i8 or i32 here, not i16\[1\]"):
        apply("linear", x, w, bias.astype(np.int16), acc="i32")


def test_outer_joins_shapes() -> None:
    assert apply("outer", np.ones((2, 3), np.float32), np.ones(4, np.float32)).shape == (2, 3, 4)


def dequantized(name: str, x: Array, stored: Array, quant: QuantParams) -> Array:
    record, kind = OPS[name], DTYPES["i8"]
    types = (TensorType(DTYPES["f32"], x.shape), TensorType(kind, stored.shape, quant))
    call = infer(record, Call(types, complete(record, {})))
    assert call.outputs[0].dtype.name == "f32"
    return ReferenceKernel(record, call, (DTYPES["f32"], kind))((x, stored))[0]


@pytest.mark.parametrize("name", ["matmul", "linear"])
def test_quantized_weights_stand_for_their_real_numbers(name: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 4)).astype(np.float32)
    stored = rng.integers(-128, 128, (4, 4)).astype(np.int8)
    scales, zeros = [0.5, 0.25, 2, 1], [3, -1, 0, 7]
    quant = QuantParams("asymmetric", QuantScale.per_channel(0, scales), QuantZeroPoint.per_channel(0, zeros))
    real = (stored - np.array(zeros)[:, None]) * np.array(scales)[:, None]
    want = x.astype(np.float64) @ (real if name == "matmul" else real.T)
    np.testing.assert_allclose(dequantized(name, x, stored, quant), want, rtol=1e-5, atol=1e-4)


def test_integers_on_both_sides_stay_integers_whatever_their_quantization() -> None:
    quant = QuantParams("symmetric", QuantScale.per_tensor(0.5))
    record, kind = OPS["matmul"], DTYPES["i8"]
    types = (TensorType(kind, (1, 2), quant), TensorType(kind, (2, 1), quant))
    call = infer(record, Call(types, complete(record, {"acc": DTYPES["i32"]})))
    factors = np.array([[3, 4]], np.int8), np.array([[5], [6]], np.int8)
    (result,) = ReferenceKernel(record, call, (kind, kind))(factors)
    assert result.tolist() == [[39]]


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusal(name: str, *shapes: tuple[int, ...], **params: object) -> OpError:
    record = OPS[name]
    types = tuple(TensorType(DTYPES["f32"], shape) for shape in shapes)
    with pytest.raises(OpError) as caught:
        infer(record, Call(types, complete(record, params)))
    return caught.value


@pytest.mark.parametrize(
    ("shapes", "params", "message"),
    [
        (((2, 3), (4, 5)), {}, "f32[2, 3] has 3 columns and f32[4, 5] has 4 rows"),
        (((2, 3), (3, 5)), {"transpose_b": True}, "f32[2, 3] has 3 columns and f32[3, 5] has 5 rows, with transpose_b"),
        (((), (3,)), {}, "'matmul' multiplies vectors and matrices, not f32"),
        (((2, 2, 3), (3, 3, 2)), {}, "the batches of f32[2, 2, 3] and f32[3, 3, 2] do not broadcast"),
    ],
)
def test_matmul_refuses_shapes(shapes: tuple[tuple[int, ...], ...], params: dict[str, object], message: str) -> None:
    error = refusal("matmul", *shapes, **params)
    assert (error.code, error.message) == (Code.SHAPE_MISMATCH, message)


def test_matmul_refuses_to_transpose_a_vector() -> None:
    error = refusal("matmul", (3,), (3, 2), transpose_a=True)
    assert (error.code, error.at) == (Code.BAD_PARAMETER, "transpose_a")
    assert error.message == "'transpose_a' is for matrices, not f32[3]"


@pytest.mark.parametrize("acc", [("i32",), ("bool",), ("f32", "i8"), ("f32", "f32", "f32")])
def test_contractions_refuse_accumulators_that_cannot_hold_the_sum(acc: tuple[str, ...]) -> None:
    error = refusal("matmul", (2, 3), (3, 2), acc=tuple(DTYPES[name] for name in acc))
    assert (error.code, error.at) == (Code.BAD_PARAMETER, "acc")


@pytest.mark.parametrize(
    ("shapes", "at", "message"),
    [
        (((2, 3), (3,)), 1, "the weights of 'linear' are [out, in], not f32[3]"),
        (((2, 3), (3, 2)), 0, "the last axis of f32[2, 3] is not the 2 inputs of f32[3, 2]"),
        (((), (3, 2)), 0, "the last axis of f32 is not the 2 inputs of f32[3, 2]"),
        (((2, 3), (4, 3), (3,)), 2, "the bias is f32[3], but f32[4, 3] makes 4 channels"),
    ],
)
def test_linear_refuses_shapes(shapes: tuple[tuple[int, ...], ...], at: int, message: str) -> None:
    error = refusal("linear", *shapes)
    assert (error.code, error.at, error.message) == (Code.SHAPE_MISMATCH, at, message)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("...ij,jk->ik", "the equation '...ij,jk->ik' has an ellipsis"),
        ("i1,jk->ik", "the equation 'i1,jk->ik' has '1' where a letter should be"),
        ("ij,jk->i->k", "the equation 'ij,jk->i->k' has '-' where a letter should be"),
        ("ij,jk->i,k", "the equation 'ij,jk->i,k' has ',' where a letter should be"),
        ("ij,jk-ik", "the equation 'ij,jk-ik' has '-' where a letter should be"),
        ("ij,jk->iz", "the result of 'ij,jk->iz' has 'z', which no operand has"),
        ("ij,jk->ii", "the result of 'ij,jk->ii' has a letter twice"),
        ("ij->ij", "the equation 'ij->ij' is for 1 operands, and there are 2"),
        ("ij,jk,->ik", "the equation 'ij,jk,->ik' is for 3 operands, and there are 2"),
        ("", "the equation '' is for 1 operands, and there are 2"),
        ("\u00e9j,jk->k", "the equation '\u00e9j,jk->k' has '\u00e9' where a letter should be"),
    ],
)
def test_einsum_refuses_equations(equation: str, message: str) -> None:
    error = refusal("einsum", (2, 3), (3, 4), equation=equation)
    assert (error.code, error.at, error.message) == (Code.BAD_PARAMETER, "equation", message)


@pytest.mark.parametrize(
    ("equation", "at", "message"),
    [
        ("ij,j->i", 1, "f32[3, 4] has 2 axes, but the equation says 'j'"),
        ("ij,ik->j", 1, "'i' is 2 for an operand before, but 3 in f32[3, 4]"),
        ("ii,ik->k", 0, "'i' is 2 for an operand before, but 3 in f32[2, 3]"),
    ],
)
def test_einsum_refuses_shapes(equation: str, at: int, message: str) -> None:
    error = refusal("einsum", (2, 3), (3, 4), equation=equation)
    assert (error.code, error.at, error.message) == (Code.SHAPE_MISMATCH, at, message)


def test_einsum_takes_more_operands_than_numpy_has_room_for() -> None:
    ones = [np.full(2, 1, np.float32)] * 70
    assert apply("einsum", *ones, equation=",".join("i" * 70) + "->").item() == 2


def test_costs_count_multiplications_and_additions() -> None:
    record = OPS["matmul"]
    types = (TensorType(DTYPES["f32"], (2, 3, 4)), TensorType(DTYPES["f32"], (4, 5)))
    assert record.cost(infer(record, Call(types, complete(record, {})))).flops == 2 * 2 * 3 * 4 * 5
