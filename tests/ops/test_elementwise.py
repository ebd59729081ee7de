"""Binary, ternary, comparison and unary ops against Python's integers, rational numbers and mpmath."""

import math
import operator
import os
from collections.abc import Callable
from fractions import Fraction
from math import copysign, inf, isfinite, isinf, isnan, nan
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from tests.ops.exact import each, f32, floats, i8, i32, nearest, real
from tests.ops.harness import Judge, Question, every_dtype, judge_op

from openinfer.dtypes import DTYPES
from openinfer.errors import Code, GraphError
from openinfer.ops import OPS, Array, Call, ReferenceKernel, TensorType, apply, complete, infer
from openinfer.ops.functions import erf, erfc

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")


def python(function: Callable[..., Any]) -> Judge:
    """Integers and bools as Python computes them."""
    return lambda question: each(function, *question.wide)


def compute_dtype(question: Question) -> str:
    assert question.dtypes[0] is not None
    return question.dtypes[0].compute.name


def rational(exact: Callable[..., Fraction | int], fallback: Callable[..., Any]) -> Judge:
    """Integers as Python's; floats as fractions rounded once. Infinities, NaN and zeros are IEEE 754's."""

    def judge(question: Question) -> Array:
        dtype = compute_dtype(question)

        def one(*numbers: Any) -> Any:
            if all(map(isfinite, numbers)):
                try:
                    result = exact(*map(Fraction, numbers))
                except ZeroDivisionError:
                    result = 0
                if result:
                    return nearest(Fraction(result), dtype)
            return float(fallback(*map(np.float64, numbers)))

        if question.wide[0].dtype.kind != "f":
            return each(exact, *question.wide)
        return floats(each(one, *question.wide))

    return judge


# --- division ---------------------------------------------------------------------------------------------------------


