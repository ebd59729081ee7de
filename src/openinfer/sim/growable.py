"""Growable storage for cache tables and auto-dim matrices, with rollback of a step."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from openinfer.errors import Code
from openinfer.ops import Array, OpError
from openinfer.tensor import MAX_BYTES

Selector = int | tuple[int, int]
"""A single index, or a half-open range."""
Region = tuple[int | slice, ...]


@dataclass(frozen=True)
class _Undo:
    """Reverts one change: the values of a region, or (without a region) the whole storage before it."""

    data: Array
    extents: tuple[int, ...]
    region: Region | None = None


def filled(fill: Array, shape: Sequence[int]) -> Array:
    """An array of unwritten cells."""
    if prod(extent or 1 for extent in shape) * fill.itemsize > MAX_BYTES:  # a zero extent does not hide the others
        raise OpError(Code.OUT_OF_MEMORY, f"a table of the shape {list(shape)} is larger than any machine can hold")
    is_zero = not any(fill.tobytes())  # compares bits, since -0.0 is not all zeros
    return np.zeros(shape, fill.dtype) if is_zero else np.full(shape, fill, fill.dtype)


class GrowableArray:
    """A dense array that grows along its first axes. Cells never written read as the fill value.

    Growing beyond ``bounds`` is an error. ``rollback`` reverts the changes since ``begin``.

    >>> grid = GrowableArray(np.float32(0), (0,), (2,), (None,))
    >>> grid.write((3,), np.float32([1, 2]))
    >>> grid.extents, grid.read((((2, 4)),)).tolist()
    ((4,), [[0.0, 0.0], [1.0, 2.0]])
    """

    def __init__(
        self,
        fill: np.generic | Array,
        extents: Sequence[int],
        entry: Sequence[int],
        bounds: Sequence[int | None],
    ) -> None:
        self._fill = np.asarray(fill)
        self._start = tuple(extents)
        self._entry = tuple(entry)
        self._bounds = tuple(bounds)
        self.extents = self._start
        self._data = self._filled((*self._start, *self._entry))
        self._log: list[_Undo] = []
        self._logged = 0
        self._has_snapshot = False

    def _filled(self, shape: Sequence[int]) -> Array:
        return filled(self._fill, shape)

    @property
    def data(self) -> Array:
        """Everything within the extents, as a view."""
        return self._data[tuple(slice(extent) for extent in self.extents)]

    # --- reading and writing --------------------------------------------------------------------------------------

    def read(self, selectors: Sequence[Selector]) -> Array:
        """Copy the selected cells; those beyond the extents read as the fill value."""
        inside = all(
            (one < extent) if isinstance(one, int) else one[1] <= extent
            for one, extent in zip(selectors, self.extents, strict=True)
        )
        if inside:
            return self._data[(*_region(selectors), ...)].copy()  # the dots keep a scalar an array
        shape = [one[1] - one[0] for one in selectors if not isinstance(one, int)]
        found = self._filled((*shape, *self._entry))
        if any(isinstance(one, int) and one >= extent for one, extent in zip(selectors, self.extents, strict=True)):
            return found
        clipped = [
            one if isinstance(one, int) else (one[0], max(one[0], min(one[1], extent)))
            for one, extent in zip(selectors, self.extents, strict=True)
        ]
        part = self._data[_region(clipped)]
        found[tuple(slice(extent) for extent in part.shape)] = part
        return found

    def write(self, selectors: Sequence[Selector], value: Array) -> None:
        """Write values to the selected cells, growing as needed."""
        reach = [one + 1 if isinstance(one, int) else one[1] for one in selectors]
        for axis, (end, bound) in enumerate(zip(reach, self._bounds, strict=True)):
            if bound is not None and end > bound:
                message = f"the index {end - 1} along axis {axis} is outside the bound {bound}"
                raise OpError(Code.INDEX_OUT_OF_RANGE, message)
        if any(not isinstance(one, int) and one[0] >= one[1] for one in selectors):
            return
        self._reserve(reach)
        region = _region(selectors)
        self._remember(region)
        self._data[region] = value
        self.extents = tuple(max(extent, end) for extent, end in zip(self.extents, reach, strict=True))

    def _reserve(self, reach: Sequence[int]) -> None:
        capacity = self._data.shape[: len(reach)]
        if all(end <= own for end, own in zip(reach, capacity, strict=True)):
            return
        room = [
            own if end <= own else min(max(end, 2 * own), bound if bound is not None else max(end, 2 * own))
            for end, own, bound in zip(reach, capacity, self._bounds, strict=True)
        ]
        grown = self._filled((*room, *self._entry))
        grown[tuple(slice(own) for own in capacity)] = self._data
        self._remember(None)
        self._data = grown

    def reset(self, selectors: Sequence[Selector]) -> None:
        """Reset everything under a prefix of indices to the fill value; an empty prefix also resets the extents."""
        if not selectors:
            self._remember(None)
            self.extents = self._start
            self._data = self._filled((*self._start, *self._entry))
            return
        pairs = zip(selectors, self.extents, strict=False)
        if all((one < extent) if isinstance(one, int) else True for one, extent in pairs):
            region = _region(selectors)
            self._remember(region)
            self._data[region] = self._fill

    # --- rollback -------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start recording changes for ``rollback``."""
        self._log.clear()
        self._logged = 0
        self._has_snapshot = False

    def _remember(self, region: Region | None) -> None:
        if self._has_snapshot:
            return
        if region is None:
            # The storage is about to be replaced; the old one stays unchanged and belongs to the log.
            self._log.append(_Undo(self._data, self.extents))
            return
        old = self._data[region].copy()
        self._log.append(_Undo(old, self.extents, region))
        self._logged += old.nbytes + 64
        if self._logged > 2 * self._data.nbytes + 4096:
            self._snapshot()

    def _snapshot(self) -> None:
        """Replace the log of many small changes, which costs more, by a copy of the original storage."""
        data, extents = self._undone(self._data.copy(), self.extents)
        self._log = [_Undo(data, extents)]
        self._has_snapshot = True

    def _undone(self, data: Array, extents: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
        for change in reversed(self._log):
            extents = change.extents
            if change.region is None:
                data = change.data
            else:
                data[change.region] = change.data
        return data, extents

    def rollback(self) -> None:
        """Revert everything since ``begin``."""
        self._data, self.extents = self._undone(self._data, self.extents)
        self.begin()

    def restore(self, data: Array) -> None:
        """Replace everything with saved values."""
        self.extents = data.shape[: len(self._start)]
        self._data = data.copy()
        self.begin()


def _region(selectors: Sequence[Selector]) -> Region:
    return tuple(one if isinstance(one, int) else slice(*one) for one in selectors)
