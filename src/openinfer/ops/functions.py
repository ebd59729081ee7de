"""The error function for arrays, which NumPy does not have.

For f64 arrays (where f32 results come from) it is fitted once, from the C library's values, as polynomials of bounded
arguments: far out in the tail as accurate as near zero. Wider arrays go through the C library.
"""

from collections.abc import Callable
from functools import cache
from math import erf as scalar_erf
from math import erfc as scalar_erfc
from math import exp, pi, sqrt

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev

from openinfer.dtypes import Array

_DEGREE = 16
_NEAR_DEGREE = 12
_CHUNK = 1 << 14
"""Elements worked on at a time: their temporaries stay in the second-level cache."""
_FAR = 26.0
"""Beyond it, exp(-x*x) has no normal f64."""
_BEND = 3.0
"""``t = _BEND / (_BEND + x)`` takes 0.._FAR to 1.._LOW; this bend needs the lowest degree."""
_LOW = _BEND / (_BEND + _FAR)


def _fitted(function: Callable[[float], float], degree: int) -> npt.NDArray[np.float64]:
    """Coefficients of the polynomial through a function's values at the Chebyshev points of -1..1."""
    points = chebyshev.chebpts1(degree + 1)
    values = np.array([function(point) for point in points.tolist()])
    return chebyshev.cheb2poly(chebyshev.chebfit(points, values, degree)).astype(np.float64)


@cache
def _tail() -> npt.NDArray[np.float64]:
    """Coefficients of ``erfc(x) * exp(x*x) / t`` over ``t`` scaled to -1..1."""

    def smooth(scaled: float) -> float:
        t = (scaled + 1) / 2 * (1 - _LOW) + _LOW
        x = _BEND / t - _BEND
        return scalar_erfc(x) * exp(x * x) / t

    return _fitted(smooth, _DEGREE)


@cache
def _near() -> npt.NDArray[np.float64]:
    """Coefficients of ``erf(x)/x`` over ``2*x*x - 1``, for x from 0 to 1."""

    def ratio(scaled: float) -> float:
        x = sqrt((scaled + 1) / 2)
        return scalar_erf(x) / x

    return _fitted(ratio, _NEAR_DEGREE)


def _horner(coefficients: npt.NDArray[np.float64], x: Array) -> Array:
    total = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        np.multiply(total, x, out=total)
        np.add(total, coefficient, out=total)
    return total


def _erfc_positive(x: Array) -> Array:
    t = _BEND / (_BEND + np.minimum(x, _FAR))
    tail = _horner(_tail(), (t - _LOW) * (2 / (1 - _LOW)) - 1)
    tail *= t
    tail *= np.exp(-x * x)
    return tail


def _erfc_chunk(x: Array) -> Array:
    tail = _erfc_positive(np.abs(x))
    return np.where(x < 0, 2 - tail, tail)


def _erf_chunk(x: Array) -> Array:
    near = x * _horner(_near(), 2 * np.minimum(x * x, 1) - 1)
    return np.where(np.abs(x) < 1, near, np.copysign(1 - _erfc_positive(np.abs(x)), x))


def erfc(x: Array) -> Array:
    """One minus the error function, as accurate in the tail as near zero.

    >>> f"{erfc(np.array([10.0]))[0]:.9e}"
    '2.088487584e-45'
    """
    return in_chunks(_erfc_chunk, x) if x.dtype == np.float64 else _through_c(scalar_erfc, -1, x)


def erf(x: Array) -> Array:
    """The error function.

    >>> round(float(erf(np.array([0.5]))[0]), 12)
    0.520499877813
    """
    return in_chunks(_erf_chunk, x) if x.dtype == np.float64 else _through_c(scalar_erf, 1, x)


def in_chunks(function: Callable[[Array], Array], x: Array) -> Array:
    """An elementwise function of many steps, applied to pieces that stay in the cache between them."""
    flat = x.reshape(-1)
    out = np.empty_like(flat)
    for start in range(0, flat.size, _CHUNK):
        out[start : start + _CHUNK] = function(flat[start : start + _CHUNK])
    return out.reshape(x.shape)


def _through_c(function: Callable[[float], float], sign: int, x: Array) -> Array:
    """The C library's f64 function; what f64 cut off from the argument counts by the derivative."""
    near = x.astype(np.float64)
    values = np.array([function(one) for one in near.reshape(-1).tolist()], np.longdouble).reshape(x.shape)
    rest = np.where(np.isfinite(x), x - near, 0)
    slope = sign * 2 / np.sqrt(np.longdouble(pi)) * np.exp(-(near.astype(np.longdouble) ** 2))
    return values + slope * rest
