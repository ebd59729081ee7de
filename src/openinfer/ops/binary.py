"""Elementwise ops of two and three operands."""

from collections.abc import Callable, Iterator

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.errors import Code, counted
from openinfer.ops.cases import BINARY_SHAPES, anything, binary, case, grid, random
from openinfer.ops.fma import fused_multiply_add
from openinfer.ops.numeric import wide
from openinfer.ops.record import EXACT, Call, Case, Param, op, ulp
from openinfer.ops.shapes import broadcast, per_element
from openinfer.ops.types import (
    ALL,
    BOOL,
    FLOATS,
    INTEGERS,
    NUMBERS,
    TERNARY,
    OpError,
    Shape,
    parameter_error,
    value_error,
)

FAMILY = "Binary"
COMPARE = "Compare"
PAIR = "a: T, b: T -> T"
MASK = Param("div_by_zero_mask", "number", None, "The result where an integer is divided by zero; an error without it.")


@op(FAMILY, PAIR, shape=broadcast, cost=per_element(1), tolerance=EXACT, cases=binary(), T=NUMBERS)
def add(_call: Call, a: Array, b: Array) -> Array:
    """The sum, `y = a + b`. Integers wrap at their own width."""
    return a + b


@op(FAMILY, PAIR, shape=broadcast, cost=per_element(1), tolerance=EXACT, cases=binary(), T=NUMBERS)
def sub(_call: Call, a: Array, b: Array) -> Array:
    """The difference, `y = a - b`. Integers wrap at their own width."""
    return a - b


@op(FAMILY, PAIR, shape=broadcast, cost=per_element(1), tolerance=EXACT, cases=binary(), T=NUMBERS + TERNARY)
def mul(_call: Call, a: Array, b: Array) -> Array:
    """The product, `y = a * b`. Integers wrap at their own width."""
    return a * b


# --- division ---------------------------------------------------------------------------------------------------------


def _division_shape(call: Call) -> tuple[Shape, ...]:
    if call.dtype().kind == "float" and call.params["div_by_zero_mask"] is not None:
        message = f"'div_by_zero_mask' is for integers: {call.dtype().name} divides by zero as IEEE 754 says"
        raise parameter_error("div_by_zero_mask", message)
    return broadcast(call)


def _divided(call: Call, a: Array, b: Array, divide: Callable[[Array, Array], Array]) -> Array:
    """Integer division with the mask where the divisor is zero."""
    zero = b == 0
    if not a.size or not np.any(zero):
        return divide(a, b)
    mask = call.params["div_by_zero_mask"]
    if mask is None:
        where = np.argwhere(np.atleast_1d(zero))[0].tolist()[: b.ndim]
        message = "the divisor is zero" + (f" at {where}" if where else "")
        raise value_error(message, 1, "div_by_zero_mask=v gives v there instead of an error")
    quotient = divide(a, np.where(zero, b.dtype.type(1), b))
    return np.where(zero, quotient.dtype.type(mask), quotient)


def _truncated(a: Array, b: Array) -> Array:
    floor = np.floor_divide(a, b)
    # Where signs differ and something is left over, the floor is one below the truncation.
    return floor + ((floor * b != a) & ((a < 0) != (b < 0))).astype(a.dtype)


def _remainder(a: Array, b: Array) -> Array:
    return a - _truncated(a, b) * b


def _division_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    if dtype.kind == "float":
        yield from binary(low=-9, high=9)(rng, dtype)
        return
    largest = dtype.maximum or dtype.minimum
    for mask in {dtype.minimum, largest}:
        yield from binary({"div_by_zero_mask": int(mask)}, low=-9, high=9)(rng, dtype)
    divisors = anything(rng, dtype, (25,))
    yield case(dtype, anything(rng, dtype, (25,)), np.where(divisors == 0, np.array(largest, dtype.array), divisors))
    yield case(dtype, random(rng, dtype, (0, 3)), np.zeros(3, dtype.array))


@op(FAMILY, PAIR, MASK, shape=_division_shape, cost=per_element(1), tolerance=EXACT, cases=_division_cases, T=NUMBERS)
def div(call: Call, a: Array, b: Array) -> Array:
    """The quotient, `y = a / b`. Integer division truncates towards zero."""
    return a / b if call.dtype().kind == "float" else _divided(call, a, b, _truncated)


@op(FAMILY, PAIR, MASK, shape=_division_shape, cost=per_element(2), tolerance=EXACT, cases=_division_cases, T=NUMBERS)
def floor_div(call: Call, a: Array, b: Array) -> Array:
    """The quotient rounded down, `y = floor(a / b)`. For floats the division is rounded before the floor."""
    return np.floor(a / b) if call.dtype().kind == "float" else _divided(call, a, b, np.floor_divide)


