"""Casts of every dtype to every dtype, bit patterns and quantization against exact models in plain Python."""

import struct
from collections.abc import Callable
from fractions import Fraction
from math import ceil, copysign, floor, inf, isfinite, isinf, isnan, nan, trunc
from typing import Any

import numpy as np
import pytest
from tests.ops.exact import MANTISSA, each, floats, nearest
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES, DType
from openinfer.ops import OPS, Array

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
