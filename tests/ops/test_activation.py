"""Activations against rational numbers, mpmath and PyTorch in f64."""

import os
from collections.abc import Callable
from fractions import Fraction
from math import copysign, inf, isfinite, isnan, nan
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from tests.ops.exact import each, f32, floats, i8, nearest
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES
from openinfer.errors import Code, GraphError
from openinfer.ops import OPS, Array, apply

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


def compute_dtype(question: Question) -> str:
    assert question.dtypes[0] is not None
    return question.dtypes[0].compute.name


def parameter(question: Question, name: str) -> Any:
    """A number as the op has it: rounded to the type the operand computes in."""
    value = question.params[name]
    if value is None or question.wide[0].dtype.kind != "f" or not isfinite(value):
        return value
    return nearest(Fraction(value), compute_dtype(question)) or value


# --- exact ones -------------------------------------------------------------------------------------------------------


def times(question: Question) -> Callable[[Any, Any], Any]:
    """Multiplication rounded once; Python's for integers."""
    if question.wide[0].dtype.kind != "f":
        return lambda a, b: a * b

    def multiply(a: float, b: float) -> float:
        exact = isfinite(a) and isfinite(b) and a and b
        return nearest(Fraction(a) * Fraction(b), compute_dtype(question)) if exact else float(np.float64(a) * b)

    return multiply


def plus(question: Question) -> Callable[[float, float], float]:
    def add(a: float, b: float) -> float:
        if isfinite(a) and isfinite(b) and a + b:
            return nearest(Fraction(a) + Fraction(b), compute_dtype(question))
        return a + b

    return add


def limited(value: Any, low: Any, high: Any) -> Any:
    """The middle one; +0 is above -0 and NaN stays."""

    def order(x: Any) -> Any:
        return (x, copysign(1, x))

    if isnan(value):
        return value
    return min(max(value, low, key=order), high, key=order)


def numbers(question: Question, values: Array) -> Array:
    return floats(values) if question.wide[0].dtype.kind == "f" else values


def relu(question: Question) -> Array:
    slope, low, high = (parameter(question, name) for name in ("negative_slope", "clamp_min", "clamp_max"))
    multiply = times(question)

    def one(x: Any) -> Any:
        bent = x if x > 0 or isnan(x) else multiply(slope, x) if slope else 0
        if question.wide[0].dtype.kind != "f":
            bent = wrap(question, bent)
        return limited(bent, -inf if low is None else low, high)

    return numbers(question, each(one, question.wide[0]))


def wrap(question: Question, value: int) -> int:
    dtype = question.dtypes[0]
    assert dtype is not None
    if dtype.values:
        return value
    code = value & (1 << dtype.bits) - 1
    return code - (1 << dtype.bits) if dtype.kind == "int" and code >> (dtype.bits - 1) else code


def clamp(question: Question) -> Array:
    low, high = parameter(question, "min"), parameter(question, "max")
    return numbers(question, each(lambda x: limited(x, low, high), question.wide[0]))


def prelu(question: Question) -> Array:
    multiply = times(question)
    return numbers(question, each(lambda x, slope: x if x > 0 else multiply(slope, x), *question.wide))


def threshold(question: Question) -> Array:
    value, replacement = parameter(question, "value"), parameter(question, "replacement")
    return numbers(question, each(lambda x: replacement if x <= value else x, question.wide[0]))


def hard_sigmoid(question: Question) -> Array:
    alpha, beta = parameter(question, "alpha"), parameter(question, "beta")
    multiply, add = times(question), plus(question)
    return floats(each(lambda x: limited(add(multiply(alpha, x), beta), 0.0, 1.0), question.wide[0]))


def hard_swish(question: Question) -> Array:
    multiply, add = times(question), plus(question)

    def one(x: float) -> Any:
        inner = limited(add(x, 3.0), 0.0, 6.0)
        share = inner if isnan(inner) else nearest(Fraction(inner) / 6, compute_dtype(question))
        return multiply(x, share)

    return floats(each(one, question.wide[0]))


# --- smooth ones ------------------------------------------------------------------------------------------------------

mp = mpmath.mp


def smooth(compute: Callable[..., Any], limits: tuple[float, float], *names: str) -> Judge:
    """A function by mpmath, with its values at minus and plus infinity."""

    def judge(question: Question) -> Array:
        given = [mp.mpf(parameter(question, name)) for name in names]

        def one(x: float) -> Any:
            if isfinite(x):
                return compute(mp.mpf(x), *given)
            return x if isnan(x) else limits[x > 0]

        return floats(each(one, question.wide[0]))

    return judge


def expm1(x: Any) -> Any:
    return mp.expm1(x) if x > -1e5 else mp.mpf(-1)


