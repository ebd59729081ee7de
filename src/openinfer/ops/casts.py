"""Between dtypes: casts, bit patterns, quantization."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from openinfer.dtypes import DTYPES, Array, DType, convert
from openinfer.errors import Code, counted
from openinfer.ops.cases import UNARY_SHAPES, anything, case, extremes, random
from openinfer.ops.numeric import leaving
from openinfer.ops.record import EXACT, REQUIRED, Call, Case, Param, op
from openinfer.ops.shapes import axis_of, per_element, same, spread
from openinfer.ops.types import (
    ALL,
    F32,
    FLOATS,
    INTEGERS,
    TERNARY,
    OpError,
    Shape,
    TensorType,
    parameter_error,
    shape_error,
    value_error,
)

FAMILY = "Type"

# --- cast -------------------------------------------------------------------------------------------------------------

_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "trunc": np.trunc,
    "nearest": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
}


def _cast_shape(call: Call) -> tuple[Shape, ...]:
    to: DType = call.params["to"]
    if to.values and call.params["saturate"] is False:
        raise parameter_error("saturate", f"{to.name} does not wrap: it has only {', '.join(map(str, to.values))}")
    return same(call)


def _cast_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape in UNARY_SHAPES:
        yield case(dtype, random(rng, dtype, shape), to=F32)
    for to in ALL:
        values = np.concatenate([extremes(dtype), random(rng, dtype, (9,)), anything(rng, dtype, (40,))])
        yield case(dtype, values, to=to)
        yield case(dtype, values, to=to, saturate=True)
        if not to.values:
            yield case(dtype, values, to=to, saturate=False)
        for mode in _ROUNDINGS if dtype.kind == "float" else ():
            yield case(dtype, values, to=to, rounding_mode=mode)


@op(
    FAMILY,
    "x: T -> f32",
    Param("to", "dtype", REQUIRED, "The dtype of the result."),
    Param("rounding_mode", "str", "trunc", "How a float becomes an integer.", tuple(_ROUNDINGS)),
    Param(
        "saturate",
        "bool",
        None,
        "Whether what is out of range becomes the nearest limit; by default from float to integer, and to f8.",
    ),
    shape=_cast_shape,
    dtype=lambda call: (call.params["to"],),
    cost=per_element(1),
    tolerance=EXACT,
    cases=_cast_cases,
    stored=True,
    T=ALL,
)
def cast(call: Call, x: Array) -> Array:
    """The value in another dtype, `y = to(x)`.

    To a float: rounded once, to nearest even. To an integer: a float is rounded as `rounding_mode` says and limited to
    the range (NaN gives 0), an integer wraps; `saturate` says otherwise, and infinities that wrap give 0. f8 is limited
    to its largest number; other floats overflow to infinity. bool: whether `x` is not 0. t2 is limited to -1..1; t1 is
    -1 below zero and 1 from zero on (1 for NaN).
    """
    source, to = call.dtype(), call.params["to"]
    saturate = call.params["saturate"]
    if to.kind == "bool":
        return _numbers(x, source) != 0
    if to.kind == "float":
        return _to_float(x, to, saturate=to.is_saturating if saturate is None else saturate)
    values = _numbers(x, source)
    if to.name == "t1":
        return np.where(values < 0, np.int8(-1), np.int8(1))
    if source.kind == "float":
        values = _ROUNDINGS[call.params["rounding_mode"]](values)
        return saturated(values, to) if saturate is not False else leaving(to)(_wrapped_float(values))
    return saturated(values, to) if saturate or to.values else leaving(to)(values)


def _numbers(x: Array, dtype: DType) -> Array:
    """Stored values in a type that has them all: f64, i64 or u64."""
    if dtype.kind == "float":
        return x.astype(np.float64)
    return x if dtype.name == "u64" else x.astype(np.int64)


def _to_float(x: Array, to: DType, *, saturate: bool) -> Array:
    result = convert(x, to)
    if not saturate:
        return result
    infinite = np.isinf(result)
    limit = np.where(np.signbit(result), to.minimum, to.maximum).astype(to.array)
    return np.where(infinite, limit, result)


def saturated(values: Array, to: DType) -> Array:
    """Whole f64, i64 or u64 numbers limited to the range of an integer dtype, in stored form; NaN gives 0."""
    below, above = values < to.minimum, values > to.maximum
    if values.dtype == np.float64:
        # The largest 64-bit integers are not f64: 2.0**63 is not above what it compares with, and has no i64.
        above = values >= float(to.maximum) if to.bits == 64 else above
    inside = np.where(below | above | np.isnan(values), values.dtype.type(0), values)
    kind = np.uint64 if to.name == "u64" else np.int64
    limited = np.where(below, kind(to.minimum), np.where(above, kind(to.maximum), inside.astype(kind)))
    return limited.astype(to.array)


def _wrapped_float(values: Array) -> Array:
    """Whole f64 numbers modulo 2**64, as i64; what is not finite gives 0."""
    rest = np.fmod(np.where(np.isfinite(values), values, 0), 2.0**64)
    high = np.floor(rest / 2.0**32)
    return (high.astype(np.int64) << 32) + (rest - high * 2.0**32).astype(np.int64)


# --- bitcast ----------------------------------------------------------------------------------------------------------


def _bitcast_shape(call: Call) -> tuple[Shape, ...]:
    source, to = call.dtype(), call.params["to"]
    if source.bits != to.bits:
        alike = ", ".join(dtype.name for dtype in ALL if dtype.bits == source.bits)
        message = f"{call.input(0)} has {counted(source.bits, 'bit')} an element and {to.name} has {to.bits}"
        raise parameter_error("to", message, f"dtypes of the same width are {alike}")
    return same(call)


def _bitcast_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for to in ALL:
        if to.bits != dtype.bits:
            continue
        for shape in UNARY_SHAPES:
            yield case(dtype, _castable(random(rng, dtype, shape), to), to=to)
        yield case(dtype, _castable(anything(rng, dtype, (64,)), to), to=to)
        yield case(dtype, _castable(extremes(dtype), to), to=to)


def _castable(values: Array, to: DType) -> Array:
    """Values whose bits every dtype of the width has: t2 lacks a code, and bool most."""
    if to.kind == "bool" and values.dtype != np.bool_:
        return (values.view(np.uint8) & 1).view(values.dtype)
    lacks = to.name == "t2" and values.size
    return np.where(np.isin(values.astype(np.int8), (-2, 2)), values.dtype.type(1), values) if lacks else values


@op(
    FAMILY,
    "x: T -> f32",
    Param("to", "dtype", REQUIRED, "The dtype of the result, as wide as that of `x`."),
    shape=_bitcast_shape,
    dtype=lambda call: (call.params["to"],),
    cost=per_element(0),
    tolerance=EXACT,
    cases=_bitcast_cases,
    stored=True,
    T=ALL,
)
def bitcast(call: Call, x: Array) -> Array:
    """The same bits read as another dtype, `bits(y) = bits(x)`.

    The t2 code of -2, and a bool that is neither 0 nor 1, are errors.
    """
    source, to = call.dtype(), call.params["to"]
    codes = _codes(x, source)
    if to.kind == "bool" and np.any(codes > 1):
        raise value_error("a byte other than 0 and 1 is not a bool", 0)
    if to.name == "t2" and np.any(codes == 2):
        raise value_error("the two bits 10 are not a t2", 0)
    return _from_codes(codes, to)


def _codes(x: Array, dtype: DType) -> Array:
    """What is stored, as unsigned integers."""
    if dtype.bits >= 8:
        return np.ascontiguousarray(x).view(f"u{dtype.itemsize}").reshape(x.shape)
    values = x.astype(np.int8)
    return (values > 0 if dtype.name == "t1" else values & ((1 << dtype.bits) - 1)).astype(np.uint8)


def _from_codes(codes: Array, dtype: DType) -> Array:
    if dtype.bits >= 8:
        return codes.view(dtype.array)
    values = codes.astype(np.int8)
    if dtype.name == "t1":
        return values * np.int8(2) - np.int8(1)
    half = 1 << (dtype.bits - 1)
    return ((values ^ half) - half if dtype.kind == "int" else values).astype(dtype.array)


# --- quantization -----------------------------------------------------------------------------------------------------

QUANTIZED = tuple(dtype for dtype in INTEGERS if dtype.bits <= 32) + TERNARY[1:]
"""Integers that quantized values can have: sums of two of them are exact in f64."""
AXIS = Param("axis", "int", 0, "The axis along which a one-dimensional scale or zero point lies.")


def _require_target(to: DType, allowed: tuple[DType, ...] = QUANTIZED) -> None:
    if to not in allowed:
        raise parameter_error("to", f"cannot quantize to {to.name}", f"use {_names(allowed)}")


def _names(kinds: tuple[DType, ...]) -> str:
    return ", ".join(dtype.name for dtype in kinds)


def _require_along(call: Call, x: TensorType, slots: tuple[int, ...]) -> None:
    """Scales and zero points are scalars or have one element for each index along the axis."""
    for slot in slots:
        kind = call.inputs[slot] if slot < len(call.inputs) else None
        if kind is None or kind.shape == ():
            continue
        axis = axis_of(call.params["axis"], len(x.shape))
        if kind.shape != (x.shape[axis],):
            raise shape_error(f"{kind} is neither a scalar nor as long as axis {axis} of {x}", slot)


def _along(call: Call, values: Array, rank: int) -> Array:
    return spread(values, axis_of(call.params["axis"], rank), rank) if values.ndim else values


def _quantize_dtype(call: Call) -> tuple[DType, ...]:
    to = call.params["to"]
    _require_target(to)
    point = call.inputs[2]
    if point is not None and point.dtype is not to:
        message = f"the zero point is {point}, and 'to' is {to.name}"
        raise OpError(Code.WRONG_DTYPE, message, 2, f"op cast(zero_point, to={to.name}) >> zero_point")
    return (to,)


def _scaled_shape(call: Call) -> tuple[Shape, ...]:
    _require_along(call, call.input(0), (1, 2))
    return same(call)


def _quantize_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    def made(shape: Shape, to: DType, scales: Shape, points: Shape | None, axis: int = 0) -> Case:
        scale = random(rng, dtype, scales, 0.1, 2)
        point = None if points is None else random(rng, to, points, -9, 9)
        x = random(rng, dtype, shape, -40, 40)
        return Case((x, scale, point), (dtype, dtype, None if point is None else to), {"to": to, "axis": axis})

    i8, u8 = DTYPES["i8"], DTYPES["u8"]
    yield made((), i8, (), None)
    yield made((3, 5), u8, (), ())
    yield made((3, 5), i8, (5,), (5,), -1)
    yield made((3, 5), i8, (3,), ())
    yield made((2, 3, 4), u8, (), (3,), 1)
    yield made((0, 3), u8, (0,), (0,))
    for to in QUANTIZED:
        yield made((41,), to, (), ())
        values = extremes(dtype)
        for scale in (0.5, 3.0, 0.0, np.inf, np.nan, -1.0):
            operands = (values, np.array(scale, dtype.array), np.array(1 if to.maximum else -1, to.array))
            yield Case(operands, (dtype, dtype, to), {"to": to})


@op(
    FAMILY,
    "x: T, scale: T, zero_point?: Q -> i8",
    Param("to", "dtype", REQUIRED, f"The dtype of the result: {_names(QUANTIZED)}."),
    AXIS,
    shape=_scaled_shape,
    dtype=_quantize_dtype,
    cost=per_element(4),
    tolerance=EXACT,
    cases=_quantize_cases,
    T=FLOATS,
    Q=QUANTIZED,
)
def quantize(call: Call, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    """Real numbers as small integers, `y = saturate(round(x / scale) + zero_point)`, halves to even.

    `scale` and `zero_point` are scalars or one-dimensional along `axis`. Where `x / scale` is NaN, `y` is `zero_point`.
    """
    point = np.asarray(0) if zero_point is None else zero_point
    return _quantized(call.params["to"], x, _along(call, scale, x.ndim), _along(call, point, x.ndim))


def _quantized(to: DType, x: Array, scale: Array, point: Array) -> Array:
    steps = np.rint(np.asarray(x / scale)).astype(np.float64)
    steps = np.where(np.isnan(steps), 0, steps)
    return saturated(np.asarray(steps + point.astype(np.float64)), to)


def _dequantize_dtype(call: Call) -> tuple[DType, ...]:
    x, scale, point = call.input(0), call.inputs[1], call.inputs[2]
    if scale is not None:
        return (scale.dtype,)
    if x.quant is None:
        message = f"{x} has no quantization of its own, and no scale is given"
        raise OpError(Code.WRONG_OPERANDS, message, 0, "op dequantize(x, scale) >> y")
    if point is not None:
        raise OpError(Code.WRONG_OPERANDS, "a zero point needs a scale", 2)
    return (F32,)


def _dequantize_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    def made(shape: Shape, real: DType, scales: Shape, points: Shape | None, axis: int = 0) -> Case:
        scale = random(rng, real, scales, 0.1, 2)
        point = None if points is None else anything(rng, dtype, points)
        kinds = (dtype, real, None if point is None else dtype)
        return Case((anything(rng, dtype, shape), scale, point), kinds, {"axis": axis})

    yield made((), F32, (), None)
    yield made((3, 5), F32, (5,), (5,), -1)
    yield made((3, 5), F32, (3,), ())
    yield made((2, 3, 4), F32, (), (3,), 1)
    yield made((2, 0), F32, (0,), None, 1)
    for real in FLOATS:
        yield made((41,), real, (), ())
        values = extremes(dtype)
        for scale in (0.1, 0.0, np.inf, np.nan, -2.0):
            yield Case((values, np.array(scale, real.array), values[:1].reshape(())), (dtype, real, dtype))


@op(
    FAMILY,
    "x: T, scale?: S, zero_point?: T -> f32",
    AXIS,
    shape=_scaled_shape,
    dtype=_dequantize_dtype,
    cost=per_element(2),
    tolerance=EXACT,
    cases=_dequantize_cases,
    T=QUANTIZED + TERNARY[:1],
    S=FLOATS,
)
def dequantize(call: Call, x: Array, scale: Array | None = None, zero_point: Array | None = None) -> Array:
    """The real numbers that small integers stand for, `y = (x - zero_point) * scale`, in the dtype of `scale`.

    The difference is exact, then rounded to the type that `scale` computes in. `scale` and `zero_point` are scalars or
    one-dimensional along `axis`. Without them, those that the model stores with the tensor are meant, and `y` is f32.
    """
    quant = call.input(0).quant
    if scale is None and quant is not None and quant.scale.group is not None:
        return quant.dequantize(x)
    if scale is None:
        assert quant is not None
        axis, scale = quant.scale.axis, quant.scale.values
        zero_point = None if quant.zero_point is None else quant.zero_point.values
        scale, point = (
            value.reshape(()) if axis is None else spread(value, axis, x.ndim)
            for value in (scale, np.zeros_like(scale, np.int32) if zero_point is None else zero_point)
        )
    else:
        scale = _along(call, scale, x.ndim)
        point = np.asarray(0) if zero_point is None else _along(call, zero_point, x.ndim)
    return np.subtract(x, point, dtype=np.int64).astype(scale.dtype) * scale


NARROW = tuple(dtype for dtype in QUANTIZED if dtype.bits <= 16)


def _dynamic_dtype(call: Call) -> tuple[DType, ...]:
    to = call.params["to"]
    _require_target(to, NARROW)
    return (to, call.dtype(), to)


def _dynamic_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape in UNARY_SHAPES:
        yield case(dtype, random(rng, dtype, shape))
    for to in NARROW:
        for low, high in ((-3, 5), (0.5, 2), (-4, -1)):
            yield case(dtype, random(rng, dtype, (5, 6), low, high), to=to)
        yield case(dtype, np.zeros(3, dtype.array), to=to)
        yield case(dtype, anything(rng, dtype, (9,)), to=to)
        values = extremes(dtype)
        for one in (values, values[np.isfinite(values)], values[:-1], values[:9], values[7:9]):
            yield case(dtype, one, to=to)


@op(
    FAMILY,
    "x: T -> q: u8, scale: T, zero_point: u8",
    Param("to", "dtype", DTYPES["u8"], f"The dtype of the result: {_names(NARROW)}."),
    shape=lambda call: (call.shape(0), (), ()),
    dtype=_dynamic_dtype,
    cost=per_element(6),
    tolerance=EXACT,
    cases=_dynamic_cases,
    T=FLOATS,
)
def dynamic_quantize(call: Call, x: Array) -> tuple[Array, Array, Array]:
    """Quantized by its own range, `q = saturate(round(x / scale) + zero_point)`.

    `scale = max(x, 0) / n - min(x, 0) / n`, where `n` is the number of steps that `to` has from its least value `low`;
    it is 1 where all is zero, and never below the smallest normal number. `zero_point = saturate(round(low - min(x, 0)
    / scale))`. A NaN or infinity in `x` makes `scale` one too; a zero point that would be NaN is 0.
    """
    to, dtype, kind = call.params["to"], call.dtype(), x.dtype.type
    least, most = (function(x, initial=0.0) for function in (np.min, np.max))
    count = kind(to.maximum - to.minimum)
    step = np.asarray(most / count - least / count)
    normal = kind(dtype.least_normal)
    scale = np.where((least == 0) & (most == 0), kind(1), np.where(step < normal, normal, step))
    scale = leaving(dtype)(scale).astype(x.dtype)
    point = saturated(np.rint(np.asarray(kind(to.minimum) - least / scale)).astype(np.float64), to)
    return _quantized(to, x, scale, point), scale, point
