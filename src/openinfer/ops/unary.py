"""Elementwise ops of one operand."""

from collections.abc import Callable, Iterator

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.ops.cases import case, extremes, random, unary
from openinfer.ops.functions import erf as error_function
from openinfer.ops.functions import in_chunks
from openinfer.ops.numeric import wide
from openinfer.ops.record import EXACT, Call, Case, Cases, Tolerance, op, ulp
from openinfer.ops.shapes import per_element, per_input, same
from openinfer.ops.types import BOOL, FLOATS, INTEGERS, NUMBERS, SIGNED, TERNARY, Shape

FAMILY = "Unary"
ONE = "x: T -> T"


def _plain(
    name: str, doc: str, compute: Callable[[Array], Array], kinds: tuple[DType, ...], cases: Cases | None = None
) -> None:
    """An op with an exact result."""
    decorate = op(
        FAMILY,
        ONE,
        shape=same,
        cost=per_element(1),
        tolerance=EXACT,
        cases=cases or unary(),
        name=name,
        doc=doc,
        T=kinds,
    )
    decorate(lambda _call, x: compute(x))


_plain("abs", "The magnitude, `y = |x|`. The most negative integer wraps to itself.", np.abs, NUMBERS + TERNARY)
_plain("neg", "The negative, `y = -x`. Integers wrap.", np.negative, NUMBERS + TERNARY)
_plain(
    "sign",
    "-1, 0 or 1 as `x` is negative, zero or positive; a zero keeps its sign, NaN stays NaN.",
    lambda x: np.where(x == 0, x, np.sign(x)),
    NUMBERS + TERNARY,
)
_plain("recip", "The reciprocal, `y = 1 / x`.", lambda x: 1 / x, FLOATS)
_plain("square", "The square, `y = x * x`. Integers wrap.", np.square, NUMBERS + TERNARY)
_plain("sqrt", "The square root, `y = sqrt(x)`; NaN for negative `x`.", np.sqrt, FLOATS)
_plain("floor", "The largest integer not above `x`.", np.floor, FLOATS)
_plain("ceil", "The smallest integer not below `x`.", np.ceil, FLOATS)
_plain("round", "The nearest integer, `y = round(x)`, halves to even.", np.rint, FLOATS)
_plain("trunc", "The integer part, `y = sign(x) * floor(|x|)`.", np.trunc, FLOATS)
_plain("not", "Every bit flipped, `y = ~x`; on bool, true and false exchanged.", np.invert, INTEGERS + BOOL)


def _count_bits(call: Call, x: Array) -> Array:
    dtype = call.dtype()
    unsigned = x.view(f"u{x.itemsize}")
    counts = np.bitwise_count(unsigned & unsigned.dtype.type((1 << dtype.bits) - 1))
    return counts.astype(x.dtype)


op(
    FAMILY,
    ONE,
    shape=same,
    cost=per_element(1),
    tolerance=EXACT,
    cases=unary(),
    name="popcount",
    doc="The number of one bits, in the dtype of `x` (where it wraps like every integer result).",
    T=INTEGERS,
)(_count_bits)


# --- functions that have no exact result ------------------------------------------------------------------------------


def _function(name: str, formula: str, compute: Callable[[Array], Array], low: float, high: float) -> None:
    """A transcendental op: computed in the next wider type and rounded once."""
    tolerance: Tolerance = ulp(2)
    decorate = op(
        FAMILY,
        ONE,
        shape=same,
        cost=per_element(10),
        tolerance=tolerance,
        cases=unary(low=low, high=high),
        name=name,
        doc=f"Elementwise, `y = {formula}`.",
        T=FLOATS,
    )
    decorate(lambda _call, x: in_chunks(lambda part: compute(wide(part)), x))


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


for _name, _formula, _compute, _low, _high in (
    ("rsqrt", "1 / sqrt(x)", _rsqrt, 0.01, 9),
    ("exp", "exp(x)", np.exp, -9, 9),
    ("exp2", "2 ** x", np.exp2, -9, 9),
    ("expm1", "exp(x) - 1", np.expm1, -2, 2),
    ("log", "ln(x)", np.log, 0.001, 9),
    ("log2", "log2(x)", np.log2, 0.001, 9),
    ("log10", "log10(x)", np.log10, 0.001, 9),
    ("log1p", "ln(1 + x)", np.log1p, -0.9, 9),
    ("sin", "sin(x)", np.sin, -9, 9),
    ("cos", "cos(x)", np.cos, -9, 9),
    ("tan", "tan(x)", np.tan, -9, 9),
    ("asin", "asin(x)", np.arcsin, -1, 1),
    ("acos", "acos(x)", np.arccos, -1, 1),
    ("atan", "atan(x)", np.arctan, -9, 9),
    ("sinh", "sinh(x)", np.sinh, -9, 9),
    ("cosh", "cosh(x)", np.cosh, -9, 9),
    ("tanh", "tanh(x)", np.tanh, -4, 4),
    ("asinh", "asinh(x)", np.arcsinh, -9, 9),
    ("acosh", "acosh(x)", np.arccosh, 1, 9),
    ("atanh", "atanh(x)", np.arctanh, -0.99, 0.99),
    ("erf", "erf(x) = 2/sqrt(pi) * integral of exp(-t*t) from 0 to x", error_function, -4, 4),
):
    _function(_name, _formula, _compute, _low, _high)


# --- tests ------------------------------------------------------------------------------------------------------------


def _test_shape(call: Call) -> tuple[Shape, ...]:
    """Elementwise, or one answer for all where the graph declares a scalar."""
    wanted = call.wanted[0] if call.wanted else None
    return ((),) if wanted is not None and wanted.shape == () else (call.shape(0),)


def _test_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape in ((), (4,), (2, 0), (3, 5)):
        yield case(dtype, random(rng, dtype, shape))
    yield case(dtype, extremes(dtype))


def _test(name: str, doc: str, compute: Callable[[Array], Array], kinds: tuple[DType, ...]) -> None:
    reduce = np.all if name == "is_finite" else np.any
    which = "all elements are" if name == "is_finite" else "any element is"

    def reference(call: Call, x: Array) -> Array:
        found = compute(x)
        return np.asarray(reduce(found)) if call.outputs[0].shape == () and x.ndim else found

    op(
        "Test",
        "x: T -> bool",
        shape=_test_shape,
        cost=per_input(1),
        tolerance=EXACT,
        cases=_test_cases,
        name=name,
        doc=f"{doc} Where the output is declared a scalar and `x` is not one: whether {which}.",
        T=kinds,
    )(reference)


_test("is_finite", "Whether `x` is neither NaN nor infinite.", np.isfinite, FLOATS)
_test("is_nan", "Whether `x` is NaN.", np.isnan, FLOATS)
_test("is_inf", "Whether `x` is an infinity.", np.isinf, FLOATS)
_test("is_neg", "Whether `x` is below zero; false for -0 and NaN.", lambda x: x < 0, FLOATS + SIGNED + TERNARY)