def logistic(x: Any) -> Any:
    if abs(x) > 1e5:
        return mp.mpf(x > 0)
    return 1 / (1 + mp.exp(-x))


def softplus(x: Any, beta: Any) -> Any:
    z = beta * x
    if abs(z) > 1e5:
        return max(z, mp.mpf(0)) / beta
    return mp.log1p(mp.exp(z)) / beta


def softplus_judge(question: Question) -> Any:
    rising = parameter(question, "beta") > 0
    return smooth(softplus, (0.0, inf) if rising else (-inf, 0.0), "beta")(question)


def gelu(x: Any) -> Any:
    return x * mp.erfc(-x / mp.sqrt(2)) / 2 if abs(x) < 1e5 else max(x, mp.mpf(0))


def gelu_tanh(x: Any) -> Any:
    return x * logistic(2 * mp.sqrt(2 / mp.pi) * (x + mp.mpf("0.044715") * x**3))


def gelu_judge(question: Question) -> Any:
    compute = gelu if question.params["approximate"] == "none" else gelu_tanh
    return smooth(compute, (nan, inf))(question)


def mish(x: Any) -> Any:
    if abs(x) > 1e5:
        return max(x, mp.mpf(0))
    return x * mp.tanh(mp.log1p(mp.exp(x)))


def elu_judge(question: Question) -> Any:
    alpha = parameter(question, "alpha")
    return smooth(lambda x, a: x if x > 0 else a * expm1(x), (-alpha, inf), "alpha")(question)


def celu(x: Any, alpha: Any) -> Any:
    z = x / alpha
    low = alpha * expm1(z) if z < 1e5 else copysign(inf, alpha)
    return max(x, mp.mpf(0)) + min(low, mp.mpf(0))


def celu_judge(question: Question) -> Any:
    alpha = parameter(question, "alpha")
    return smooth(celu, (-alpha, inf) if alpha > 0 else (-inf, inf), "alpha")(question)


def selu(x: Any) -> Any:
    scale, alpha = mp.mpf("1.0507009873554804934193349852946"), mp.mpf("1.6732632423543772848170429916717")
    return scale * (x if x > 0 else alpha * expm1(x))


SELU_LOW = -1.7580993408473768599402175208123


# --- along an axis ----------------------------------------------------------------------------------------------------


def along(function: Callable[..., Any]) -> Judge:
    """PyTorch in f64."""
    return lambda question: function(torch.from_numpy(question.wide[0].astype(np.float64)), question.params["axis"])


def glu(question: Question) -> Array:
    half, gate = np.split(question.wide[0], 2, axis=question.params["axis"])

    def one(a: float, b: float) -> Any:
        if isfinite(a) and isfinite(b):
            return mp.mpf(a) * logistic(mp.mpf(b))
        return float(torch.tensor(a, dtype=torch.float64) * torch.sigmoid(torch.tensor(b, dtype=torch.float64)))

    return floats(each(one, half, gate))


JUDGES: dict[str, Judge] = {
    "relu": relu,
    "clamp": clamp,
    "prelu": prelu,
    "threshold": threshold,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": hard_swish,
    "sigmoid": smooth(logistic, (0.0, 1.0)),
    "silu": smooth(lambda x: x * logistic(x), (nan, inf)),
    "softplus": softplus_judge,
    "softsign": smooth(lambda x: x / (1 + abs(x)), (nan, nan)),
    "elu": elu_judge,
    "celu": celu_judge,
    "selu": smooth(selu, (SELU_LOW, inf)),
    "gelu": gelu_judge,
    "mish": smooth(mish, (nan, inf)),
    "softmax": along(lambda x, axis: torch.softmax(x, axis).numpy()),
    "log_softmax": along(lambda x, axis: torch.log_softmax(x, axis).numpy()),
    "glu": glu,
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_an_independent_implementation(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


def test_every_activation_has_a_judge() -> None:
    assert {record.name for record in OPS.values() if record.family == "Activation"} == set(JUDGES)


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "low"), [("gelu", -13.0), ("silu", -95.0), ("mish", -95.0), ("sigmoid", -95.0)])
def test_the_negative_tail_keeps_its_relative_accuracy(name: str, low: float) -> None:
    exact = {"gelu": gelu, "silu": lambda x: x * logistic(x), "mish": mish, "sigmoid": logistic}[name]
    x = np.linspace(low, -1, 300).astype(np.float32)
    for kind, most in ((np.float32, 0.51 * 2**-23), (np.float64, 4 * 2**-53)):
        for one, got in zip(x.tolist(), apply(name, x.astype(kind)).tolist(), strict=True):
            want = exact(mp.mpf(one))
            if abs(want) > np.finfo(kind).tiny:
                assert abs((got - want) / want) < most, one


