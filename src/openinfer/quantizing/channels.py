"""The range of each channel of a value and a sample of its rows, on which smoothing is decided."""

import numpy as np
import numpy.typing as npt

from openinfer.dtypes import Array

_MOST_ROWS = 512


class ChannelSpread:
    """The minimum and maximum of each channel (the last axis), and rows spaced evenly over all that were seen."""

    def __init__(self) -> None:
        self.low: npt.NDArray[np.float32] = np.zeros(0, np.float32)
        self.high: npt.NDArray[np.float32] = np.zeros(0, np.float32)
        self.rows: npt.NDArray[np.float32] = np.zeros((0, 0), np.float32)
        self._seen = 0
        self._stride = 1

    def add(self, values: Array) -> None:
        """Record a batch of values; rows that are not finite are skipped."""
        rows = values.reshape(-1, values.shape[-1])
        rows = rows[np.isfinite(rows).all(axis=1)]
        if not self._seen:
            self.low = self.high = np.zeros(rows.shape[1], np.float32)
            self.rows = np.zeros((0, rows.shape[1]), np.float32)
        self.low = np.minimum(self.low, rows.min(axis=0, initial=0))
        self.high = np.maximum(self.high, rows.max(axis=0, initial=0))
        self.rows = np.concatenate([self.rows, rows[-self._seen % self._stride :: self._stride]])
        self._seen += len(rows)
        while len(self.rows) > _MOST_ROWS:
            self.rows, self._stride = self.rows[::2], 2 * self._stride

    @property
    def largest(self) -> npt.NDArray[np.float32]:
        """The largest magnitude of each channel."""
        return np.maximum(-self.low, self.high)
