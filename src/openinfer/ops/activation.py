"""Activations.

Those that only compare, multiply and add are exact in the operand's own arithmetic; the others are computed in the next
wider type and rounded once. Their parameters are rounded to the type the operand computes in.
"""

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.ops.arguments import value_text
from openinfer.ops.binary import larger, smaller
from openinfer.ops.cases import anything, case, extremes, grid, random, unary
from openinfer.ops.functions import erfc, in_chunks
from openinfer.ops.numeric import wide, wrapped
from openinfer.ops.record import EXACT, REQUIRED, SUM, Call, Case, Param, ShapeRule, op, ulp
from openinfer.ops.shapes import axis_of, per_element, same, to_first
from openinfer.ops.types import FLOATS, NUMBERS, TERNARY, Shape, parameter_error, shape_error

FAMILY = "Activation"
ONE = "x: T -> T"


def _number(call: Call, name: str) -> Array:
    """A parameter in the type the operand computes in; an integer that no float reaches is infinite."""
    value, kind = call.params[name], call.dtype().compute.array
    if kind.kind == "f" and isinstance(value, int) and value.bit_length() > 1024:
        value = inf if value > 0 else -inf
    return np.asarray(value, kind)


# --- exact ones -------------------------------------------------------------------------------------------------------

RELU_PARAMS = (
    Param("negative_slope", "number", 0, "The factor where `x` is not positive.", aliases=("alpha",)),
    Param("clamp_min", "number", None, "The least result; none without it."),
    Param("clamp_max", "number", inf, "The largest result."),
)


def _limited(call: Call, x: Array, low: str, high: str) -> Array:
    """A value between two parameters; an absent or infinite limit is none."""
    least, most = call.params[low], call.params[high]
    if least is not None and least != -inf:
        x = larger(x, _number(call, low))
    return x if most == inf else smaller(x, _number(call, high))


def _require_limits(call: Call, low: str, high: str) -> None:
    """Integers have no infinity to be limited to."""
    for name, wrong in ((low, inf), (high, -inf)):
        if call.params[name] == wrong and call.dtype().kind != "float":
            raise parameter_error(name, f"{name!r} is {wrong}, and {call.dtype().name} has no infinity")


def _relu_shape(call: Call) -> tuple[Shape, ...]:
    _require_limits(call, "clamp_min", "clamp_max")
    return same(call)


def _relu_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    yield from unary()(rng, dtype)
    one = 1 if dtype.maximum >= 1 else 0
    for slope in (0.1, -1.5) if dtype.kind == "float" else (one, int(dtype.minimum)):
        yield case(dtype, random(rng, dtype, (3, 5)), negative_slope=slope)
        yield case(dtype, extremes(dtype), negative_slope=slope, clamp_max=one)
    yield case(dtype, anything(rng, dtype, (64,)), alpha=one, clamp_min=0)
    yield case(dtype, extremes(dtype), clamp_min=0, clamp_max=one)
    yield case(dtype, random(rng, dtype, (7,)), clamp_min=one, clamp_max=0)


@op(
    FAMILY,
    ONE,
    *RELU_PARAMS,
    shape=_relu_shape,
    cost=per_element(2),
    tolerance=EXACT,
    cases=_relu_cases,
    T=NUMBERS + TERNARY[1:],
)
def relu(call: Call, x: Array) -> Array:
    """Rectified linear unit, `y = min(max(x > 0 ? x : negative_slope * x, clamp_min), clamp_max)`.

    With `negative_slope = 0` it is `max(x, 0)`: infinities below zero give 0, NaN stays NaN. Integers wrap.
    """
    if call.params["negative_slope"] == 0:
        result = np.maximum(x, x.dtype.type(0))
        # Adding +0 turns -0, which NumPy may have kept, into +0.
        result = result + x.dtype.type(0) if x.dtype.kind == "f" else result
    else:
        result = np.where(x > 0, x, _number(call, "negative_slope") * x)
        result = wrapped(result, call.dtype()) if call.dtype().kind != "float" else result
    return _limited(call, result, "clamp_min", "clamp_max")


def _clamp_shape(call: Call) -> tuple[Shape, ...]:
    _require_limits(call, "min", "max")
    return same(call)


def _clamp_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    low, high = int(max(dtype.minimum, -2)), int(min(dtype.maximum, 3))
    near = {"min": 0.0, "max": 1.3} if dtype.kind == "float" else {"min": low, "max": int(dtype.maximum)}
    for given in ({}, near, {"min": low}, {"max": low}, {"min": low, "max": high}, {"min": high, "max": low}):
        for shape in ((), (7,), (2, 0, 3), (3, 5)):
            yield case(dtype, random(rng, dtype, shape), **given)
        yield case(dtype, anything(rng, dtype, (64,)), **given)
        yield case(dtype, extremes(dtype), **given)


