"""Filters of signals and spectra."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from openinfer.dtypes import Array, DType
from openinfer.ops.cases import anything, case, extremes, random
from openinfer.ops.numeric import wide
from openinfer.ops.record import REQUIRED, SUM, Call, Case, OpCost, Param, op
from openinfer.ops.shapes import bytes_moved, gamma, multiplied
from openinfer.ops.types import FLOATS, NUMBERS, Shape, parameter_error, shape_error

FAMILY = "Signal"


def _fir_shape(call: Call) -> tuple[Shape, ...]:
    x, taps = call.input(0), call.input(1)
    if not x.shape:
        raise shape_error(f"a signal has at least one axis, and {x} has none", 0)
    if len(taps.shape) != 1:
        raise shape_error(f"the taps have one axis, not {taps}", 1)
    return (x.shape,)


def _fir_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, taps in (
        ((16,), 3),
        ((1,), 1),
        ((2, 9), 4),
        ((2, 3, 5), 1),
        ((3,), 7),
        ((0,), 2),
        ((2, 0), 3),
        ((5,), 0),
    ):
        yield case(dtype, random(rng, dtype, shape), random(rng, dtype, (taps,)))
    if dtype.kind != "float":
        yield case(dtype, anything(rng, dtype, (30,)), anything(rng, dtype, (6,)))
    one = 1 if dtype.maximum >= 1 else -1
    yield case(dtype, extremes(dtype), np.full(1, one, dtype.array))
    yield case(dtype, random(rng, dtype, (9,)), extremes(dtype)[-3:])


def _filtered(x: Array, taps: Array) -> Array:
    result = np.zeros(x.shape, x.dtype)
    length = x.shape[-1]
    for delay, tap in enumerate(taps[:length]):
        result[..., delay:] += tap * x[..., : length - delay]
    return result


def _fir_bound(call: Call, x: Array, taps: Array) -> Array:
    return gamma(multiplied(len(taps)), call.dtype().compute) * _filtered(np.abs(x), np.abs(taps))


@op(
    FAMILY,
    "x: T, taps: T -> T",
    shape=_fir_shape,
    cost=lambda call: OpCost(2 * call.input(0).size * call.shape(1)[0], *bytes_moved(call)),
    tolerance=SUM,
    bound=_fir_bound,
    cases=_fir_cases,
    T=NUMBERS,
)
def fir(call: Call, x: Array, taps: Array) -> Array:
    """A causal filter along the last axis, `y[t] = sum over k of taps[k] * x[t - k]`, without terms before the start.

    Integers wrap at their own width.
    """
    return _filtered(wide(x), wide(taps)) if call.dtype().kind == "float" else _filtered(x, taps)


NARROWEST = 1e-6
"""The least distance of two bins, in mel: below it their edges are hard to tell apart in f64."""


def _mel_range(call: Call) -> tuple[float, float]:
    rate, low, high = call.params["rate"], call.params["low"], call.params["high"]
    if not 0 < rate < float("inf"):
        raise parameter_error("rate", f"a sample rate is positive, not {rate:g}")
    top = rate / 2 if high is None else high
    if not 0 <= low < top:
        raise parameter_error("low", f"the lowest frequency is from 0 to below the highest, {top:g}, not {low:g}")
    if not top <= rate / 2:
        raise parameter_error("high", f"the highest frequency is at most half the rate, {rate / 2:g}, not {top:g}")
    if _mel(top) - _mel(low) < NARROWEST * (call.params["bins"] + 1):
        raise parameter_error("bins", f"the range from {low:g} to {top:g} Hz is too narrow for this many bins")
    return low, top


def mel_ends(call: Call) -> tuple[Any, Any]:
    """Where the scale begins and ends, in mel.

    In long numbers, as edges are: those of f64 are computed in vectors where the processor has them, with other last
    digits on another machine, and they become constants of generated code.
    """
    rate, low, high = call.params["rate"], call.params["low"], call.params["high"]
    return _mel(np.longdouble(low)), _mel(np.longdouble(rate / 2 if high is None else high))


def mel_edges(call: Call) -> Array:
    """The ``bins + 2`` points in Hz between which the triangles are."""
    mels = np.linspace(*mel_ends(call), call.params["bins"] + 2, dtype=np.longdouble)
    return 700 * (np.longdouble(10) ** (mels / 2595) - 1)


def _mel_weights(call: Call, kind: "np.dtype[Any]") -> Array:
    """The triangles, [bins, frequencies]."""
    edges = mel_edges(call).astype(kind)
    bins, frequencies = call.params["bins"], call.shape(0)[-1]
    at = np.arange(frequencies).astype(kind) * (kind.type(call.params["rate"]) / 2) / max(frequencies - 1, 1)
    left, middle, right = (edges[start : start + bins, None] for start in range(3))
    return np.maximum(0, np.minimum((at - left) / (middle - left), (right - at) / (right - middle)))


def _mel(frequency: Any) -> Any:
    return 2595 * np.log10(1 + frequency / 700)


def _mel_shape(call: Call) -> tuple[Shape, ...]:
    power, bins = call.input(0), call.params["bins"]
    if not power.shape:
        raise shape_error(f"a spectrum has at least one axis, and {power} has none", 0)
    if bins < 1:
        raise parameter_error("bins", f"there is at least one mel bin, not {bins}")
    _mel_range(call)
    return ((*power.shape[:-1], bins),)


def _mel_cases(rng: np.random.Generator, dtype: DType) -> Iterator[Case]:
    for shape, params in (
        ((33,), {"bins": 5, "rate": 16000}),
        ((2, 3, 17), {"bins": 8, "rate": 8000.0, "low": 100, "high": 3000}),
        ((2, 9), {"bins": 1, "rate": 22050, "low": 20.5}),
        ((1,), {"bins": 2, "rate": 100, "high": 40}),
        ((3, 0), {"bins": 2, "rate": 8000}),
        ((0, 9), {"bins": 2, "rate": 8000}),
    ):
        yield case(dtype, random(rng, dtype, shape, 0, 9), **params)
    bad = random(rng, dtype, (33,))
    bad[[3, 20]] = np.nan, np.inf
    yield case(dtype, bad, bins=12, rate=16000)


def _mel_bound(call: Call, power: Array) -> Array:
    # Two more than the terms: a weight is itself a rounded quotient.
    return gamma(call.shape(0)[-1] + 2, call.dtype().compute) * _mel_sums(
        _mel_weights(call, power.dtype), np.abs(power)
    )


def _mel_sums(weights: Array, power: Array) -> Array:
    """Sums over what is inside each triangle: what is outside does not count, not even when it is infinite."""
    sums = np.zeros((*power.shape[:-1], len(weights)), power.dtype)
    for at, triangle in enumerate(weights):
        inside = np.flatnonzero(triangle)
        sums[..., at] = power[..., inside] @ triangle[inside]
    return sums


@op(
    FAMILY,
    "power: T -> T",
    Param("bins", "int", REQUIRED, "The number of mel bins."),
    Param("rate", "float", REQUIRED, "The sample rate of the signal in Hz."),
    Param("low", "float", 0.0, "Where the first triangle begins, in Hz."),
    Param("high", "float", None, "Where the last triangle ends, in Hz; absent means half the rate."),
    shape=_mel_shape,
    cost=lambda call: OpCost(4 * call.input(0).size, *bytes_moved(call)),
    tolerance=SUM,
    bound=_mel_bound,
    cases=_mel_cases,
    T=FLOATS,
)
def mel_filterbank(call: Call, power: Array) -> Array:
    """The power in triangular bands of the mel scale, `y[m] = sum over f of weight(m, f) * power[f]`.

    The last axis of `power` holds frequencies from 0 to half the rate in equal steps. The mel scale is that of HTK,
    `mel = 2595 * log10(1 + Hz / 700)`: `bins + 2` points at equal distances from `low` to `high` are where triangle
    `m` begins, has its top of 1, and ends, as points `m`, `m + 1` and `m + 2`. Triangles are linear in Hz and not
    normalised; what is outside a triangle does not count, even where it is not finite.
    """
    spectrum = wide(power)
    return _mel_sums(_mel_weights(call, spectrum.dtype), spectrum)
