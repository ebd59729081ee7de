"""Casts of every dtype to every dtype, bit patterns and quantization against exact models in plain Python."""

import struct
from collections.abc import Callable
from fractions import Fraction
from math import ceil, copysign, floor, inf, isfinite, isinf, isnan, nan, trunc
from typing import Any

import numpy as np
import pytest
from tests.ops.exact import MANTISSA, each, f32, floats, i8, nearest
from tests.ops.harness import Judge, Question, answered, compare, every_dtype, judge_op

from openinfer.dtypes import DTYPES, DType
from openinfer.errors import Code, GraphError
from openinfer.oinf.quant import QuantParams, QuantScale, QuantZeroPoint
from openinfer.ops import OPS, Array, Call, Case, OpError, ReferenceKernel, TensorType, apply, complete, infer
from openinfer.ops.cases import anything, extremes, random

ROUND: dict[str, Callable[[float], int]] = {"trunc": trunc, "nearest": round, "floor": floor, "ceil": ceil}


# --- cast -------------------------------------------------------------------------------------------------------------


def largest(dtype: str) -> float:
    bits, _, most = MANTISSA[dtype]
    return (2 - 2.0 ** (1 - bits)) * 2.0**most


def cast_one(value: Any, to: str, mode: str, saturate: bool | None) -> Any:
    """One number in another dtype, from the documentation alone."""
    if to == "bool":
        return value != 0
    if to == "t1":
        return -1 if value < 0 else 1
    if to[0] in "fb":
        limit = largest(to) if (to == "f8" if saturate is None else saturate) else inf
        rounded = nearest(Fraction(value), to) if isfinite(value) and value else value
        return copysign(limit, rounded) if isinf(rounded) else rounded
    low, high, wraps = limits(to)
    if isinstance(value, float):
        if not isfinite(value):
            return 0 if isnan(value) or saturate is False else (high if value > 0 else low)
        value, saturate = ROUND[mode](value), saturate is not False
    if saturate or not wraps:
        return min(max(value, low), high)
    return (value - low) % (high - low + 1) + low


def limits(name: str) -> tuple[int, int, bool]:
    if name == "t2":
        return -1, 1, False
    bits = int(name[1:])
    return (0, 2**bits - 1, True) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, True)


def cast(question: Question) -> Array:
    to, mode, saturate = (question.params[name] for name in ("to", "rounding_mode", "saturate"))
    values = each(lambda x: cast_one(x, to.name, mode, saturate), question.wide[0])
    return floats(values) if to.kind == "float" else values


# --- bitcast ----------------------------------------------------------------------------------------------------------

FORMATS = {"i8": "b", "u8": "B", "bool": "?", "i16": "h", "u16": "H", "f16": "e", "i32": "i", "u32": "I", "f32": "f"}
FORMATS |= {"i64": "q", "u64": "Q", "f64": "d"}


def to_bits(value: Any, dtype: DType) -> int:
    """The code of an element, as `struct` packs it; bf16 and f8 are upper halves of f32 and f16."""
    if dtype.name in ("bf16", "f8"):
        wide, half = ("f32", 16) if dtype.name == "bf16" else ("f16", 8)
        return to_bits(value, DTYPES[wide]) >> half
    if dtype.name == "t1":
        return int(value > 0)
    if dtype.bits < 8:
        return int(value) & (1 << dtype.bits) - 1
    return int.from_bytes(struct.pack("<" + FORMATS[dtype.name], value), "little")


