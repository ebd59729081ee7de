"""Between dtypes: casts, bit patterns, quantization."""

from math import inf

from openinfer.dtypes import DTYPES, DType
from openinfer.loops.build import Builder, Position, bits, cast, const, pair, rounded, select, unary
from openinfer.loops.ir import Bits, Buffer, LoopKind, Scalar
from openinfer.ops.lower.elementwise import U64, elementwise, pointwise
from openinfer.ops.lower.operand import ElementQuantization, KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of
from openinfer.ops.types import F32, F64

U8, I32, I64 = DTYPES["u8"], DTYPES["i32"], DTYPES["i64"]
_ROUNDINGS = {"trunc": "trunc", "nearest": "rint", "floor": "floor", "ceil": "ceil"}

# --- to floats --------------------------------------------------------------------------------------------------------


def to_float(builder: Builder, value: Scalar, source: DType, to: DType) -> Scalar:
    """A value of a dtype in the compute type of a float dtype, such that storing it rounds only once."""
    if value.dtype is F64 and to.compute is F32 and to is not F32:
        return _to_odd(builder, value)
    if to.is_small_float and to.maximum > 2**24 and source.kind in ("int", "uint") and source.bits >= 32:
        # f32 has more bits than bf16, but not all of the integer's. What f32 rounds is infinite in f16 and f8.
        return _to_odd(builder, _sticky(builder, value))
    return cast(value, to.compute)


def _to_odd(builder: Builder, value: Scalar) -> Scalar:
    """f64 to f32, rounding to odd, so that rounding further is exact."""
    wide = builder.let(value)
    near = builder.let(cast(wide, F32))
    back = builder.let(cast(near, F64))
    code = builder.let(bits(near, I32))
    inexact = back.ne(wide) & (unary("abs", wide) < inf)
    away = unary("abs", back) > unary("abs", wide)
    odd = (code - select(away, const(1, I32), 0)) | 1
    return bits(select(inexact, odd, code), F32)


def _sticky(builder: Builder, value: Scalar) -> Scalar:
    """An integer as f64; one too long for it keeps a bit that says that something was cut off."""
    if value.dtype.bits < 64:
        return cast(value, F64)
    whole = builder.let(value)
    upper = builder.let(pair("shr", whole, 53))
    is_long = upper.ne(0) if whole.dtype.kind == "uint" else upper.ne(0) & upper.ne(-1)
    cut = builder.let(pair("shl", pair("shr", whole, 11), 11))
    return cast(select(is_long & cut.ne(whole), cut | (1 << 11), whole), F64)


def _limited_float(value: Scalar, to: DType) -> Scalar:
    """Limited to the finite numbers of a float dtype; NaN stays."""
    high = select(value > to.maximum, const(to.maximum, value.dtype), value)
    return select(value < to.minimum, const(to.minimum, value.dtype), high)


# --- to integers ------------------------------------------------------------------------------------------------------


def saturated(builder: Builder, value: Scalar, to: DType) -> Scalar:
    """A whole float limited to the range of an integer dtype, in its compute type; NaN gives 0."""
    whole = builder.let(value)
    # The number after the largest is a power of two, or 2: every float type has it, which is not true of the largest.
    low, beyond = const(to.minimum, whole.dtype), const(to.maximum + 1, whole.dtype)
    inside = cast(select((whole >= low) & (whole < beyond), whole, 0), to.compute)
    limited = select(whole >= beyond, const(to.maximum, to.compute), inside)
    return limited if to.kind == "uint" else select(whole < low, const(to.minimum, to.compute), limited)


def _wrapped_float(builder: Builder, value: Scalar, to: DType) -> Scalar:
    """A whole float modulo 2**64, in the compute type of an integer dtype; what is not finite gives 0."""
    size = builder.let(unary("abs", value))
    finite = builder.let(select(size <= size.dtype.maximum, size, 0))
    # Both products and the difference are exact: they only move or drop leading bits.
    times = unary("trunc", finite * 2.0**-64)
    code = builder.let(cast(finite - times * 2.0**64, U64))
    return cast(select(value < 0, const(0, U64) - code, code), to.compute)


def _limited_integer(value: Scalar, source: DType, to: DType) -> Scalar:
    """An integer limited to the range of another dtype, in that one's compute type."""
    own = value
    if source.maximum > to.maximum:
        own = pair("min", own, const(to.maximum, own.dtype))
    if source.minimum < to.minimum:
        own = pair("max", own, const(to.minimum, own.dtype))
    return cast(own, to.compute)


# --- cast -------------------------------------------------------------------------------------------------------------


