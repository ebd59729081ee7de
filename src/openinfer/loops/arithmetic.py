"""Value semantics of the interpreter: loads, stores, arithmetic and named functions on NumPy scalars."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from openinfer.dtypes import DType
from openinfer.loops.scalar import STEPS, Bits

NumpyScalar: TypeAlias = Any
"""A NumPy scalar of a compute type."""


class UndefinedError(Exception):
    """The kernel's behaviour is undefined; the message says why."""


# --- between storage and compute types --------------------------------------------------------------------------------


def loaded(element: NumpyScalar, dtype: DType) -> NumpyScalar:
    """Convert a stored element to its compute type."""
    return np.asarray(element).astype(dtype.compute.array)[()]


def stored(value: NumpyScalar, dtype: DType) -> NumpyScalar:
    """Convert a value of the compute type to an element: floats round to nearest even, integers wrap."""
    if dtype.kind == "float":
        return np.asarray(value).astype(dtype.array)[()]
    if dtype.values is not None and value not in dtype.values:
        message = f"{value} is stored as {dtype}"
        raise UndefinedError(message)
    if dtype.kind == "bool" or dtype.values is not None:
        return np.asarray(value).astype(dtype.array)[()]
    return np.asarray(_wrapped(int(value), dtype)).astype(dtype.array)[()]


def converted(value: NumpyScalar, dtype: DType) -> NumpyScalar:
    """Convert a number to a compute type: integers wrap, floats round, a float cast to an integer must be in range."""
    if dtype.kind == "bool":
        return np.bool_(value != 0)
    if dtype.kind == "float":
        # A Python float is an f64; a Python int comes from a constant and is exact in f64 or in a 64-bit integer.
        return np.asarray(value).astype(dtype.array)[()]
    is_number = isinstance(value, int | np.integer | np.bool_) or math.isfinite(value)
    is_float = isinstance(value, float | np.floating)
    if not is_number or (is_float and not dtype.minimum <= int(value) <= dtype.maximum):
        message = f"{value} is cast to {dtype}"
        raise UndefinedError(message)
    return _integer(int(value), dtype)


def _wrapped(number: int, dtype: DType) -> int:
    """Wrap an integer to the width of a dtype."""
    code = number & ((1 << dtype.bits) - 1)
    return code - (1 << dtype.bits) if dtype.kind == "int" and code >> (dtype.bits - 1) else code


def _integer(number: int, dtype: DType) -> NumpyScalar:
    return dtype.array.type(_wrapped(number, dtype))


def bits_of(value: NumpyScalar, scalar: Bits) -> NumpyScalar:
    """Reinterpret the bits of a value as another type."""
    target, storage = scalar.type, scalar.storage
    if storage is None:
        return np.asarray(value).view(target.array)[()]
    if target.kind == "float":
        return np.asarray(value).view(storage.array).astype(target.array)[()]
    return np.asarray(value).astype(storage.array).view(target.array)[()]


# --- arithmetic -------------------------------------------------------------------------------------------------------