def truncated(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def dividing(integer: Callable[[int, int], int], real_one: Callable[[float, float, str], float]) -> Judge:
    def judge(question: Question) -> Array:
        if question.wide[0].dtype.kind == "f":
            dtype = compute_dtype(question)
            return floats(each(lambda a, b: real_one(a, b, dtype), *question.wide))
        mask = question.params["div_by_zero_mask"]
        return each(lambda a, b: integer(a, b) if b else mask, *question.wide)

    return judge


def quotient(a: float, b: float, dtype: str) -> float:
    if a and b and isfinite(a) and isfinite(b):
        return nearest(Fraction(a) / Fraction(b), dtype)
    return float(np.float64(a) / np.float64(b))


def floored(a: float, b: float, dtype: str) -> float:
    result = quotient(a, b, dtype)
    return copysign(math.floor(result), result) if isfinite(result) else result


def remainder(a: float, b: float, _dtype: str) -> float:
    return math.fmod(a, b) if isfinite(a) and b and not isnan(b) else nan


def modulo(a: float, b: float, dtype: str) -> float:
    rest = remainder(a, b, dtype)
    if isnan(rest) or (rest and (rest < 0) == (b < 0)):
        return rest
    if not rest:
        return copysign(0.0, b)
    return b if isinf(b) else nearest(Fraction(rest) + Fraction(b), dtype)


# --- functions --------------------------------------------------------------------------------------------------------


def smallest(a: float, b: float) -> float:
    return nan if isnan(a) or isnan(b) else min((a, b), key=lambda x: (x, copysign(1, x)))


def largest(a: float, b: float) -> float:
    return nan if isnan(a) or isnan(b) else max((a, b), key=lambda x: (x, copysign(1, x)))


def power(a: Any, b: Any) -> Any:
    if isinstance(a, int):
        return a**b
    if not (isfinite(a) and isfinite(b) and a):
        odd = isfinite(b) and b == int(b) and int(b) % 2
        return (copysign(inf, a) if odd else inf) if a == 0 and b < 0 else math.pow(a, b)
    if a < 0 and b != int(b):
        return nan
    sign = -1 if a < 0 and int(b) % 2 else 1
    logarithm = mpmath.log(abs(mpmath.mpf(a))) * b
    if abs(logarithm) > 1e5:
        return sign * (inf if logarithm > 0 else 0.0)
    return sign * mpmath.exp(logarithm)


def powers(question: Question) -> Array:
    values = each(power, *question.wide)
    return values if question.wide[0].dtype.kind != "f" else floats(values)


def angle(a: float, b: float) -> Any:
    return mpmath.atan2(a, b) if a and b and isfinite(a) and isfinite(b) else math.atan2(a, b)


def exponential(name: str) -> Callable[[float], Any]:
    """Where these are beyond all floats, mpmath would compute an exponent of a thousand digits."""
    function = getattr(mpmath, name)
    return lambda x: function(x) if abs(x) < 1e5 else known(name, x)


def known(name: str, x: float) -> float:
    return float(getattr(torch, name)(torch.tensor(x, dtype=torch.float64)).item())


def function(name: str, compute: Callable[[Any], Any]) -> Judge:
    """A function by mpmath; at infinities, NaN, poles and zeros as PyTorch has it in f64."""

    def one(x: float) -> Any:
        if not isfinite(x) or x in (-1, 0, 1):
            return known(name, x)
        return real(compute(mpmath.mpf(x)))

    return lambda question: floats(each(one, question.wide[0]))


def square_root(question: Question) -> Array:
    def one(x: float) -> float:
        if not isfinite(x) or x <= 0:
            return float(np.sqrt(np.float64(x)))
        mantissa, exponent = mpmath.sqrt(x).man_exp
        return nearest(Fraction(int(mantissa)) * Fraction(2) ** exponent, compute_dtype(question))

    return floats(each(one, question.wide[0]))


def to_integer(rounding: Callable[[float], int]) -> Judge:
    """Rounded by Python's integers; a zero keeps the sign of what it came from."""
    return lambda question: floats(
        each(lambda x: copysign(rounding(x), x) if isfinite(x) else x, question.wide[0]),
    )


def sign(x: Any) -> Any:
    return x if x == 0 or x != x else int(x > 0) - int(x < 0)  # noqa: PLR0124  (NaN)


def count_bits(question: Question) -> Array:
    assert question.dtypes[0] is not None
    mask = (1 << question.dtypes[0].bits) - 1
    return each(lambda x: (x & mask).bit_count(), question.wide[0])


def shift(move: Callable[[int, int], int]) -> Judge:
    def judge(question: Question) -> Array:
        values, counts = question.wide
        return each(move, values, question.params["bits"] if counts is None else counts)

    return judge


def infinite_fma(a: Any, b: Any, c: Any) -> Any:
    """A product of finite numbers is finite, whatever f64 makes of it: an infinite addend wins."""
    return np.where(np.isfinite(a) & np.isfinite(b) & np.isinf(c), c, a * b + c)


JUDGES: dict[str, Judge] = {
    "add": rational(operator.add, operator.add),
    "sub": rational(operator.sub, operator.sub),
    "mul": rational(operator.mul, operator.mul),
    "div": dividing(truncated, quotient),
    "floor_div": dividing(operator.floordiv, floored),
    "rem": dividing(lambda a, b: a - b * truncated(a, b), remainder),
    "mod": dividing(operator.mod, modulo),
    "pow": powers,
    "min": python(smallest),
    "max": python(largest),
    "atan2": lambda question: floats(each(angle, *question.wide)),
    "and": python(operator.and_),
    "or": python(operator.or_),
    "xor": python(operator.xor),
    "shl": shift(operator.lshift),
    "shr": shift(operator.rshift),
    "fma": rational(lambda a, b, c: a * b + c, infinite_fma),
    "where": python(lambda condition, a, b: a if condition else b),
    "eq": python(operator.eq),
    "ne": python(operator.ne),
    "lt": python(operator.lt),
    "le": python(operator.le),
    "gt": python(operator.gt),
    "ge": python(operator.ge),
    "abs": python(abs),
    "neg": python(operator.neg),
    "sign": python(sign),
    "recip": rational(lambda x: 1 / x, lambda x: 1 / x),
    "square": rational(lambda x: x * x, lambda x: x * x),
    "sqrt": square_root,
    "floor": to_integer(math.floor),
    "ceil": to_integer(math.ceil),
    "round": to_integer(round),
    "trunc": to_integer(math.trunc),
    "not": lambda question: each(
        operator.not_ if question.wide[0].dtype.kind == "b" else operator.invert, question.wide[0]
    ),
    "popcount": count_bits,
    "rsqrt": function("rsqrt", lambda x: 1 / mpmath.sqrt(x)),
    "exp": function("exp", exponential("exp")),
    "exp2": function("exp2", lambda x: mpmath.power(2, x) if abs(x) < 1e5 else known("exp2", float(x))),
    "expm1": function("expm1", exponential("expm1")),
    "log": function("log", mpmath.log),
    "log2": function("log2", lambda x: mpmath.log(x) / mpmath.log(2)),
    "log10": function("log10", mpmath.log10),
    "log1p": function("log1p", mpmath.log1p),
    "sin": function("sin", mpmath.sin),
    "cos": function("cos", mpmath.cos),
    "tan": function("tan", mpmath.tan),
    "asin": function("asin", mpmath.asin),
    "acos": function("acos", mpmath.acos),
    "atan": function("atan", mpmath.atan),
    "sinh": function("sinh", exponential("sinh")),
    "cosh": function("cosh", exponential("cosh")),
    "tanh": function("tanh", mpmath.tanh),
    "asinh": function("asinh", mpmath.asinh),
    "acosh": function("acosh", mpmath.acosh),
    "atanh": function("atanh", mpmath.atanh),
    "erf": function("erf", mpmath.erf),
    "is_finite": python(isfinite),
    "is_nan": python(isnan),
    "is_inf": python(isinf),
    "is_neg": python(lambda x: x < 0),
}


@pytest.mark.parametrize(("name", "dtype"), every_dtype(JUDGES))
def test_agrees_with_an_independent_implementation(name: str, dtype: str) -> None:
    judge_op(name, DTYPES[dtype], JUDGES[name])


def test_every_elementwise_op_has_a_judge() -> None:
    families = ("Binary", "Ternary", "Compare", "Unary", "Test")
    assert {record.name for record in OPS.values() if record.family in families} == set(JUDGES)


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_fma_is_rounded_once_where_two_roundings_would_differ(kind: Any) -> None:
    rng = np.random.default_rng(3)
    count, bits = 4000, np.finfo(kind).nmant
    a, b = (rng.uniform(1, 2, count).astype(kind) for _ in range(2))
    ties = (rng.integers(1, 8, count) * 2.0 ** -(bits + rng.integers(0, 3, count))).astype(kind)
    near = rng.choice([-1, 1], count).astype(kind)
    step = np.finfo(kind).eps * rng.integers(1, 99, count).astype(kind)
    cases = (
        # The product is half a unit of c, less what wider arithmetic of twice the bits cuts off.
        ((1 + step) * np.finfo(kind).epsneg, 1 - step, a),
        (a, b, -a * b),  # only the error of the product is left
        (a, b, ties),
        (near, ties, near * rng.integers(1, 4, count).astype(kind)),  # halfway between neighbours
        (a * kind(2.0**-60), b * kind(2.0**-70), ties),
        (a * (np.finfo(kind).max / 4), b, -a * (np.finfo(kind).max / 4)),
        (a * np.finfo(kind).tiny, b * kind(2.0**-3), ties * np.finfo(kind).tiny),
    )
    name = np.dtype(kind).name.replace("float", "f")
    for x, y, z in cases:
        want = [
            nearest(Fraction(p) * Fraction(q) + Fraction(r), name)
            for p, q, r in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
        ]
        np.testing.assert_array_equal(apply("fma", x, y, z), np.array(want, kind))


@pytest.mark.parametrize(("ours", "exact"), [(erf, mpmath.erf), (erfc, mpmath.erfc)])
def test_the_error_function_has_its_relative_accuracy_everywhere(ours: Any, exact: Any) -> None:
    grid = [
        np.linspace(-6, 26, 1500),
        np.logspace(-300, 0.5, 100),
        -np.logspace(-20, 0.7, 100),
        np.array([0.9999999, 1, 26]),
    ]
    x = np.concatenate(grid)
    want = [exact(mpmath.mpf(one)) for one in x.tolist()]
    error = [abs((one - there) / there) for one, there in zip(ours(x).tolist(), want, strict=True)]
    assert max(error) < 1e-12, x[int(np.argmax(error))]


@pytest.mark.parametrize(("ours", "exact"), [(erf, mpmath.erf), (erfc, mpmath.erfc)])
def test_the_error_function_of_wider_arguments_uses_all_their_bits(ours: Any, exact: Any) -> None:
    x = np.linspace(-5, 25, 200).astype(np.longdouble) / np.sqrt(np.longdouble(2))
    for one, got in zip(x, ours(x), strict=True):
        high = float(one)
        want = exact(mpmath.mpf(high) + mpmath.mpf(float(one - high)))
        assert abs((float(got) - want) / want) < 6e-16


# --- hand-made examples -----------------------------------------------------------------------------------------------


def test_integers_divide_as_documented() -> None:
    a, b = i8([7, -7, 7, -7, -128]), i8([2, 2, -2, -2, -1])
    assert apply("div", a, b).tolist() == [3, -3, -3, 3, -128]
    assert apply("floor_div", a, b).tolist() == [3, -4, -4, 3, -128]
    assert apply("rem", a, b).tolist() == [1, -1, 1, -1, 0]
    assert apply("mod", a, b).tolist() == [1, 1, -1, -1, 0]
    assert apply("div", i8([5]), i8([0]), div_by_zero_mask=9).tolist() == [9]


def test_four_bit_integers_wrap_at_four_bits() -> None:
    seven = np.array([7], DTYPES["i4"].array)
    assert apply("add", seven, seven).astype(int).tolist() == [-2]
    assert apply("shl", seven, bits=1).astype(int).tolist() == [-2]
    assert apply("popcount", np.array([-1], DTYPES["i4"].array)).astype(int).tolist() == [4]


def test_zeros_of_either_sign_are_ordered() -> None:
    a, b = f32([0.0, -0.0, 0.0, -0.0]), f32([-0.0, 0.0, 0.0, -0.0])
    assert np.signbit(apply("min", a, b)).tolist() == [True, True, False, True]
    assert np.signbit(apply("max", a, b)).tolist() == [False, False, False, True]


def test_filter_is_where() -> None:
    assert OPS["filter"] is OPS["where"]
    assert apply("filter", np.array([True, False]), i8([1, 2]), i8([3, 4])).tolist() == [1, 4]


@pytest.mark.parametrize(
    ("name", "values", "each_one", "together"),
    [
        ("is_finite", [1, inf], [True, False], False),
        ("is_finite", [], [], True),
        ("is_nan", [1, nan], [False, True], True),
        ("is_inf", [1, nan], [False, False], False),
        ("is_inf", [1, -inf], [False, True], True),
        ("is_neg", [-0.0, nan, 1], [False, False, False], False),
        ("is_neg", [1, -2], [False, True], True),
    ],
)
def test_tests_are_reduced_where_the_graph_declares_a_scalar(
    name: str, values: list[float], each_one: list[bool], together: bool
) -> None:
    array, boolean = np.array(values, np.float32), DTYPES["bool"]
    kind = TensorType(DTYPES["f32"], array.shape)
    for wanted, answer in ((TensorType(boolean, array.shape), each_one), (TensorType(boolean, ()), together)):
        call = infer(OPS[name], Call((kind,), complete(OPS[name], {}), (wanted,)))
        assert call.outputs == (wanted,)
        (result,) = ReferenceKernel(OPS[name], call, (kind.dtype,))((array,))
        assert result.tolist() == answer
        assert result.dtype == np.bool_


# --- refusals ---------------------------------------------------------------------------------------------------------

ONE, ZERO, MINUS = i32([1, 2]), i32([3, 0]), i32([-1, 1])


@pytest.mark.parametrize(
    ("name", "operands", "params", "code", "message"),
    [
        ("div", (ONE, ZERO), {}, Code.BAD_VALUE, "the divisor is zero at [1]"),
        ("mod", (i32([[1], [2]]), ZERO), {}, Code.BAD_VALUE, "the divisor is zero at [1]"),
        ("rem", (i32(1), i32(0)), {}, Code.BAD_VALUE, "the divisor is zero"),
        ("div", (ONE, ONE), {"div_by_zero_mask": 0.5}, Code.BAD_PARAMETER, "which is not i32"),
        ("div", (ONE / 2, ONE / 2), {"div_by_zero_mask": 0}, Code.BAD_PARAMETER, "f64 divides by zero as IEEE 754"),
        ("pow", (ONE, MINUS), {}, Code.BAD_VALUE, "an integer power has a negative exponent"),
        ("shl", (ONE, MINUS), {}, Code.BAD_VALUE, "a shift count is negative"),
        ("shr", (ONE, MINUS), {}, Code.BAD_VALUE, "a shift count is negative"),
        ("shl", (ONE,), {}, Code.WRONG_OPERANDS, "either the input 'b' or the parameter 'bits'"),
        ("shl", (ONE, ONE), {"bits": 1}, Code.WRONG_OPERANDS, "either the input 'b' or the parameter 'bits'"),
        ("shr", (ONE,), {"bits": -1}, Code.BAD_PARAMETER, "a shift by -1 bits is negative"),
        ("add", (ONE, i32([1, 2, 3])), {}, Code.SHAPE_MISMATCH, "i32[3] does not broadcast with i32[2]"),
        ("add", (ONE, f32([1, 2])), {}, Code.WRONG_DTYPE, "'add' mixes i32[2] and f32[2]"),
        ("exp", (ONE,), {}, Code.WRONG_DTYPE, "the input 'x' of 'exp' cannot be i32[2]"),
        ("not", (ONE / 2,), {}, Code.WRONG_DTYPE, "the input 'x' of 'not' cannot be f64[2]"),
    ],
)
def test_refusals(name: str, operands: Any, params: dict[str, Any], code: Code, message: str) -> None:
    with pytest.raises(GraphError) as refused:
        apply(name, *operands, **params)
    assert refused.value.code is code
    assert message in refused.value.diagnostics[0].message


def test_what_is_not_computed_is_not_refused() -> None:
    empty = np.zeros((0, 2), np.int32)
    for name, other in (("div", ZERO), ("pow", MINUS), ("shl", MINUS)):
        assert apply(name, empty, other).shape == (0, 2)