@op(FAMILY, PAIR, MASK, shape=_division_shape, cost=per_element(3), tolerance=EXACT, cases=_division_cases, T=NUMBERS)
def rem(call: Call, a: Array, b: Array) -> Array:
    """The remainder of the truncated quotient, exact for floats as in C's `fmod`: it has the sign of `a`."""
    return np.fmod(a, b) if call.dtype().kind == "float" else _divided(call, a, b, _remainder)


@op(FAMILY, PAIR, MASK, shape=_division_shape, cost=per_element(3), tolerance=EXACT, cases=_division_cases, T=NUMBERS)
def mod(call: Call, a: Array, b: Array) -> Array:
    """The remainder of the floored quotient: it has the sign of `b`.

    For floats it is `rem(a, b)`, plus `b` where that is not zero and has the other sign; a zero has the sign of `b`.
    """
    if call.dtype().kind != "float":
        return _divided(call, a, b, np.mod)
    rest = np.fmod(a, b)
    other_sign = (rest != 0) & ((rest < 0) != (b < 0))
    return np.where(rest == 0, np.copysign(rest, b), np.where(other_sign, rest + b, rest))


# --- powers, extremes, angles -----------------------------------------------------------------------------------------


def _power_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    if dtype.kind == "float":
        yield from binary(low=0.1, high=5)(rng, dtype)
        return
    for one, other in BINARY_SHAPES:
        exponent = np.abs(random(rng, dtype, other, 0, 5).astype(np.int64)).astype(dtype.array)
        yield case(dtype, anything(rng, dtype, one), exponent)


@op(FAMILY, PAIR, shape=broadcast, cost=per_element(8), tolerance=ulp(2), cases=_power_cases, name="pow", T=NUMBERS)
def power(call: Call, a: Array, b: Array) -> Array:
    """The power, `y = a ** b`. Integers wrap, and refuse negative exponents."""
    if call.dtype().kind == "float":
        return np.power(wide(a), wide(b))
    if a.size and np.any(b < 0):
        raise value_error("an integer power has a negative exponent", 1, "cast to a float first")
    return np.power(a, b)


def smaller(a: Array, b: Array) -> Array:
    """The smaller of two values; -0 is smaller than +0."""
    result = np.minimum(a, b)
    return result if a.dtype.kind != "f" else _with_equals(result, a, b, np.bitwise_or)


def larger(a: Array, b: Array) -> Array:
    """The larger of two values; +0 is larger than -0."""
    result = np.maximum(a, b)
    return result if a.dtype.kind != "f" else _with_equals(result, a, b, np.bitwise_and)


def _with_equals(result: Array, a: Array, b: Array, join: np.ufunc) -> Array:
    """Equal floats have equal bits, except zeros, whose signs are joined; NumPy takes the zero of either side."""
    result = np.asarray(result)
    bits = f"i{result.itemsize}"
    join(a.view(bits), b.view(bits), out=result.view(bits), where=a == b)
    return result


@op(
    FAMILY, PAIR, shape=broadcast, cost=per_element(1), tolerance=EXACT, cases=binary(), T=NUMBERS + TERNARY, name="min"
)
def minimum(_call: Call, a: Array, b: Array) -> Array:
    """The smaller of two values, `y = min(a, b)`; NaN if either is. -0 counts as smaller than +0."""
    return smaller(a, b)


@op(
    FAMILY, PAIR, shape=broadcast, cost=per_element(1), tolerance=EXACT, cases=binary(), T=NUMBERS + TERNARY, name="max"
)
def maximum(_call: Call, a: Array, b: Array) -> Array:
    """The larger of two values, `y = max(a, b)`; NaN if either is. +0 counts as larger than -0."""
    return larger(a, b)


@op(FAMILY, PAIR, shape=broadcast, cost=per_element(8), tolerance=ulp(2), cases=binary(), T=FLOATS)
def atan2(_call: Call, a: Array, b: Array) -> Array:
    """The angle from -pi to pi of the point with the coordinates `b` and `a`, whose tangent is `a / b`."""
    return np.arctan2(wide(a), wide(b))


# --- bits -------------------------------------------------------------------------------------------------------------


@op(FAMILY, PAIR, shape=broadcast, cost=per_element(1), tolerance=EXACT, cases=binary(), T=INTEGERS + BOOL)
def and_(_call: Call, a: Array, b: Array) -> Array:
    """Both, `y = a & b`: bitwise on integers, logical on bool."""
    return a & b


@op(FAMILY, PAIR, shape=broadcast, cost=per_element(1), tolerance=EXACT, cases=binary(), T=INTEGERS + BOOL)
def or_(_call: Call, a: Array, b: Array) -> Array:
    """Either, `y = a | b`: bitwise on integers, logical on bool."""
    return a | b


@op(FAMILY, PAIR, shape=broadcast, cost=per_element(1), tolerance=EXACT, cases=binary(), T=INTEGERS + BOOL)
def xor(_call: Call, a: Array, b: Array) -> Array:
    """One but not both, `y = a ^ b`: bitwise on integers, logical on bool."""
    return a ^ b