COMPARISONS: Mapping[str, Callable[[NumpyScalar, NumpyScalar], NumpyScalar]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def unary(op: str, value: NumpyScalar, dtype: DType) -> NumpyScalar:
    """Apply a unary operation to a value of a dtype."""
    match op:
        case "not" if dtype.kind == "bool":
            return np.bool_(not value)
        case "not":
            return _integer(~int(value), dtype)
        case "neg":
            return -value if dtype.kind == "float" else _integer(-int(value), dtype)
        case "abs":
            return abs(value) if dtype.kind == "float" else _integer(abs(int(value)), dtype)
        case "popcount":
            return _integer((int(value) & ((1 << dtype.bits) - 1)).bit_count(), dtype)
        case "sqrt" | "floor" | "ceil" | "rint" | "trunc" | "isnan" | "isinf" | "signbit":
            return getattr(np, op)(value)
        case "steps":
            return np.int32(0 if np.isnan(value) else min(max(np.rint(value), STEPS[0]), STEPS[1]))
        case _:
            raise TypeError(op)


def binary(op: str, a: NumpyScalar, b: NumpyScalar, dtype: DType) -> NumpyScalar:
    """Apply a binary operation to two values of a dtype."""
    if dtype.kind == "float":
        return _float_binary(op, a, b)
    if dtype.kind == "bool":
        return np.bool_(_BIT_OPS[op](bool(a), bool(b)))
    return _integer(_integer_binary(op, int(a), int(b), dtype), dtype)


_BIT_OPS: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def _float_binary(op: str, a: NumpyScalar, b: NumpyScalar) -> NumpyScalar:
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div":
            return a / b
        case "rem":
            return np.fmod(a, b)
        case "copysign" | "nextafter":
            return getattr(np, op)(a, b)
        case "min" | "max":
            if np.isnan(a) or np.isnan(b):
                return a if np.isnan(a) else b
            # -0 orders before +0.
            first, second = ((value, not np.signbit(value)) for value in (a, b))
            return (min if op == "min" else max)(first, second)[0]
        case _:
            raise TypeError(op)


def _integer_binary(op: str, a: int, b: int, dtype: DType) -> int:
    """The exact result, which the caller wraps."""
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div" | "rem":
            if b == 0:
                raise UndefinedError("an integer is divided by zero")
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return quotient if op == "div" else a - quotient * b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "shl" | "shr":
            if b < 0:
                message = f"a shift by {b}"
                raise UndefinedError(message)
            # A shift by the width or more clears all bits; a negative number shifts right to -1.
            return a << min(b, dtype.bits) if op == "shl" else a >> min(b, dtype.bits)
        case _:
            return _BIT_OPS[op](a, b)


# --- named functions --------------------------------------------------------------------------------------------------

_NUMPY_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "pow": "power"}
_NUMPY_NAMES |= {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}


def named(function: str, args: Sequence[NumpyScalar], dtype: DType) -> NumpyScalar:
    """Apply a named function of floats, computed in the next wider type and rounded once."""
    if function == "fma":
        a, b, c = args
        return _fused(a, b, c, dtype)
    if function in ("erf", "erfc"):
        return dtype.array.type(getattr(math, function)(float(args[0])))
    if function == "gelu":
        return dtype.array.type(_gelu(float(args[0])))
    wide = np.float64 if dtype.name == "f32" else np.longdouble
    if function in ("mish", "softplus"):
        bend = np.logaddexp(wide(0), wide(args[0]))
        return dtype.array.type(bend if function == "softplus" else wide(args[0]) * np.tanh(bend))
    own = getattr(np, _NUMPY_NAMES.get(function, function))
    return dtype.array.type(own(*(wide(one) for one in args)))


def _gelu(x: float) -> float:
    """``x / 2 * erfc(-x / sqrt(2))``, with a first-order correction for the rounding error of the quotient."""
    exact = -np.longdouble(x) * np.sqrt(np.longdouble(0.5))
    y = float(exact)
    lost = float(exact - y) if abs(y) < 30 else 0.0
    return x / 2 * (math.erfc(y) - 2 / math.sqrt(math.pi) * math.exp(-min(y * y, 900)) * lost)


def _fused(a: NumpyScalar, b: NumpyScalar, c: NumpyScalar, dtype: DType) -> NumpyScalar:
    """``a * b + c``, rounded once."""
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        # Rounding does not affect infinities and NaN. A finite product must not overflow before c is added.
        return a * b + c if not (np.isfinite(a) and np.isfinite(b)) else c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return a * b + c
    return _rounded(exact, dtype)


def _rounded(exact: Fraction, dtype: DType) -> NumpyScalar:
    """Round to the nearest float, via f64 rounded to odd, so that the second rounding sees what the first cut off."""
    try:
        near = np.float64(float(exact))
    except OverflowError:
        return dtype.array.type(math.copysign(math.inf, exact))
    if dtype.name == "f64" or Fraction(float(near)) == exact:
        return dtype.array.type(near)
    if not near.view(np.int64) & 1:
        near = np.nextafter(near, np.float64(math.inf if exact > Fraction(float(near)) else -math.inf))
    return dtype.array.type(near)