def test_softmax_of_large_values_does_not_overflow() -> None:
    assert apply("softmax", f32([1000, 1000])).tolist() == [0.5, 0.5]
    assert apply("log_softmax", f32([3e38, -3e38])).tolist() == [0, -inf]


# --- hand-made examples -----------------------------------------------------------------------------------------------


def test_relu_of_what_is_not_positive() -> None:
    result = apply("relu", f32([-inf, -5, -0.0, 0.0, nan, inf]))
    np.testing.assert_array_equal(result, [0, 0, 0, 0, nan, inf])
    assert not np.signbit(result[:4]).any()
    assert apply("relu", f32([-2, 3]), alpha=0.5).tolist() == [-1, 3]
    assert apply("relu", f32([-2, 3, 9]), negative_slope=0.5, clamp_min=-0.5, clamp_max=6).tolist() == [-0.5, 3, 6]
    assert apply("relu", i8([-128, 5]), negative_slope=2).tolist() == [0, 5]


def test_clamp_and_threshold() -> None:
    np.testing.assert_array_equal(apply("clamp", f32([-9, nan, 9]), min=-1, max=2), [-1, nan, 2])
    assert apply("clamp", i8([-9, 9]), min=3, max=2).tolist() == [2, 2]
    np.testing.assert_array_equal(apply("threshold", f32([1, 2, nan]), value=1, replacement=-7), [-7, 2, nan])
    assert apply("clamp", f32([2, nan]), max=10**400).tolist()[0] == 2


def test_prelu_has_one_slope_for_each_channel() -> None:
    x = -np.ones((1, 2, 2), np.float32)
    assert apply("prelu", x, f32([[2], [3]])).tolist() == [[[-2, -2], [-3, -3]]]


def test_glu_gates_the_first_half_with_the_second() -> None:
    assert apply("glu", f32([[1, 2], [0, 200]]), axis=0).tolist() == [[0.5, 2]]


# --- refusals ---------------------------------------------------------------------------------------------------------

X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    ("name", "operands", "params", "code", "message"),
    [
        ("relu", (i8([1]),), {"negative_slope": 0.5}, Code.BAD_PARAMETER, "'negative_slope' of 'relu' is 0.5"),
        ("relu", (i8([1]),), {"clamp_max": -inf}, Code.BAD_PARAMETER, "i8 has no infinity"),
        ("relu", (X,), {"alpha": 1, "negative_slope": 1}, Code.BAD_PARAMETER, "is given twice"),
        ("clamp", (i8([1]),), {"min": inf}, Code.BAD_PARAMETER, "'min' is inf, and i8 has no infinity"),
        ("clamp", (i8([1]),), {"max": 200}, Code.BAD_PARAMETER, "'max' of 'clamp' is 200, which is not i8"),
        ("prelu", (X, f32([1, 2])), {}, Code.SHAPE_MISMATCH, "f32[2] does not broadcast to f32[2, 3]"),
        ("prelu", (f32([1]), X), {}, Code.SHAPE_MISMATCH, "f32[2, 3] does not broadcast to f32[1]"),
        ("threshold", (X,), {"value": 1}, Code.WRONG_OPERANDS, "'threshold' needs the parameter 'replacement'"),
        ("softplus", (X,), {"beta": 0}, Code.BAD_PARAMETER, "'beta' is 0.0, and the op divides by it"),
        ("softplus", (X,), {"beta": 1e-60}, Code.BAD_PARAMETER, "'beta' is 1e-60, and the op divides by it in f32"),
        ("softplus", (X,), {"beta": -(10**400)}, Code.BAD_PARAMETER, "'beta' is -inf, and the op divides by it"),
        ("celu", (X,), {"alpha": nan}, Code.BAD_PARAMETER, "'alpha' is nan, and the op divides by it"),
        ("gelu", (X,), {"approximate": "erf"}, Code.BAD_PARAMETER, 'is "none" or "tanh", not "erf"'),
        ("softmax", (X,), {"axis": 2}, Code.BAD_PARAMETER, "there is no axis 2"),
        ("softmax", (f32(1),), {}, Code.BAD_PARAMETER, "there is no axis -1"),
        ("log_softmax", (X,), {"axis": -3}, Code.BAD_PARAMETER, "there is no axis -3"),
        ("glu", (X,), {}, Code.SHAPE_MISMATCH, "f32[2, 3] has no two halves along axis 1"),
        ("glu", (X,), {"axis": 5}, Code.BAD_PARAMETER, "there is no axis 5"),
    ],
)
def test_refusals(name: str, operands: Any, params: dict[str, Any], code: Code, message: str) -> None:
    with pytest.raises(GraphError) as refused:
        apply(name, *operands, **params)
    assert refused.value.code is code
    assert message in refused.value.diagnostics[0].message
