"""Exact arithmetic for judges: rational numbers rounded once, and mpmath's functions."""

from collections.abc import Callable
from fractions import Fraction
from math import inf, isfinite, ldexp, nan
from typing import Any

import mpmath
import numpy as np

from openinfer.ops import Array

MANTISSA = {"f8": (3, -14, 15), "bf16": (8, -126, 127), "f16": (11, -14, 15), "f32": (24, -126, 127)}
MANTISSA["f64"] = (53, -1022, 1023)
"""Of each float dtype: significant bits, least exponent of normal numbers, largest exponent."""

mpmath.mp.prec = 160


def nearest(value: Fraction, dtype: str) -> float:
    """A rational number in a float dtype: to nearest, ties to even, infinite beyond the largest number."""
    bits, least, most = MANTISSA[dtype]
    if not value:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    step = max(exponent, least) - (bits - 1)
    count = round(size / Fraction(2) ** step)
    result = inf if count * Fraction(2) ** step >= Fraction(2) ** (most + 1) else ldexp(count, step)
    return result if value > 0 else -result


def each(function: Callable[..., Any], *arrays: Any) -> Array:
    """A function of Python numbers, for every element of arrays that broadcast."""
    together = np.broadcast_arrays(*arrays)
    columns = [array.reshape(-1).tolist() for array in together]
    values = [function(*numbers) for numbers in zip(*columns, strict=True)]
    result = np.empty(len(values), object)
    result[:] = values
    return result.reshape(together[0].shape)


def floats(values: Array) -> Array:
    """Numbers of any kind as f80 (f64 has no room for what an f64 result is judged by)."""
    parts = [extended(value) for value in values.reshape(-1).tolist()]
    return np.array(parts, np.longdouble).reshape(values.shape)


def extended(value: Any) -> Any:
    """One number as f80."""
    high = float(value)
    if not isfinite(high) or not isinstance(value, mpmath.mpf):
        return np.longdouble(high)
    low, scale = value - high, 0
    if high and abs(high) < 2.0**-900:
        # What is left of a tiny number is not an f64; f80 has the range.
        scale = 200
        low = value * mpmath.mpf(2) ** scale - mpmath.mpf(high) * mpmath.mpf(2) ** scale
    return np.longdouble(high) + np.ldexp(np.longdouble(float(low)), -scale)


def real(value: Any) -> Any:
    """An mpmath number, NaN where it left the real line."""
    return nan if isinstance(value, mpmath.mpc) else value


def i8(values: Any) -> Array:
    """An array of i8."""
    return np.array(values, np.int8)


def i32(values: Any) -> Array:
    """An array of i32."""
    return np.array(values, np.int32)


def f32(values: Any) -> Array:
    """An array of f32."""
    return np.array(values, np.float32)