@op(
    FAMILY,
    ONE,
    Param("min", "number", -inf, "The least result."),
    Param("max", "number", inf, "The largest result."),
    shape=_clamp_shape,
    cost=per_element(2),
    tolerance=EXACT,
    cases=_clamp_cases,
    T=NUMBERS + TERNARY,
)
def clamp(call: Call, x: Array) -> Array:
    """Limited to a range, `y = min(max(x, min), max)`; NaN stays NaN. Where `min > max` it is `max`."""
    return _limited(call, x, "min", "max")


def _prelu_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for one, other in (((), ()), ((7,), ()), ((2, 3, 5), (3, 1)), ((2, 3), (2, 3)), ((0, 3), (3,)), ((4, 3), (1, 1))):
        yield case(dtype, random(rng, dtype, one), random(rng, dtype, other))
    values = extremes(dtype)
    yield case(dtype, np.ascontiguousarray(np.broadcast_to(values, (len(values),) * 2)), values[:, None])


@op(
    FAMILY,
    "x: T, slope: T -> T",
    shape=to_first,
    cost=per_element(2),
    tolerance=EXACT,
    cases=_prelu_cases,
    T=NUMBERS + TERNARY,
)
def prelu(_call: Call, x: Array, slope: Array) -> Array:
    """Rectified linear unit with a given slope, `y = x > 0 ? x : slope * x`; `slope` broadcasts to `x`."""
    return np.where(x > 0, x, slope * x)


def _threshold_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    least, most = (int(dtype.minimum), int(dtype.maximum)) if dtype.kind != "float" else (-2.5, 0.1)
    for value, replacement in ((most, least), (least, most)):
        yield from unary({"value": value, "replacement": replacement})(rng, dtype)


@op(
    FAMILY,
    ONE,
    Param("value", "number", REQUIRED, "Results are above it."),
    Param("replacement", "number", REQUIRED, "The result for all others."),
    shape=same,
    cost=per_element(1),
    tolerance=EXACT,
    cases=_threshold_cases,
    T=NUMBERS + TERNARY,
)
def threshold(call: Call, x: Array) -> Array:
    """Values above a limit, `y = x <= value ? replacement : x`; NaN stays NaN."""
    return np.where(x <= _number(call, "value"), _number(call, "replacement"), x)


@op(
    FAMILY,
    ONE,
    Param("alpha", "float", 1 / 6, "The slope."),
    Param("beta", "float", 0.5, "The result for 0."),
    shape=same,
    cost=per_element(4),
    tolerance=EXACT,
    cases=unary({}, {"alpha": 0.2, "beta": 0.25}, {"alpha": -0.5}),
    T=FLOATS,
)
def hard_sigmoid(call: Call, x: Array) -> Array:
    """A sigmoid of straight lines, `y = min(max(alpha * x + beta, 0), 1)`; every step is rounded."""
    return _limits(_number(call, "alpha") * x + _number(call, "beta"), 0, 1)


@op(FAMILY, ONE, shape=same, cost=per_element(5), tolerance=EXACT, cases=unary(), T=FLOATS)
def hard_swish(_call: Call, x: Array) -> Array:
    """A swish of straight lines, `y = x * (min(max(x + 3, 0), 6) / 6)`; every step is rounded."""
    return x * (_limits(x + x.dtype.type(3), 0, 6) / x.dtype.type(6))


def _limits(x: Array, low: float, high: float) -> Array:
    return smaller(larger(np.asarray(x), x.dtype.type(low)), x.dtype.type(high))


# --- smooth ones ------------------------------------------------------------------------------------------------------


def _smooth(*params: Param, shape: ShapeRule = same, trials: tuple[dict[str, Any], ...] = ()) -> Callable[..., None]:
    """An op of a function of wide arrays, rounded once; ``trials`` are parameters to test besides the defaults."""

    def register(compute: Callable[[Call, Array], Array]) -> None:
        op(
            FAMILY,
            ONE,
            *params,
            shape=shape,
            cost=per_element(12),
            tolerance=ulp(4),
            cases=unary({}, *trials, low=-9, high=9),
            name=compute.__name__,
            doc=compute.__doc__,
            T=FLOATS,
        )(lambda call, x: in_chunks(lambda part: compute(call, wide(part)), x))

    return register


