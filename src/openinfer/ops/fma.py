"""``a*b + c`` rounded once, which NumPy does not offer."""

from fractions import Fraction

import numpy as np

from openinfer.dtypes import Array


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """The sum of a product and a third number with a single rounding, in the dtype of the operands.

    >>> tiny = np.float32(2**-12)
    >>> fused_multiply_add(np.float32(1) + tiny, np.float32(1) + tiny, -np.float32(1) - 2 * tiny).item() == 2**-24
    True
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    if a.dtype == np.float32:
        return _in_single(a, b, c)
    return _in_double(a, b, c) if a.dtype == np.float64 else a * b + c


def _in_single(a: Array, b: Array, c: Array) -> Array:
    """f32 products are exact in f64; the sum is rounded to odd there, so that rounding to f32 is the only one felt."""
    return _sum_to_odd(a.astype(np.float64) * b, c.astype(np.float64)).astype(np.float32)


def _in_double(a: Array, b: Array, c: Array) -> Array:
    """f64 by error-free steps; by fractions where a step would leave the range of f64."""
    # A product that leaves the range of f64 is still finite: an infinite addend wins.
    plain = np.where(np.isfinite(a) & np.isfinite(b) & np.isinf(c), c, a * b + c)
    inexact = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    size = np.abs(a * b)
    safe = (size > 2.0**-900) & (np.maximum(size, np.abs(c)) < 2.0**1000)
    safe &= np.maximum(np.abs(a), np.abs(b)) < 2.0**990
    result = np.where(inexact & safe, _by_parts(a, b, c), plain)
    hard = inexact & ~safe
    if hard.any():
        operands = zip(*(part[hard].tolist() for part in (a, b, c, plain)), strict=True)
        result[hard] = [_rounded(Fraction(x) * Fraction(y) + Fraction(z), fallback) for x, y, z, fallback in operands]
    return result


def _by_parts(a: Array, b: Array, c: Array) -> Array:
    """Boldo and Melquiond's emulation: all that the large parts leave over is rounded to odd before the last sum."""
    product, low = _exact_product(a, b)
    high, rest = _exact_sum(c, low)
    total, lost = _exact_sum(product, high)
    return total + _sum_to_odd(rest, lost)


def _exact_product(a: Array, b: Array) -> tuple[Array, Array]:
    """A product and what its rounding lost."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return product, a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _halves(x: Array) -> tuple[Array, Array]:
    """The upper and the lower 26 bits of f64 numbers."""
    shifted = x * (2.0**27 + 1)
    high = shifted - (shifted - x)
    return high, x - high


def _exact_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """A sum and what its rounding lost."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _sum_to_odd(a: Array, b: Array) -> Array:
    """A sum whose last bit is 1 where it is not exact, so that rounding it further never sees a false tie."""
    total, lost = _exact_sum(a, b)
    even = (total.view(np.int64) & 1) == 0
    adjust = np.isfinite(total) & (lost != 0) & even
    return np.where(adjust, np.nextafter(total, np.where(lost > 0, np.inf, -np.inf)), total)


def _rounded(exact: Fraction, fallback: float) -> float:
    """The nearest f64; the sign of an exact zero is the one ordinary arithmetic gives."""
    if not exact:
        return fallback
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")
