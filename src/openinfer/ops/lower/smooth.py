"""Smooth activations, arranged so that no step loses what the result needs.

Exponentials never overflow, and where one is too small for its type, a part of it is multiplied in last. Where an
argument must be more exact than its type, or steps are too many to be rounded one by one, f32 is computed with f64
arithmetic around an f32 exponential, and f64 with what roundings lost counted by the derivative.
"""

from collections.abc import Sequence
from math import inf

from openinfer.loops.build import Builder, cast, const, math, select, unary
from openinfer.loops.ir import Buffer, LoopKind, Math, Scalar
from openinfer.ops.lower.activation import at_least, at_most, number
from openinfer.ops.lower.elementwise import elementwise
from openinfer.ops.lower.operand import KernelInput, lowers
from openinfer.ops.record import Call
from openinfer.ops.shapes import axis_of
from openinfer.ops.types import F32, F64

_STEP = {F32: (65.6875, 2.966751837202674e-29), F64: (600.25, 2.0641309109295095e-261)}
"""A distance ``c`` to shift exponents by, and ``exp(-c)``: of those that the types have almost exactly."""


def _horner(coefficients: Sequence[float], x: Scalar) -> Scalar:
    """A polynomial, the coefficient of the lowest power first."""
    total: Scalar = const(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def _decay(builder: Builder, size: Scalar) -> Scalar:
    """``exp(-size)`` in f64, as accurate as the f32 function is, for an f64 number that is not negative."""
    step, factor = _STEP[F32]
    near = builder.let(cast(size, F32))
    rest = select(near < 1000, size - cast(near, F64), 0)
    far = builder.let(near > step)
    power = builder.let(cast(math("exp", select(far, step - near, -near)), F64))
    shifted = builder.let(power * select(far, const(factor, F64), 1))
    return shifted - shifted * rest


# --- logistic ones ----------------------------------------------------------------------------------------------------


def gated(builder: Builder, a: Scalar, b: Scalar, *, shifts: int, rest: Scalar | None = None) -> Scalar:
    """``a / (1 + exp(-b))``. ``rest`` is a small part of ``b`` that the type has no room for.

    Where ``exp(b)`` could be too small for its type while the result is not, up to ``shifts`` factors come out of it.
    """
    dtype = b.dtype
    step, factor = _STEP[dtype]
    size = builder.let(unary("abs", b))
    negative = builder.let(b < 0)
    far = [builder.let(size > step * (one + 1)) for one in range(shifts)]
    power = -size
    for one, beyond in enumerate(far):
        # Exact: the shift makes a large number smaller.
        power = select(beyond, step * (one + 1) - size, builder.let(power))
    small = builder.let(math("exp", power))
    if rest is not None:
        small = builder.let(small + small * select(negative, rest, -rest))
    top = select(negative, a * small, a)
    bottom = select(far[0], const(1, dtype), 1 + small) if far else 1 + small
    result = builder.let(top / bottom)
    for beyond in far:
        result = builder.let(select(negative & beyond, result * factor, result))
    return result


elementwise("sigmoid")(lambda builder, _call, x: gated(builder, const(1, x.dtype), x, shifts=0))
elementwise("silu")(lambda builder, _call, x: gated(builder, x, x, shifts=1))


@lowers("glu")
def _glu(call: Call, builder: Builder, inputs: tuple[KernelInput | None, ...], outputs: tuple[Buffer, ...]) -> None:
    (x,), (out,) = inputs, outputs
    assert x is not None
    axis = axis_of(call.params["axis"], len(x.shape))
    with builder.loops(out.shape, LoopKind.PARALLEL) as where:
        second = (*where[:axis], where[axis] + out.shape[axis], *where[axis + 1 :])
        value, gate = builder.let(x[where]), builder.let(x[second])
        builder.store(out, where, gated(builder, value, gate, shifts=2))


_MISH_ONE = {F32: 20.0, F64: 50.0}
"""From here on mish is its operand."""


@elementwise("mish")
def _mish(builder: Builder, call: Call, x: Scalar) -> Scalar:
    if ("mish", call.dtype().name) in builder.short:
        return Math("mish", (x,), call.dtype())
    # tanh(ln(1 + e)) = n / (n + 2) for n = e * (e + 2); far below zero it is e.
    step, factor = _STEP[x.dtype]
    most = _MISH_ONE[x.dtype]
    far = builder.let(x < -step)
    power = math("exp", select(far, x + step, select(x > most, const(most, x.dtype), x)))
    wide, single = builder.let(cast(x, F64)), builder.let(cast(power, F64))
    grown = builder.let(single * (single + 2))
    return cast(select(far, wide * single * factor, wide * (grown / (grown + 2))), x.dtype)


# --- softplus and exponential units -----------------------------------------------------------------------------------

_LOG1P = (
    1.999999999802809,
    0.66666679307419,
    0.3999869090456686,
    0.28620722061918985,
    0.21393251171663433,
    0.244130660265108,
)
"""``ln(1 + e) = s * p(s * s)`` with ``s = e / (2 + e)``, for e from 0 to 1: within 2**-33 of it."""


@elementwise("softplus")
def _softplus(builder: Builder, call: Call, x: Scalar) -> Scalar:
    """``(bent > 0 ? x : 0) + log1p(exp(-|bent|)) / beta`` with ``bent = beta * x``, which is exact for f32."""
    if number(call, "beta").value == 1 and ("softplus", call.dtype().name) in builder.short:
        return Math("softplus", (x,), call.dtype())
    wide = builder.let(cast(x, F64))
    beta = const(number(call, "beta").value, F64)
    bent = builder.let(wide * beta)
    size = builder.let(unary("abs", bent))
    if x.dtype is F32:
        small = builder.let(_decay(builder, size))
        ratio = builder.let(small / (2 + small))
        builder.note("The logarithm is an odd polynomial in small / (2 + small).")
        bend = ratio * _horner(_LOG1P, builder.let(ratio * ratio))
    else:
        small = builder.let(math("exp", -size))
        # Below zero the derivative counts what the product lost; above, x stands there as it is.
        lost = builder.let(_product_rest(wide, beta, bent) * small / (1 + small))
        bend = math("log1p", small) + select((bent <= 0) & (bent > -1000), lost, 0)
    return cast(select(bent > 0, wide, 0) + bend / beta, x.dtype)


elementwise("softsign")(lambda _builder, _call, x: x / (1 + unary("abs", x)))


@elementwise("elu")
def _elu(_builder: Builder, call: Call, x: Scalar) -> Scalar:
    return select(x > 0, x, number(call, "alpha") * math("expm1", at_most(x, const(0, x.dtype))))


@elementwise("celu")
def _celu(builder: Builder, call: Call, x: Scalar) -> Scalar:
    alpha = const(number(call, "alpha").value, F64)
    if alpha.value == 1:
        return select(x > 0, x, math("expm1", at_most(x, const(0, x.dtype))))
    wide = builder.let(cast(x, F64))
    bent = builder.let(wide / alpha)
    below = builder.let(math("expm1", bent))
    if x.dtype is F64:
        lost = builder.let((1 + below) * (-_product_rest(bent, alpha, wide) / alpha))
        below = below + select((bent > -1000) & (below < inf), lost, 0)
    scaled = builder.let(alpha * below)
    return cast(at_least(wide, const(0, F64)) + at_most(scaled, const(0, F64)), x.dtype)


_SELU = (1.0507009873554805, 1.7580993408473768)
"""The scale, and the scale times alpha."""


@elementwise("selu")
def _selu(_builder: Builder, _call: Call, x: Scalar) -> Scalar:
    scale, below = (const(one, x.dtype) for one in _SELU)
    return select(x > 0, scale * x, below * math("expm1", at_most(x, const(0, x.dtype))))


# --- gelu -------------------------------------------------------------------------------------------------------------

_SLOPE = (1.5957691216057308, -9.96930880911092e-17)
_CUBIC = (0.044715, 2.1960211427085595e-18)
"""``sqrt(8 / pi)`` and 0.044715, each as the sum of two f64 numbers."""

_GELU_BY_TANH = (
    "Gaussian error linear unit, `y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))`; "
    "NaN for minus infinity."
)


@elementwise("gelu")
def _gelu(builder: Builder, call: Call, x: Scalar) -> Scalar:
    if call.params["approximate"] == "none":
        return math("gelu", x)
    builder.summarize(_GELU_BY_TANH)
    wide = builder.let(cast(x, F64))
    if x.dtype is F64:
        bent, rest = _tanh_argument_exact(builder, wide)
        return gated(builder, wide, bent, shifts=1, rest=rest)
    bent = builder.let((wide + wide * wide * wide * _CUBIC[0]) * _SLOPE[0])
    small = builder.let(_decay(builder, unary("abs", bent)))
    return cast(select(bent < 0, wide * small, wide) / (1 + small), x.dtype)


def _product_rest(a: Scalar, b: Scalar, product: Scalar) -> Scalar:
    """What the rounding of an f64 product lost."""
    return math("fma", a, b, -product)


def _tanh_argument_exact(builder: Builder, x: Scalar) -> tuple[Scalar, Scalar]:
    """``sqrt(8 / pi) * x * (1 + 0.044715 * x * x)`` as the sum of two f64 numbers."""
    (cubic, cubic_low), (slope, slope_low) = ([const(one, F64) for one in pair] for pair in (_CUBIC, _SLOPE))
    square = builder.let(x * x)
    grown = builder.let(cubic * square)
    grown_low = _product_rest(cubic, square, grown) + cubic * _product_rest(x, x, square) + cubic_low * square
    bend = builder.let(1 + grown)
    back = builder.let(bend - 1)
    bend_low = builder.let((1 - (bend - back)) + (grown - back) + grown_low)
    line = builder.let(slope * x)
    line_low = _product_rest(slope, x, line) + slope_low * x
    total = builder.let(line * bend)
    rest = builder.let(_product_rest(line, bend, total) + line * bend_low + line_low * bend)
    return total, builder.let(select(unary("abs", total) < 2000, rest, 0))
