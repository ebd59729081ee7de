"""Arrays as the page shows them: statistics, a histogram, and a plane or row of numbers that fits a screen."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from openinfer.check.events import plain_number, statistics
from openinfer.ops import Array

MOST_CELLS = 96
"""The most rows and columns of a plane."""
MOST_POINTS = 1024
"""The most points of a line."""
_BINS = 32


def value_facts(value: Array, dtype: str, lead: Sequence[int] = ()) -> dict[str, Any]:
    """An array: its type, its statistics, and the plane of its last two axes that ``lead`` selects.

    >>> found = value_facts(np.arange(6.0).reshape(2, 3), "f64")
    >>> found["plane"]["cells"], found["histogram"]["counts"][0], found["shape"]
    ([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], 1, [2, 3])
    """
    chosen = _chosen(value, lead)
    part = np.asarray(value)[tuple(chosen)] if chosen else np.asarray(value)
    return {
        "dtype": dtype,
        "shape": list(value.shape),
        "statistics": {key: one for key, one in statistics(value).items() if key not in ("sample", "digest")},
        "histogram": histogram(value),
        "lead": chosen,
        "plane": _plane(part),
        "line": _line(part),
        "channels": _channels(value, chosen),
    }


def histogram(value: Array) -> dict[str, Any]:
    """A histogram of the finite numbers."""
    numbers = np.asarray(value).astype(np.float64).reshape(-1)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return {"low": None, "high": None, "counts": []}
    low, high = float(finite.min()), float(finite.max())
    if low == high or not np.isfinite(high - low):
        return {"low": low, "high": high, "counts": [int(finite.size)]}
    counts, _ = np.histogram(finite, bins=_BINS, range=(low, high))
    return {"low": low, "high": high, "counts": counts.tolist()}


def _chosen(value: Array, lead: Sequence[int]) -> list[int]:
    """An index for each axis but the last two, clamped to the array."""
    axes = max(value.ndim - 2, 0)
    wanted = [*lead, *([0] * axes)][:axes]
    return [min(max(int(one), 0), max(extent - 1, 0)) for one, extent in zip(wanted, value.shape, strict=False)]


def _sampled(extent: int, most: int) -> Array:
    """Positions spread evenly over an axis, or all of them if they fit."""
    return np.linspace(0, extent - 1, min(extent, most)).round().astype(np.int64)


def _plain(cells: Array) -> list[Any]:
    rounded = np.asarray(cells).astype(np.float64)
    return [plain_number(float(f"{one:.7g}")) for one in rounded.reshape(-1)]


def _plane(value: Array) -> dict[str, Any]:
    """Rows and columns of numbers, subsampled if there are too many."""
    if not value.size:
        return {"rows": [], "columns": [], "cells": []}
    table = np.asarray(value).reshape(1, -1) if value.ndim < 2 else np.asarray(value)
    rows, columns = (_sampled(extent, MOST_CELLS) for extent in table.shape)
    cells = table[np.ix_(rows, columns)]
    return {"rows": rows.tolist(), "columns": columns.tolist(), "cells": [_plain(row) for row in cells]}


def _line(value: Array) -> dict[str, Any]:
    """The numbers in order, subsampled if there are too many."""
    flat = np.asarray(value).reshape(-1)
    if not flat.size:
        return {"at": [], "values": []}
    at = _sampled(flat.size, MOST_POINTS)
    return {"at": at.tolist(), "values": _plain(flat[at])}


def _channels(value: Array, lead: Sequence[int]) -> list[list[list[Any]]] | None:
    """Red, green and blue, if the third axis from the end, or the last one, has extent 3."""
    if value.ndim < 3 or not value.size:
        return None
    if value.shape[-3] == 3:
        picture = np.asarray(value[tuple(lead[:-1])])
    elif value.shape[-1] == 3:
        picture = np.moveaxis(np.asarray(value[tuple(lead[:-1])]), -1, 0)
    else:
        return None
    rows, columns = (_sampled(extent, MOST_CELLS) for extent in picture.shape[1:])
    return [[_plain(row) for row in channel[np.ix_(rows, columns)]] for channel in picture]
