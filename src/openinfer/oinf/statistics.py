"""Statistics of a tensor of any size, computed in chunks small enough for the cache.

The median is exact: histograms narrow the range around it until what is left can be sorted.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from openinfer.tensor import Tensor

Floats = npt.NDArray[np.float64]
Pieces = Callable[[], Iterator[Floats]]
Advance = Callable[[int], None]

PIECE = 1 << 20
_BINS = 4096
_SORTABLE = 1 << 22
_HISTOGRAM_BARS = 10
_LARGE = 1e300


@dataclass(frozen=True)
class Bar:
    """One bar of a histogram: the number of values from ``low`` up to ``high``."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Statistics:
    """Statistics of the finite values of a tensor, and how many are not finite."""

    finite: int
    nan: int = 0
    infinite: int = 0
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    median: float | None = None
    std: float | None = None
    histogram: tuple[Bar, ...] = field(default=(), repr=False)


def statistics(tensor: Tensor, advance: Advance | None = None) -> Statistics:
    """Count, range, mean, median, standard deviation and histogram of a tensor.

    ``advance`` receives the number of elements of each chunk of the first pass.

    >>> result = statistics(Tensor.from_numpy(np.array([1, 2, 3, 10], np.int16)))
    >>> result.minimum, result.maximum, result.mean, result.median
    (1, 10, 4.0, 2.5)
    """
    moments = _Moments()
    for piece in pieces(tensor):
        moments.add(piece)
        if advance is not None:
            advance(piece.size)
    if moments.count == 0:
        return Statistics(0, moments.nan, moments.infinite)
    low, high = float(moments.low), float(moments.high)
    # Differences of values near the end of the f64 range would overflow; halving twice is exact there.
    scale = 0.25 if max(abs(low), abs(high)) > _LARGE else 1.0

    def scaled() -> Iterator[Floats]:
        for piece in pieces(tensor):
            values = piece.astype(np.float64)
            yield values[np.isfinite(values)] * scale

    middle = (moments.count - 1) // 2
    median = _kth(scaled, middle, low * scale, high * scale)
    if moments.count % 2 == 0:
        median = median / 2 + _kth(scaled, middle + 1, low * scale, high * scale) / 2
    return Statistics(
        moments.count,
        moments.nan,
        moments.infinite,
        moments.low,
        moments.high,
        moments.mean,
        median / scale,
        sqrt(moments.squares / moments.count),
        _value_bars(tensor, int(moments.low), int(moments.high))
        if tensor.dtype.kind != "float" and moments.high - moments.low < _HISTOGRAM_BARS
        else _range_bars(scaled, low * scale, high * scale, scale),
    )


def pieces(tensor: Tensor, limit: int = PIECE) -> Iterator[npt.NDArray[Any]]:
    """The elements of a contiguous tensor in order, ``limit`` at a time."""
    flat = Tensor(tensor.dtype, (tensor.size,), tensor.storage, offset=tensor.offset)
    for start in range(0, tensor.size, limit):
        piece = flat[start : start + limit].to_numpy()
        yield piece.astype(np.int8) if tensor.dtype.is_packed else piece


class _Moments:
    """Range, mean and sum of squared deviations, merged piece by piece (Chan's update)."""

    def __init__(self) -> None:
        self.count = self.nan = self.infinite = 0
        self.low: float = 0
        self.high: float = 0
        self.mean = self.squares = 0.0

    def add(self, piece: npt.NDArray[Any]) -> None:
        values = piece.astype(np.float64)
        finite = np.isfinite(values)
        if not finite.all():
            nan = int(np.isnan(values).sum())
            self.nan += nan
            self.infinite += int(values.size - finite.sum()) - nan
            piece, values = piece[finite], values[finite]
        if not values.size:
            return
        # Integers keep their exact extremes; NumPy has no minimum for small floats.
        exact = piece if piece.dtype.kind in "iub" else values
        low, high = exact.min().item(), exact.max().item()
        self.low = low if self.count == 0 else min(self.low, low)
        self.high = high if self.count == 0 else max(self.high, high)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = float((values / values.size).sum())
            squares = float(np.square(values - mean).sum())
            total = self.count + values.size
            delta = mean - self.mean
            self.squares += squares + delta * delta * (self.count * values.size / total)
            self.mean += delta * (values.size / total)
        self.count = total


def _kth(values: Pieces, k: int, low: float, high: float) -> float:
    """The k-th smallest of the values from ``low`` to ``high``, found without holding them all."""
    while low < high:
        counts = np.zeros(_BINS, np.int64)
        for piece in values():
            inside = piece[(piece >= low) & (piece <= high)]
            counts += np.bincount(_bin(inside, low, high), minlength=_BINS)
        reached = np.cumsum(counts)
        chosen = int(np.searchsorted(reached, k, side="right"))
        k -= int(reached[chosen - 1]) if chosen else 0
        members: list[Floats] = []
        bounds = [high, low]
        for piece in values():
            inside = piece[(piece >= low) & (piece <= high)]
            member = inside[_bin(inside, low, high) == chosen]
            if counts[chosen] <= _SORTABLE:
                members.append(member)
            elif member.size:
                bounds = [min(bounds[0], float(member.min())), max(bounds[1], float(member.max()))]
        if members:
            return float(np.partition(np.concatenate(members), k)[k])
        low, high = bounds
    return low


def _bin(values: Floats, low: float, high: float) -> npt.NDArray[np.int64]:
    """The bin of each value among bins of equal width; monotonic, so a bin is a range."""
    position = (values - low) / (high - low) * _BINS
    return np.minimum(position, _BINS - 1).astype(np.int64)


def _value_bars(tensor: Tensor, low: int, high: int) -> tuple[Bar, ...]:
    """One bar per integer of a small range."""
    counts = np.zeros(high - low + 1, np.int64)
    for piece in pieces(tensor):
        integers = piece.view(np.int8) if piece.dtype == np.bool_ else piece
        # The subtraction may wrap in its own type, but the difference is small and comes out right.
        counts += np.bincount((integers - integers.dtype.type(low)).astype(np.int64), minlength=counts.size)
    return tuple(Bar(low + index, low + index, int(count)) for index, count in enumerate(counts))


def _range_bars(values: Pieces, low: float, high: float, scale: float) -> tuple[Bar, ...]:
    if low == high:
        return (Bar(low / scale, high / scale, sum(piece.size for piece in values())),)
    edges = np.linspace(low, high, _HISTOGRAM_BARS + 1)
    counts = np.zeros(_HISTOGRAM_BARS, np.int64)
    for piece in values():
        slots = np.searchsorted(edges[1:-1], piece, side="right")
        counts += np.bincount(slots, minlength=_HISTOGRAM_BARS)
    return tuple(
        Bar(float(edges[i]) / scale, float(edges[i + 1]) / scale, int(count)) for i, count in enumerate(counts)
    )
