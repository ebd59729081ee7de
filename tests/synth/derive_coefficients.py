"""The coefficients of the polynomials in the C runtime's ``math_*.c``, derived from the functions themselves.

``python -m tests.synth.derive_coefficients`` prints them, each with the error of its polynomial; a test compares them
with the C text. A polynomial is fitted by least squares at Chebyshev points, which is close to the best in the maximum
norm. Coefficients of f32 are rounded one by one, and those that follow make up for what the rounding lost.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf

Function = Callable[[Any], Any]
PRECISION = 300
TINY = mpf(2) ** -40


@dataclass(frozen=True)
class Fit:
    """A polynomial of ``degree`` near ``wanted`` from ``low`` to ``high``: ``weight`` times the difference is small."""

    name: str
    wanted: Function
    weight: Function
    low: Any
    high: Any
    degree: int
    single: bool = False
    fixed: tuple[float, ...] = ()
    wide_first: bool = False  # the first coefficient is kept as a sum of two doubles


def _points(fit: Fit) -> list[Any]:
    count = 6 * (fit.degree + 2)
    middle, half = (mpf(fit.low) + fit.high) / 2, (mpf(fit.high) - fit.low) / 2
    return [middle + half * mpmath.cos(mpmath.pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def _solved(fit: Fit, known: list[Any]) -> list[Any]:
    """The unknown coefficients by least squares, given the first ones."""
    points = _points(fit)
    left = [fit.weight(x) * (fit.wanted(x) - mpmath.polyval(known[::-1] or [0], x)) for x in points]
    columns = [[fit.weight(x) * x**power for x in points] for power in range(len(known), fit.degree + 1)]
    square = mpmath.matrix([[mpmath.fdot(one, other) for other in columns] for one in columns])
    return list(mpmath.lu_solve(square, mpmath.matrix([mpmath.fdot(one, left) for one in columns])))


def coefficients(fit: Fit) -> list[Any]:
    """The coefficients, lowest power first, exactly as numbers of the target type."""
    with mpmath.workprec(PRECISION):
        if not fit.single:
            first, *rest = _solved(fit, [])
            return [first if fit.wide_first else mpf(float(first)), *(mpf(float(one)) for one in rest)]
        done = [mpf(one) for one in fit.fixed]
        while len(done) <= fit.degree:
            done.append(mpf(float(np.float32(float(_solved(fit, done)[0])))))
        return done


def error(fit: Fit, found: list[Any]) -> Any:
    """The largest weighted difference."""
    with mpmath.workprec(PRECISION):
        points = [fit.low + (fit.high - mpf(fit.low)) * (2 * i + 1) / 401 for i in range(200)]
        return max(abs(fit.weight(x) * (mpmath.polyval(found[::-1], x) - fit.wanted(x))) for x in points)


def literals(fit: Fit) -> list[str]:
    """The coefficients as they stand in the C text, lowest power first."""
    found = coefficients(fit)
    texts = [_literal(float(one), fit.single) for one in found]
    if fit.wide_first:
        with mpmath.workprec(PRECISION):
            texts.insert(1, _literal(float(found[0] - float(found[0])), fit.single))
    return texts


def _literal(value: float, single: bool) -> str:
    if abs(value) == 0.5:
        return f"{value}{'f' * single}"
    text = value.hex()
    return text.replace("0000000p", "p") + "f" if single else text


# --- the functions ----------------------------------------------------------------------------------------------------


def _odd_rest(function: Function) -> tuple[Function, Function]:
    """For f(x) = x + x^3 * p(x^2): p of z = x^2, and the weight that makes the error of f relative."""
    return (
        lambda z: (function(mpmath.sqrt(z)) - mpmath.sqrt(z)) / (z * mpmath.sqrt(z)),
        lambda z: z * mpmath.sqrt(z) / function(mpmath.sqrt(z)),
    )


def _ratio(function: Function, minus: int = 0) -> tuple[Function, Function]:
    """For f(x) = x * (minus + p(x^2))."""
    return (
        lambda z: function(mpmath.sqrt(z)) / mpmath.sqrt(z) - minus,
        lambda z: mpmath.sqrt(z) / function(mpmath.sqrt(z)),
    )


def _scaled_erfc(t: Any) -> Any:
    """exp(x^2) * erfc(x) * (1 + 2 x) for t = (x - 3) / (x + 3)."""
    x = 3 * (1 + t) / (1 - t)
    return mpmath.exp(x * x) * mpmath.erfc(x) * (1 + 2 * x)


def _gelu_bend(w: Any) -> Any:
    """ln(exp(a^2 / 2) * erfc(a / sqrt(2)) * (1 + a / 2)) / (1 - t) + 55/64 for t = w + 0.5625 = 1 / (1 + a / 2)."""
    t = w + mpf("0.5625")
    a = 2 / t - 2
    return mpmath.log(mpmath.exp(a * a / 2) * mpmath.erfc(a / mpmath.sqrt(2)) / t) / (1 - t) + mpf("0.859375")


def _t(x: str) -> Any:
    with mpmath.workprec(PRECISION):
        return (mpf(x) - 3) / (mpf(x) + 3)


def _quarter_sin(x: Any) -> Any:
    return mpmath.sin(x * mpmath.pi / 2)


def _fits_of_f64() -> Iterator[Fit]:
    yield Fit("exp_f64", lambda r: (mpmath.expm1(r) - r - r * r / 2) / r**3, lambda r: r**3, -0.347, 0.347, 9)
    yield Fit(
        "log_f64",
        lambda z: 2 * (mpmath.atanh(mpmath.sqrt(z)) - mpmath.sqrt(z) * (1 + z / 3)) / mpmath.sqrt(z) ** 5,
        lambda z: z * z * mpmath.sqrt(z) / mpmath.atanh(mpmath.sqrt(z)),
        TINY,
        0.02945,
        10,
    )
    yield Fit("sin_f64", *_odd_rest(mpmath.sin), TINY, 0.617, 6)
    yield Fit(
        "cos_f64",
        lambda z: (mpmath.cos(mpmath.sqrt(z)) - 1 + z / 2) / z**2,
        lambda z: z * z / mpmath.cos(mpmath.sqrt(z)),
        TINY,
        0.617,
        6,
    )
    yield Fit("atan_f64", *_odd_rest(mpmath.atan), TINY, 1 / 31.5**2, 5)
    yield Fit("erf_f64", *_ratio(mpmath.erf, 1), TINY, 0.7225, 12)
    yield Fit("erfc_f64", _scaled_erfc, lambda t: 1 / _scaled_erfc(t), _t("0.49"), _t("28"), 22, wide_first=True)


def _fits_of_f32() -> Iterator[Fit]:
    yield Fit(
        "exp_f32",
        lambda r: (mpmath.expm1(r) - r) / r**2,
        lambda r: r * r * mpmath.exp(-r),
        -0.347,
        0.347,
        4,
        single=True,
        fixed=(0.5,),
    )
    yield Fit("exp2_f32", lambda f: (mpf(2) ** f - 1) / f, lambda f: f * mpf(2) ** -f, -0.5, 0.5, 5, single=True)
    yield Fit(
        "log_f32",
        lambda f: (mpmath.log1p(f) - f + f * f / 2) / f**3,
        lambda f: f**3 / mpmath.log1p(f),
        -0.29292,
        0.41426,
        8,
        single=True,
    )
    yield Fit("tanh_f32", *_odd_rest(mpmath.tanh), TINY, 0.390625, 4, single=True)
    yield Fit("erf_f32", *_ratio(mpmath.erf, 1), TINY, 0.81, 6, single=True)
    yield Fit(
        "erf_far_f32",
        lambda a: mpmath.log(mpmath.erfc(a)),
        lambda a: mpmath.erfc(a) / mpmath.erf(a),
        0.89,
        3.95,
        6,
        single=True,
    )
    yield Fit(
        "gelu_f32",
        _gelu_bend,
        lambda w: mpf("0.4375") - w,
        1 / (1 + mpf("13.2") / 2) - mpf("0.5625"),
        0.4375,
        9,
        single=True,
    )


def _fits_of_f32_in_f64() -> Iterator[Fit]:
    """For functions of f32 that compute in f64."""
    yield Fit("exp_short", lambda r: mpmath.expm1(r) / r, lambda r: r / mpmath.expm1(r), -0.347, 0.347, 6)
    yield Fit(
        "log_short",
        lambda z: 2 * (mpmath.atanh(mpmath.sqrt(z)) - mpmath.sqrt(z)) / mpmath.sqrt(z) ** 3,
        lambda z: z * mpmath.sqrt(z) / mpmath.atanh(mpmath.sqrt(z)) / 2,
        TINY,
        0.02945,
        3,
    )
    yield Fit("erfc_short", _scaled_erfc, lambda t: 1 / _scaled_erfc(t), -1, _t("10.2"), 12)
    yield Fit("sin_quarter", *_ratio(_quarter_sin), TINY, 0.2501, 4)
    yield Fit(
        "cos_quarter",
        lambda z: (mpmath.cos(mpmath.sqrt(z) * mpmath.pi / 2) - 1) / z,
        lambda z: z / mpmath.cos(mpmath.sqrt(z) * mpmath.pi / 2),
        TINY,
        0.2501,
        3,
    )
    yield Fit("atan_short", *_odd_rest(mpmath.atan), TINY, 1, 10)
    yield Fit("asin_short", *_odd_rest(mpmath.asin), TINY, 0.25, 6)


def fits() -> Iterator[Fit]:
    """All polynomials of the runtime."""
    yield from _fits_of_f64()
    yield from _fits_of_f32()
    yield from _fits_of_f32_in_f64()


# --- tables -----------------------------------------------------------------------------------------------------------


def _hex(value: Any) -> str:
    return "0.0" if value == 0 else float(value).hex()


def two_over_pi(words: int = 39) -> list[str]:
    """The bits of 2 / pi behind the point, 32 in each word."""
    with mpmath.workprec(32 * words + 64):
        bits = int(mpmath.floor(2 / mpmath.pi * mpf(2) ** (32 * words)))
    return [f"0x{bits >> 32 * (words - 1 - i) & 0xFFFFFFFF:08x}u" for i in range(words)]


def arc_tangents() -> list[str]:
    """atan(i / 16) as sums of two doubles."""
    with mpmath.workprec(PRECISION):
        exact = [mpmath.atan(mpf(i) / 16) for i in range(17)]
        return [f"{{ {_hex(one)}, {_hex(one - float(one))} }}" for one in exact]


def turns() -> list[tuple[str, str, str]]:
    """16^i * 2 / pi modulo 4 (the first one as it is), as sums of 29 bits, 29 bits and a double."""
    rows = []
    with mpmath.workprec(600):
        for i in range(27):
            left = 2 / mpmath.pi * mpf(16) ** i
            left -= 4 * mpmath.floor(left / 4)
            unit = mpf(2) ** (-27 if i else -29)
            upper = mpmath.floor(left / unit) * unit
            unit *= mpf(2) ** -29
            middle = mpmath.floor((left - upper) / unit) * unit
            rows.append((_hex(upper), _hex(middle), _hex(left - upper - middle)))
    return rows


if __name__ == "__main__":
    mp.prec = PRECISION
    for one in fits():
        size = mpmath.log(error(one, coefficients(one)), 2)
        print(f"{one.name}: error 2^{mpmath.nstr(size, 4)}")
        print("    " + ", ".join(literals(one)))
    print("two over pi:", ", ".join(two_over_pi()))
    print("arc tangents:", ", ".join(arc_tangents()))
    print("turns:", *turns(), sep="\n    ")