@lowers("cast")
def _cast(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (out,) = outputs
    if out.dtype.name != "t1" or call.dtype().kind in ("int", "float"):
        pointwise(_cast_element)(call, builder, inputs, outputs)
        return
    # No value without a sign is below zero.
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        builder.store(out, where, const(1, out.dtype.compute))


def _cast_element(builder: Builder, call: Call, x: Scalar) -> Scalar:
    source, to = call.dtype(), call.params["to"]
    if to.kind == "bool":
        return x if source.kind == "bool" else x.ne(0)
    number = cast(x, U8) if source.kind == "bool" else x
    if to.kind == "float":
        return _cast_to_float(builder, call, number)
    if to.name == "t1":
        return select(number < 0, const(-1, to.compute), 1)
    saturate = call.params["saturate"]
    if source.kind == "float":
        whole = builder.let(unary(_ROUNDINGS[call.params["rounding_mode"]], number))
        return saturated(builder, whole, to) if saturate is not False else _wrapped_float(builder, whole, to)
    return _limited_integer(number, source, to) if saturate or to.values else cast(number, to.compute)


def _cast_to_float(builder: Builder, call: Call, number: Scalar) -> Scalar:
    source, to = call.dtype(), call.params["to"]
    saturate = to.is_saturating if call.params["saturate"] is None else call.params["saturate"]
    if not saturate:
        return to_float(builder, number, source, to)
    if number.dtype is F64 and to.compute is F32:
        # Limits come first: what lies above the largest number becomes it, whether it would round to it or not.
        return to_float(builder, builder.let(_limited_float(number, to)), source, to)
    return _limited_float(builder.let(to_float(builder, number, source, to)), to)


# --- bitcast ----------------------------------------------------------------------------------------------------------


def _code(x: Scalar, dtype: DType) -> Scalar:
    """What is stored for a value, as an unsigned integer."""
    unsigned = DTYPES[f"u{max(dtype.bits, 8)}"]
    if dtype.kind == "float":
        return bits(x, unsigned) if dtype is x.dtype else Bits(x, unsigned, dtype)
    if dtype.name == "t1":
        return cast(x > 0, U8)
    code = cast(x, unsigned)
    return code & ((1 << dtype.bits) - 1) if dtype.is_packed else code


@elementwise("bitcast")
def _bitcast(builder: Builder, call: Call, x: Scalar) -> Scalar:
    """Packed integers are cut to their own bits, and signs extended, when they are stored and loaded."""
    to: DType = call.params["to"]
    code = builder.let(_code(x, call.dtype()))
    if to.kind == "float":
        return bits(code, to) if to.compute is to else Bits(code, to.compute, to)
    if to.kind == "bool":
        builder.fail(code > 1, "a byte other than 0 and 1 is not a bool")
        return code.ne(0)
    if to.name == "t2":
        builder.fail(code.eq(2), "the two bits 10 are not a t2")
        return select(code.eq(3), const(-1, to.compute), cast(code, to.compute))
    if to.name == "t1":
        return select(code.ne(0), const(1, to.compute), -1)
    return cast(code, to.compute)


# --- quantization -----------------------------------------------------------------------------------------------------


def _along(call: Call, operand: KernelInput, where: tuple[Position, ...]) -> Scalar:
    """The scale or zero point that belongs to a position: the only one, or that of the index along the axis."""
    return operand[(where[axis_of(call.params["axis"], len(where))],)] if operand.shape else operand[()]


def _quantized(builder: Builder, to: DType, x: Scalar, scale: Scalar, point: Scalar | None) -> Scalar:
    """``saturate(round(x / scale) + point)``; steps are limited first, far outside of what any point brings back."""
    exact, reach = (I32, 2.0**20) if to.bits <= 16 else (I64, 2.0**40)
    steps = builder.let(unary("rint", x / scale))
    high = builder.let(select(steps > reach, const(reach, steps.dtype), steps))
    low = builder.let(select(high < -reach, const(-reach, steps.dtype), high))
    total = cast(select(unary("isnan", low), const(0, steps.dtype), low), exact)
    if point is not None:
        total = total + cast(point, exact)
    return cast(pair("max", pair("min", total, to.maximum), to.minimum), to.compute)


@lowers("quantize")
def _quantize(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x, scale, point), (out,) = inputs, outputs
    assert x is not None
    assert scale is not None
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        zero = None if point is None else _along(call, point, where)
        builder.store(out, where, _quantized(builder, out.dtype, x[where], _along(call, scale, where), zero))


@lowers("dequantize")
def _dequantize(
    call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x, scale, point), (out,) = inputs, outputs
    assert x is not None
    exact = I32 if x.dtype.bits <= 16 else I64
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        if scale is None:
            assert x.quantization is not None
            own = x.quantization(where)
        else:
            zero = None if point is None else _along(call, point, where)
            own = ElementQuantization(_along(call, scale, where), zero)
        steps = cast(x[where], exact)
        if own.zero is not None:
            steps = steps - cast(own.zero, exact)
        factor = cast(own.scale, out.dtype.compute)
        real = cast(steps, factor.dtype) * factor
        builder.store(out, where, real if own.offset is None else real + cast(own.offset, real.dtype))


@lowers("dynamic_quantize")
def _dynamic_quantize(
    _call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]
) -> None:
    (x,), (out, scale_out, point_out) = inputs, outputs
    assert x is not None
    to, kind = out.dtype, x.dtype.compute
    least, most = builder.local(0, kind), builder.local(0, kind)
    with builder.loops(x.shape) as where:
        value = builder.let(x[where])
        builder.assign(least, pair("min", least, value))
        builder.assign(most, pair("max", most, value))
    count = to.maximum - to.minimum
    step = builder.let(most / count - least / count)
    normal = const(x.dtype.least_normal, kind)
    chosen = select(least.eq(0) & most.eq(0), const(1, kind), select(step < normal, normal, step))
    scale = builder.let(rounded(chosen, x.dtype))
    point = builder.let(saturated(builder, unary("rint", const(to.minimum, kind) - least / scale), to))
    builder.store(scale_out, (), scale)
    builder.store(point_out, (), point)
    with builder.loops(x.shape, LoopKind.PARALLEL) as where:
        builder.store(out, where, _quantized(builder, to, x[where], scale, point))