SHIFT = "a: T, b?: T -> T"
BITS = Param("bits", "int", None, "How far to shift, in place of the input b.")


def _shift_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for one, other in BINARY_SHAPES:
        yield case(dtype, anything(rng, dtype, one), random(rng, dtype, other, 0, dtype.bits + 2))
    for bits in (0, 1, dtype.bits - 1, dtype.bits, 200):
        yield case(dtype, anything(rng, dtype, (11,)), None, bits=bits)


def _shift_shape(call: Call) -> tuple[Shape, ...]:
    bits = call.params["bits"]
    if (bits is None) == (len(call.inputs) < 2 or call.inputs[1] is None):
        raise OpError(Code.WRONG_OPERANDS, "a shift takes either the input 'b' or the parameter 'bits'")
    if bits is not None and bits < 0:
        raise OpError(Code.BAD_PARAMETER, f"a shift by {counted(bits, 'bit')} is negative", "bits")
    return broadcast(call)


def _counts(call: Call, a: Array, b: Array | None) -> Array:
    counts = np.array(min(call.params["bits"], 64)) if b is None else b
    if a.size and np.any(counts < 0):
        raise value_error("a shift count is negative", 1)
    return counts


@op(FAMILY, SHIFT, BITS, shape=_shift_shape, cost=per_element(1), tolerance=EXACT, cases=_shift_cases, T=INTEGERS)
def shl(call: Call, a: Array, b: Array | None = None) -> Array:
    """Bits shifted to the left, `y = a * 2**b`, wrapping; counts of the width and more give 0, negative ones fail."""
    counts, width = _counts(call, a, b), call.dtype().bits
    inside = np.minimum(counts, width - 1).astype(a.dtype)
    return np.where(counts >= width, a.dtype.type(0), np.left_shift(a, inside))


@op(FAMILY, SHIFT, BITS, shape=_shift_shape, cost=per_element(1), tolerance=EXACT, cases=_shift_cases, T=INTEGERS)
def shr(call: Call, a: Array, b: Array | None = None) -> Array:
    """Bits shifted to the right, `y = floor(a / 2**b)`; counts of the width and more give 0, or -1 for negative `a`."""
    counts, width = _counts(call, a, b), call.dtype().bits
    inside = np.minimum(counts, width - 1).astype(a.dtype)
    gone = np.where(a < 0, a.dtype.type(-1) if call.dtype().kind == "int" else a.dtype.type(0), a.dtype.type(0))
    return np.where(counts >= width, gone, np.right_shift(a, inside))


# --- three operands ---------------------------------------------------------------------------------------------------


def _fma_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for one, other in BINARY_SHAPES:
        yield case(dtype, anything(rng, dtype, one), random(rng, dtype, other), anything(rng, dtype, one))
    yield case(dtype, *grid(dtype, 3))


@op(
    "Ternary",
    "a: T, b: T, c: T -> T",
    shape=broadcast,
    cost=per_element(2),
    tolerance=EXACT,
    cases=_fma_cases,
    T=NUMBERS,
)
def fma(_call: Call, a: Array, b: Array, c: Array) -> Array:
    """A product and a sum with one rounding, `y = a * b + c`. Integers wrap."""
    return fused_multiply_add(a, b, c)


def _where_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    boolean = BOOL[0]
    for one, other in BINARY_SHAPES:
        arrays = (random(rng, boolean, other), anything(rng, dtype, one), anything(rng, dtype, other))
        yield Case(arrays, (boolean, dtype, dtype))


@op(
    "Ternary",
    "cond: bool, a: T, b: T -> T",
    shape=broadcast,
    cost=per_element(1),
    tolerance=EXACT,
    cases=_where_cases,
    stored=True,
    aliases=("filter",),
    T=ALL,
)
def where(_call: Call, cond: Array, a: Array, b: Array) -> Array:
    """One of two values, `y = cond ? a : b`."""
    return np.where(cond, a, b)


# --- comparisons ------------------------------------------------------------------------------------------------------


def _comparison(name: str, sign: str, compare: Callable[[Array, Array], Array], kinds: tuple[DType, ...]) -> None:
    nan = "true" if name == "ne" else "false"
    doc = f"Elementwise comparison, `y = a {sign} b`; {nan} where either is NaN."
    decorate = op(
        COMPARE,
        "a: T, b: T -> bool",
        shape=broadcast,
        cost=per_element(1),
        tolerance=EXACT,
        cases=binary(low=-2, high=2),
        name=name,
        doc=doc,
        T=kinds,
    )
    decorate(lambda _call, a, b: compare(a, b))


_comparison("eq", "==", np.equal, ALL)
_comparison("ne", "!=", np.not_equal, ALL)
_comparison("lt", "<", np.less, NUMBERS + TERNARY)
_comparison("le", "<=", np.less_equal, NUMBERS + TERNARY)
_comparison("gt", ">", np.greater, NUMBERS + TERNARY)
_comparison("ge", ">=", np.greater_equal, NUMBERS + TERNARY)
