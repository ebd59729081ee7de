"""How values are spread, and the scale and zero point that an observer chooses for them."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import Array

_BINS = 4096
_CANDIDATES = np.linspace(1.0, 0.2, 65)
LOW, HIGH = -128, 127
SMALLEST_SCALE = 1e-12


class ObserverKind(StrEnum):
    """How the range of a value is chosen from all that was seen."""

    MINMAX = "minmax"
    """From the minimum to the maximum."""
    PERCENTILE = "percentile"
    """Without the outermost values."""
    MSE = "mse"
    """The range with the least mean square error of rounding and clipping."""


@dataclass(frozen=True)
class Observer:
    """A way to choose ranges. ``percentile`` is the share of values inside the range, in per cent."""

    kind: ObserverKind = ObserverKind.MSE
    percentile: float = 99.99


@dataclass(frozen=True)
class Smoothing:
    """Factors of the scale, one per channel of the last axis; the weights of a channel are multiplied by its factor."""

    strength: float
    """How much of the outliers moves into the weights; 1 moves all of it."""
    factors: npt.NDArray[np.float32] = field(compare=False)


@dataclass(frozen=True)
class Codes:
    """How i8 codes represent numbers: ``real = (code - zero) * scale``, times the factor of the channel if smoothed.

    >>> Codes(0.5, -10).of(np.float32([0, 1, 1000]))
    array([-10,  -8, 127], dtype=int8)
    """

    scale: float
    zero: int
    smoothing: Smoothing | None = None

    @property
    def steps(self) -> npt.NDArray[np.float32]:
        """The value of one code: one number, or one per channel."""
        scale = np.asarray(self.scale, np.float32)
        return scale if self.smoothing is None else np.asarray(scale * self.smoothing.factors, np.float32)

    def of(self, values: Array) -> Array:
        """Quantize numbers, exactly as the op ``quantize`` does."""
        steps = np.rint(values / self.steps) + self.zero
        return np.asarray(np.clip(np.nan_to_num(steps), LOW, HIGH), np.int8)

    def real(self, codes: Array) -> npt.NDArray[np.float32]:
        """Dequantize codes."""
        return (codes.astype(np.float32) - np.float32(self.zero)) * self.steps

    def rounded(self, values: Array) -> npt.NDArray[np.float32]:
        """Quantize and dequantize numbers."""
        return self.real(self.of(values))


class Spread:
    """A histogram of numbers, filled batch by batch. Its limit doubles when a number is outside."""

    def __init__(self) -> None:
        self.low, self.high = 0.0, 0.0
        self.count = 0
        self._limit = 0.0
        self._bins: npt.NDArray[np.int64] = np.zeros(_BINS, np.int64)

    def add(self, values: Array) -> None:
        """Count numbers; those that are not finite are skipped."""
        flat = values.reshape(-1)
        finite = flat[np.isfinite(flat)]
        if finite.size == 0:
            return
        low, high = float(finite.min()), float(finite.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.count += finite.size
        self._reach(max(-low, high))
        if self._limit:
            places = ((finite.astype(np.float64) / self._limit + 1) * (_BINS / 2)).astype(np.int64)
            self._bins += np.bincount(np.minimum(places, _BINS - 1), minlength=_BINS)

    def _reach(self, value: float) -> None:
        if value == 0 or value <= self._limit:
            return
        if self._limit == 0:
            self._limit = float(2.0 ** np.ceil(np.log2(value)))
        while self._limit < value:
            self._limit *= 2
            pairs = self._bins.reshape(-1, 2).sum(axis=1)
            self._bins = np.zeros(_BINS, np.int64)
            self._bins[_BINS // 4 : 3 * _BINS // 4] = pairs

    def merged(self, other: "Spread") -> "Spread":
        """The union of two histograms."""
        found = Spread()
        found.low, found.high = min(self.low, other.low), max(self.high, other.high)
        found.count = self.count + other.count
        for one in (self, other):
            found._reach(one._limit)
        for one in (self, other):
            if one._limit:
                middles, counts = one.middles()
                places = ((middles / found._limit + 1) * (_BINS / 2)).astype(np.int64)
                found._bins += np.bincount(np.minimum(places, _BINS - 1), counts, minlength=_BINS).astype(np.int64)
        return found

    def middles(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """The middle of each bin, and the count of numbers in it."""
        places: npt.NDArray[np.float64] = np.arange(_BINS, dtype=np.float64) + 0.5
        return np.asarray((places * (2 / _BINS) - 1) * self._limit, np.float64), self._bins

    def within(self, percent: float) -> tuple[float, float]:
        """The range that holds ``percent`` of the numbers, with equally many cut off on both sides."""
        middles, counts = self.middles()
        outside = (100 - percent) / 200 * counts.sum()
        running = np.cumsum(counts)
        first, last = (int(np.searchsorted(running, at)) for at in (outside + 1, counts.sum() - outside))
        step = self._limit / _BINS
        low, high = middles[min(first, _BINS - 1)] - step, middles[min(last, _BINS - 1)] + step
        return max(min(low, 0.0), self.low), min(max(high, 0.0), self.high)


def chosen(spread: Spread, observer: Observer, *, symmetric: bool) -> Codes:
    """Scale and zero point for values with this spread. Zero is always exact."""
    low, high = spread.low, spread.high
    if observer.kind is ObserverKind.PERCENTILE and spread.count:
        low, high = spread.within(observer.percentile)
    if observer.kind is ObserverKind.MSE and max(-low, high) > 0:
        low, high = _least_error(spread, symmetric=symmetric)
    return codes_for(low, high, symmetric=symmetric)


def codes_for(low: float, high: float, *, symmetric: bool) -> Codes:
    """Codes that cover a range.

    >>> both = codes_for(0.0, 255.0, symmetric=False), codes_for(-1.0, 127.0, symmetric=True)
    >>> [(codes.scale, codes.zero) for codes in both]
    [(1.0, -128), (1.0, 0)]
    """
    if symmetric:
        return Codes(_single(max(-low, high) / HIGH), 0)
    scale = _single((high - low) / (HIGH - LOW))
    return Codes(scale, int(np.clip(round(LOW - low / scale), LOW, HIGH)))


def _single(scale: float) -> float:
    """A scale as the shortest number that reads as the same f32, never zero."""
    return float(str(np.float32(max(scale, SMALLEST_SCALE))))


def _least_error(spread: Spread, *, symmetric: bool) -> tuple[float, float]:
    middles, counts = spread.middles()
    filled = counts > 0
    middles, counts = middles[filled], counts[filled]
    best, found = np.inf, (spread.low, spread.high)
    for factor in _CANDIDATES:
        low, high = spread.low * factor, spread.high * factor
        codes = codes_for(low, high, symmetric=symmetric)
        steps = np.clip(np.rint(middles / codes.scale) + codes.zero, LOW, HIGH)
        error = float((counts * (middles - (steps - codes.zero) * codes.scale) ** 2).sum())
        if error < best * (1 - 1e-9):
            best, found = error, (low, high)
    return found


def weight_scales(weights: Array, axis: int) -> npt.NDArray[np.float32]:
    """One scale per channel of weights. Channels close to zero share a minimum that keeps biases in range."""
    axes = tuple(one for one in range(weights.ndim) if one != axis)
    largest = np.abs(weights.astype(np.float64)).max(axis=axes, initial=0) / HIGH
    floor = (float(largest.max(initial=0)) or 1.0) / 1024
    return np.asarray(np.maximum(largest, floor), np.float32)


def weight_codes(weights: Array, scales: Array, axis: int) -> npt.NDArray[np.int8]:
    """Quantize weights with one scale per channel."""
    shape = [1] * weights.ndim
    shape[axis] = -1
    return np.clip(np.rint(weights / scales.reshape(shape)), -HIGH, HIGH).astype(np.int8)