def _divisor(name: str) -> ShapeRule:
    """A parameter that divides: it has to be a number other than zero in the type the operand computes in."""

    def shape(call: Call) -> tuple[Shape, ...]:
        with np.errstate(all="ignore"):
            value = _number(call, name)
        if value == 0 or not np.isfinite(value):
            given = value_text(call.params[name])
            raise parameter_error(name, f"{name!r} is {given}, and the op divides by it in {call.dtype().compute.name}")
        return same(call)

    return shape


def _logistic(x: Array) -> Array:
    """``1 + exp(-x)``: what divides by it keeps its relative accuracy however small it gets."""
    np.negative(x, out=x)
    np.exp(x, out=x)
    x += 1
    return x


@_smooth()
def sigmoid(_call: Call, x: Array) -> Array:
    """The logistic function, `y = 1 / (1 + exp(-x))`."""
    return 1 / _logistic(x)


@_smooth()
def silu(_call: Call, x: Array) -> Array:
    """The swish, `y = x / (1 + exp(-x))`; NaN for minus infinity."""
    return x / _logistic(x.copy())


@_smooth(
    Param("beta", "float", 1.0, "How sharp the bend is; not 0."),
    shape=_divisor("beta"),
    trials=({"beta": 0.3}, {"beta": -2.0}),
)
def softplus(call: Call, x: Array) -> Array:
    """A smooth `max(x, 0)`, `y = ln(1 + exp(beta * x)) / beta`."""
    beta = _number(call, "beta").astype(x.dtype)
    bent = x * beta
    return (np.maximum(bent, 0) + np.log1p(np.exp(-np.abs(bent)))) / beta


@_smooth()
def softsign(_call: Call, x: Array) -> Array:
    """`y = x / (1 + |x|)`; NaN for infinities."""
    return x / (1 + np.abs(x))


@_smooth(Param("alpha", "float", 1.0, "Minus the limit at minus infinity."), trials=({"alpha": 0.3}, {"alpha": -2.0}))
def elu(call: Call, x: Array) -> Array:
    """Exponential linear unit, `y = x > 0 ? x : alpha * (exp(x) - 1)`."""
    return np.where(x > 0, x, _number(call, "alpha").astype(x.dtype) * np.expm1(np.minimum(x, 0)))


@_smooth(
    Param("alpha", "float", 1.0, "Minus the limit at minus infinity; not 0."),
    shape=_divisor("alpha"),
    trials=({"alpha": 0.3}, {"alpha": 2.5}, {"alpha": -0.5}),
)
def celu(call: Call, x: Array) -> Array:
    """Exponential linear unit with a slope of 1 at 0, `y = max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)`."""
    alpha = _number(call, "alpha").astype(x.dtype)
    return np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0)


SELU_SCALE = np.longdouble("1.0507009873554804934193349852946")
SELU_ALPHA = np.longdouble("1.6732632423543772848170429916717")


@_smooth()
def selu(_call: Call, x: Array) -> Array:
    """Scaled exponential linear unit, `y = s * (x > 0 ? x : a * (exp(x) - 1))`, `s = 1.0507..`, `a = 1.6732..`."""
    scale, alpha = x.dtype.type(SELU_SCALE), x.dtype.type(SELU_ALPHA)
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


_SLOPE = np.sqrt(8 / np.longdouble("3.14159265358979323846264338327950288"))
_CUBIC = np.longdouble("0.044715")
APPROXIMATE = Param("approximate", "str", "none", "How the normal distribution is computed.", ("none", "tanh"))


@_smooth(APPROXIMATE, trials=({"approximate": "tanh"},))
def gelu(call: Call, x: Array) -> Array:
    """Gaussian error linear unit, `y = x * erfc(-x / sqrt(2)) / 2`; NaN for minus infinity.

    With `approximate="tanh"`, `y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))`.
    """
    if call.params["approximate"] == "none":
        return x * erfc(x * -(np.sqrt(x.dtype.type(2)) / 2)) / 2
    # (1 + tanh(z)) / 2 is the logistic function of 2*z, which does not cancel for negative x.
    return x / _logistic((x + x.dtype.type(_CUBIC) * x * x * x) * x.dtype.type(_SLOPE))


@_smooth()
def mish(_call: Call, x: Array) -> Array:
    """`y = x * tanh(ln(1 + exp(x)))`; NaN for minus infinity."""
    # tanh(ln(1 + e)) = n / (n + 2) for n = e * (e + 2); from 50 on it is 1.
    power = np.exp(np.minimum(x, 50))
    power *= power + 2
    return x * (power / (power + 2))


# --- along an axis ----------------------------------------------------------------------------------------------------

AXIS = Param("axis", "int", -1, "The axis that is normalised.")


def _axis_shape(call: Call) -> tuple[Shape, ...]:
    axis_of(call.params["axis"], len(call.shape(0)))
    return same(call)