def from_bits(code: int, dtype: DType) -> Any:
    if dtype.name in ("bf16", "f8"):
        wide, half = ("f32", 16) if dtype.name == "bf16" else ("f16", 8)
        return from_bits(code << half, DTYPES[wide])
    if dtype.name == "t1":
        return 2 * code - 1
    if dtype.bits < 8:
        return code - (1 << dtype.bits) if dtype.kind == "int" and code >> (dtype.bits - 1) else code
    return struct.unpack("<" + FORMATS[dtype.name], code.to_bytes(dtype.bits // 8, "little"))[0]


def bitcast(question: Question) -> Array:
    source, to = question.dtypes[0], question.params["to"]
    assert source is not None
    values = each(lambda x: from_bits(to_bits(x, source), to), question.wide[0])
    return floats(values) if to.kind == "float" else values


# --- quantization -----------------------------------------------------------------------------------------------------


def compute_name(dtype: str) -> str:
    return "f64" if dtype == "f64" else "f32"


def divided(a: float, b: float, dtype: str) -> float:
    if isfinite(a) and isfinite(b) and a and b:
        return nearest(Fraction(a) / Fraction(b), dtype)
    return float(np.float64(a) / np.float64(b))


def times(a: float, b: float, dtype: str) -> float:
    if isfinite(a) and isfinite(b) and a and b:
        return nearest(Fraction(a) * Fraction(b), dtype)
    return float(np.float64(a) * np.float64(b))


def less(a: float, b: float, dtype: str) -> float:
    return nearest(Fraction(a) - Fraction(b), dtype) if isfinite(a) and isfinite(b) and a != b else a - b


def quantize_one(x: float, scale: float, point: int, to: str, dtype: str) -> int:
    low, high, _ = limits(to)
    steps = divided(x, scale, compute_name(dtype))
    if isnan(steps):
        return point
    if isinf(steps):
        return high if steps > 0 else low
    return min(max(round(steps) + point, low), high)


def along(question: Question, values: Any) -> Any:
    if values is None:
        return np.asarray(0)
    rank, axis = len(question.wide[0].shape), question.params["axis"]
    return values if not values.ndim else np.moveaxis(values.reshape((-1,) + (1,) * (rank - 1)), 0, axis)


def quantize(question: Question) -> Array:
    x, scale, point = question.wide
    to, dtype = question.params["to"].name, question.dtypes[0]
    assert dtype is not None
    operands = (x, along(question, scale), along(question, point))
    return each(lambda a, s, p: quantize_one(a, s, p, to, dtype.name), *operands)


def dequantize(question: Question) -> Array:
    x, scale, point = question.wide
    kind = compute_name(question.outputs[0].dtype.name)

    def one(value: int, step: float, zero: int) -> float:
        difference = value - zero
        return times(nearest(Fraction(difference), kind) if difference else 0.0, step, kind)

    return floats(each(one, x, along(question, scale), along(question, point)))


def dynamic_quantize(question: Question) -> Any:
    dtype, to = question.outputs[1].dtype.name, question.params["to"].name
    low, high, _ = limits(to)
    kind = compute_name(dtype)
    values = question.wide[0].reshape(-1).tolist()
    if any(map(isnan, values)):
        least = most = nan
    else:
        least, most = min([0.0, *values]), max([0.0, *values])
    scale = less(divided(most, high - low, kind), divided(least, high - low, kind), kind)
    if least == most == 0:
        scale = 1.0
    elif scale < 2.0 ** MANTISSA[dtype][1]:
        scale = 2.0 ** MANTISSA[dtype][1]
    scale = nearest(Fraction(scale), dtype) if isfinite(scale) else scale
    place = less(low, divided(least, scale, kind), kind)
    point = (
        0 if isnan(place) else min(max(round(place), low), high) if isfinite(place) else (high if place > 0 else low)
    )
    codes = each(lambda x: quantize_one(x, scale, point, to, dtype), question.wide[0])
    return codes, np.asarray(scale), np.asarray(point)


JUDGES: dict[str, Judge] = {
    "cast": cast,
    "bitcast": bitcast,
    "quantize": quantize,
    "dequantize": dequantize,
    "dynamic_quantize": dynamic_quantize,
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_an_independent_implementation(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


def test_every_op_between_types_has_a_judge() -> None:
    assert {record.name for record in OPS.values() if record.family == "Type"} == set(JUDGES)


# --- all pairs --------------------------------------------------------------------------------------------------------


def around_limits(source: DType, to: DType) -> Array:
    """Values of a dtype at and next to where another dtype ends, and halfway between its numbers."""
    if to.kind == "float":
        bits, least, _ = MANTISSA[to.name]
        edge = [largest(to.name) * (1 + 2.0**-bits * share) for share in (0.5, 1 - 2.0**-20, 1, 1 + 2.0**-20, 4)]
        halves = [1 + 2.0**-bits * share for share in (1 - 2.0**-20, 1, 1 + 2.0**-20, 3, 5)]
        reals = [*edge, *halves, *(half * 2.0**least for half in halves), 2.0 ** (least - bits)]
    else:
        low, high = float(to.minimum), float(to.maximum)
        reals = [
            low,
            high,
            low - 1,
            high + 1,
            low - 0.5,
            high + 0.5,
            2 * high + 3,
            0.5,
            1.5,
            2.5,
            0.3,
            0.7,
            1e30,
            2.0**63,
        ]
    numbers = [sign * real for real in reals for sign in (1, -1)]
    if source.kind == "float":
        with np.errstate(over="ignore"):
            return np.array(numbers).astype(source.array)
    whole = [int(number) + step for number in numbers for step in (-1, 0, 1) if isfinite(number)]
    fitting = [value for value in whole if source.minimum <= value <= source.maximum and (value or source.name != "t1")]
    return np.array(fitting, np.uint64 if source.name == "u64" else np.int64).astype(source.array)


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("saturate", [None, True, False])
def test_every_pair_of_dtypes_in_every_mode(source: str, saturate: bool | None) -> None:
    dtype = DTYPES[source]
    rng = np.random.default_rng(7)
    common = [extremes(dtype), random(rng, dtype, (6,)), anything(rng, dtype, (6,))]
    for to in DTYPES.values():
        if to.values and saturate is False:
            continue
        values = np.concatenate([*common, around_limits(dtype, to)])
        for mode in ROUND if dtype.kind == "float" and to.kind in ("int", "uint") else ("trunc",):
            params = {"to": to, "rounding_mode": mode, "saturate": saturate}
            given = {key: value for key, value in params.items() if value is not None}
            question, results = answered(OPS["cast"], Case((values,), (dtype,), given))
            with np.errstate(all="ignore"):
                compare(question, results, cast(question))


@pytest.mark.parametrize("to", ["f8", "bf16", "i8", "u4", "t2", "bool"])
def test_every_f16_value(to: str) -> None:
    values = np.arange(1 << 16).astype(np.uint16).view(np.float16)
    question, results = answered(OPS["cast"], Case((values,), (DTYPES["f16"],), {"to": DTYPES[to]}))
    with np.errstate(all="ignore"):
        compare(question, results, cast(question))


def test_every_byte_survives_a_bitcast_to_f8_and_back() -> None:
    codes = np.arange(256).astype(np.uint8)
    assert apply("bitcast", apply("bitcast", codes, to="f8"), to="u8").tolist() == codes.tolist()


# --- hand-made examples -----------------------------------------------------------------------------------------------


def test_cast_as_documented() -> None:
    x = f32([-1.5, -0.5, 0.5, 1.5, 2.5, 300, -300, nan, inf])
    assert apply("cast", x, to="i8").tolist() == [-1, 0, 0, 1, 2, 127, -128, 0, 127]
    assert apply("cast", x, to="i8", rounding_mode="nearest").tolist() == [-2, 0, 0, 2, 2, 127, -128, 0, 127]
    assert apply("cast", x, to="i8", rounding_mode="floor").tolist() == [-2, -1, 0, 1, 2, 127, -128, 0, 127]
    assert apply("cast", x, to="i8", saturate=False).tolist() == [-1, 0, 0, 1, 2, 44, -44, 0, 0]
    assert apply("cast", np.array([300, -1]), to="u8").tolist() == [44, 255]
    assert apply("cast", np.array([300, -1]), to="u8", saturate=True).tolist() == [255, 0]
    assert apply("cast", f32([1e9, -inf]), to="f8").astype(float).tolist() == [57344, -57344]
    assert apply("cast", f32([1e9, -inf]), to="f8", saturate=False).astype(float).tolist() == [inf, -inf]
    assert apply("cast", f32([1e9]), to="f16").tolist() == [inf]
    assert apply("cast", f32([-0.3, 0, 2]), to="t1").tolist() == [-1, 1, 1]
    assert apply("cast", f32([-5, -0.3, 2]), to="t2").tolist() == [-1, 0, 1]
    assert apply("cast", f32([0, -0.0, nan, 0.1]), to="bool").tolist() == [False, False, True, True]


def test_quantize_as_documented() -> None:
    x = f32([[-1, 0.25, 0.75], [1e9, nan, -1e9]])
    assert apply("quantize", x, f32(0.5), to="i8").tolist() == [[-2, 0, 2], [127, 0, -128]]
    assert apply("quantize", x, f32(0.5), np.array(3, np.uint8), to="u8").tolist() == [[1, 3, 5], [255, 3, 0]]
    scales = f32([1, 0.5, 0.25])
    assert apply("quantize", x, scales, to="i8", axis=-1).tolist() == [[-1, 0, 3], [127, 0, -128]]
    assert apply("dequantize", i8([[1], [2]]), f32([0.5, 2]), i8([0, 1])).tolist() == [[0.5], [2]]


@pytest.mark.parametrize("to", ["u8", "i8", "i16", "u4"])
def test_a_dynamically_quantized_tensor_is_within_a_step_of_itself(to: str) -> None:
    x = np.random.default_rng(1).uniform(-3, 5, (7, 9)).astype(np.float32)
    q, scale, point = apply("dynamic_quantize", x, to=to)
    assert apply("quantize", x, scale, point, to=to).tolist() == q.tolist()
    back = apply("dequantize", q, scale, point)
    assert np.abs(back - x).max() <= scale * 1.001
    assert apply("dequantize", point, scale, point) == 0


def test_dynamic_quantize_of_special_tensors() -> None:
    q, scale, point = apply("dynamic_quantize", np.zeros((2, 0), np.float32))
    assert (q.shape, scale.tolist(), point.tolist()) == ((2, 0), 1, 0)
    q, scale, point = apply("dynamic_quantize", f32([1, nan]))
    assert isnan(scale)
    assert (q.tolist(), point.tolist()) == ([0, 0], 0)
    q, scale, point = apply("dynamic_quantize", f32([51, 255]))
    assert (q.tolist(), scale.tolist(), point.tolist()) == ([51, 255], 1, 0)  # the range includes 0


def dequantized(x: Array, dtype: str, quant: QuantParams) -> Array:
    kind = TensorType(DTYPES[dtype], x.shape, quant)
    call = infer(OPS["dequantize"], Call((kind, None, None), complete(OPS["dequantize"], {})))
    assert call.outputs == (TensorType(DTYPES["f32"], x.shape),)
    return ReferenceKernel(OPS["dequantize"], call, (kind.dtype, None, None))((x, None, None))[0]


def test_a_tensor_of_the_model_is_dequantized_by_its_own_parameters() -> None:
    x = np.array([[1, 2, 3], [-4, 5, 6]], np.int8)
    per_tensor = QuantParams("asymmetric", QuantScale.per_tensor(0.5), QuantZeroPoint.per_tensor(1))
    assert dequantized(x, "i8", per_tensor).tolist() == [[0, 0.5, 1], [-2.5, 2, 2.5]]
    per_channel = QuantParams("symmetric", QuantScale.per_channel(1, [1, 2, 0.5]))
    assert dequantized(x, "i8", per_channel).tolist() == [[1, 4, 1.5], [-4, 10, 3]]
    packed = x.astype(DTYPES["i4"].array)
    assert dequantized(packed, "i4", per_tensor).tolist() == per_tensor.dequantize(packed).tolist()


# --- refusals ---------------------------------------------------------------------------------------------------------

X = np.ones((2, 3), np.float32)
Q = np.ones((2, 3), np.int8)


@pytest.mark.parametrize(
    ("name", "operands", "params", "code", "message"),
    [
        ("cast", (X,), {}, Code.WRONG_OPERANDS, "'cast' needs the parameter 'to'"),
        ("cast", (X,), {"to": "i8", "rounding_mode": "up"}, Code.BAD_PARAMETER, 'not "up"'),
        ("cast", (X,), {"to": "t2", "saturate": False}, Code.BAD_PARAMETER, "t2 does not wrap: it has only -1, 0, 1"),
        ("bitcast", (X,), {"to": "i8"}, Code.BAD_PARAMETER, "f32[2, 3] has 32 bits an element and i8 has 8"),
        ("bitcast", (i8([0, 2]),), {"to": "bool"}, Code.BAD_VALUE, "a byte other than 0 and 1 is not a bool"),
        ("quantize", (X, f32(1)), {"to": "f16"}, Code.BAD_PARAMETER, "cannot quantize to f16"),
        ("quantize", (X, f32(1)), {"to": "i64"}, Code.BAD_PARAMETER, "cannot quantize to i64"),
        ("quantize", (X, f32(1), i8(1)), {"to": "u8"}, Code.WRONG_DTYPE, "the zero point is i8, and 'to' is u8"),
        ("quantize", (X, f32([1, 2, 3])), {"to": "u8"}, Code.SHAPE_MISMATCH, "f32[3] is neither a scalar nor as long"),
        ("quantize", (X, f32(1), i8([1])), {"to": "i8"}, Code.SHAPE_MISMATCH, "as long as axis 0 of f32[2, 3]"),
        ("quantize", (X, f32([1])), {"to": "u8", "axis": 2}, Code.BAD_PARAMETER, "there is no axis 2"),
        ("quantize", (X, np.float64(1)), {"to": "u8"}, Code.WRONG_DTYPE, "'quantize' mixes f32[2, 3] and f64"),
        ("dequantize", (Q,), {}, Code.WRONG_OPERANDS, "i8[2, 3] has no quantization of its own"),
        ("dequantize", (Q, f32([1, 2, 3])), {}, Code.SHAPE_MISMATCH, "f32[3] is neither a scalar nor as long"),
        ("dequantize", (Q, f32(1), np.uint8(1)), {}, Code.WRONG_DTYPE, "'dequantize' mixes i8[2, 3] and u8"),
        ("dynamic_quantize", (X,), {"to": "i32"}, Code.BAD_PARAMETER, "cannot quantize to i32"),
        ("dynamic_quantize", (Q,), {}, Code.WRONG_DTYPE, "cannot be i8[2, 3]"),
    ],
)
def test_refusals(name: str, operands: Any, params: dict[str, Any], code: Code, message: str) -> None:
    with pytest.raises(GraphError) as refused:
        apply(name, *operands, **params)
    assert refused.value.code is code
    assert message in refused.value.diagnostics[0].message


def test_bits_that_are_no_t2_are_refused() -> None:
    with pytest.raises(GraphError, match="the two bits 10 are not a t2"):
        apply("bitcast", np.array([2], DTYPES["u2"].array), to="t2")


def test_a_zero_point_without_a_scale_is_refused() -> None:
    kind = TensorType(DTYPES["i8"], (2,), QuantParams("symmetric", QuantScale.per_tensor(0.5)))
    with pytest.raises(OpError, match="a zero point needs a scale"):
        infer(OPS["dequantize"], Call((kind, None, kind), complete(OPS["dequantize"], {})))