def _axis_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, axis in (((1,), 0), ((7,), -1), ((3, 5), 0), ((2, 3, 4), 1), ((2, 3, 4), -3), ((3, 0), -1), ((0, 3), 1)):
        yield case(dtype, random(rng, dtype, shape), axis=axis)
    yield case(dtype, random(rng, dtype, (4, 300), -9, 9))
    yield case(dtype, anything(rng, dtype, (5, 9)))
    values = extremes(dtype)
    yield case(dtype, values[np.isfinite(values)][None])
    yield case(dtype, np.stack([values, np.full_like(values, -np.inf), np.where(np.isnan(values), 1, values)]))


def _shifted(call: Call, x: Array) -> tuple[int, Array]:
    """The axis, and wide values less the largest along it."""
    axis = axis_of(call.params["axis"], x.ndim)
    values = wide(x)
    values -= np.max(x, axis=axis, keepdims=True, initial=-inf)
    return axis, values


def _limits_of(call: Call) -> tuple[float, float]:
    """The unit roundoff and the smallest number of the type that sums are computed in."""
    return (2.0**-53, 2.0**-1074) if call.dtype().name == "f64" else (2.0**-24, 2.0**-149)


def _softmax_bound(call: Call, x: Array) -> Array:
    """Errors of the exponents, of their sum in any order, and of the division; and one step below normal numbers."""
    axis, shifted = _shifted(call, x)
    powers = np.exp(shifted)
    share = powers / powers.sum(axis=axis, keepdims=True)
    units = 2 * x.shape[axis] + 10 + np.abs(shifted)
    roundoff, smallest = _limits_of(call)
    return np.nan_to_num(share * units * roundoff) + smallest


@op(
    FAMILY,
    ONE,
    AXIS,
    shape=_axis_shape,
    cost=per_element(12),
    tolerance=SUM,
    cases=_axis_cases,
    bound=_softmax_bound,
    T=FLOATS,
)
def softmax(call: Call, x: Array) -> Array:
    """Exponentials that add up to 1, `y = exp(x - max(x)) / sum(exp(x - max(x)))` along `axis`.

    NaN where the largest value is infinite or one is NaN.
    """
    axis, values = _shifted(call, x)
    np.exp(values, out=values)
    values /= values.sum(axis=axis, keepdims=True)
    return values


def _log_softmax_bound(call: Call, x: Array) -> Array:
    """Errors of the difference, of the sum of exponentials in any order, of its logarithm and of the last step."""
    axis, shifted = _shifted(call, x)
    logarithm = np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    units = 2 * x.shape[axis] + 5 + np.abs(shifted) + 4 * np.abs(logarithm) + np.abs(shifted - logarithm)
    return np.nan_to_num(units * _limits_of(call)[0])


@op(
    FAMILY,
    ONE,
    AXIS,
    shape=_axis_shape,
    cost=per_element(13),
    tolerance=SUM,
    cases=_axis_cases,
    bound=_log_softmax_bound,
    T=FLOATS,
)
def log_softmax(call: Call, x: Array) -> Array:
    """The logarithm of softmax, `y = x - max(x) - ln(sum(exp(x - max(x))))` along `axis`."""
    axis, values = _shifted(call, x)
    values -= np.log(np.exp(values).sum(axis=axis, keepdims=True))
    return values


def _glu_shape(call: Call) -> tuple[Shape, ...]:
    shape = list(call.shape(0))
    axis = axis_of(call.params["axis"], len(shape))
    if shape[axis] % 2:
        raise shape_error(f"{call.input(0)} has no two halves along axis {axis}", 0)
    shape[axis] //= 2
    return (tuple(shape),)


def _glu_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, axis in (((2,), 0), ((6,), -1), ((3, 4, 5), 1), ((4, 3), -2), ((3, 0), -1), ((0, 4), 1)):
        yield case(dtype, random(rng, dtype, shape, -9, 9), axis=axis)
    yield case(dtype, anything(rng, dtype, (8, 8)))
    yield case(dtype, np.stack(grid(dtype, 2)), axis=0)


@op(
    FAMILY,
    ONE,
    Param("axis", "int", -1, "The axis that is halved."),
    shape=_glu_shape,
    cost=per_element(12),
    tolerance=ulp(4),
    cases=_glu_cases,
    T=FLOATS,
)
def glu(call: Call, x: Array) -> Array:
    """Gated linear unit, `y = a / (1 + exp(-b))`, with `a` and `b` the first and second half of `x` along `axis`."""
    half, gate = np.split(x, 2, axis=axis_of(call.params["axis"], x.ndim))
    return wide(half) / _logistic(wide(gate))
