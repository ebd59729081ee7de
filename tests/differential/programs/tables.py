"""Cache tables and auto-dim matrices of the interpreter: dense arrays that are replaced when they change."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from tests.differential.programs.numbers import Array, FailedError, held_as, zero
from tests.differential.programs.tree import Decl

Chosen = int | tuple[int | None, int | None]
Cells = int | tuple[int, int]
MOST_CELLS = 1 << 14


class TooMuchError(Exception):
    """A program that would run or grow for too long to be worth judging."""


def cells_of(chosen: Chosen, extent: int) -> Cells:
    """An index as evaluated, as cells: negative ends of slices count from the extent."""
    if isinstance(chosen, int):
        if chosen < 0:
            raise FailedError("E505", f"index {chosen}")
        return chosen
    start, end = (edge if one is None else one for one, edge in zip(chosen, (0, extent), strict=True))
    start, end = (max(0, one + extent) if one < 0 else one for one in (start, end))
    return (start, max(start, end))


def lengths(cells: Sequence[Cells]) -> tuple[int, ...]:
    """The extents that slices leave."""
    return tuple(one[1] - one[0] for one in cells if not isinstance(one, int))


def _region(cells: Sequence[Cells]) -> tuple[Any, ...]:
    return tuple(one if isinstance(one, int) else slice(*one) for one in cells)


def _reach(cells: Sequence[Cells]) -> list[int]:
    return [one + 1 if isinstance(one, int) else one[1] for one in cells]


class Grid:
    """A dense array that grows along its first axes; what was never written reads as the fill value."""

    def __init__(self, fill: Array, data: Array, axes: int) -> None:
        self.fill = fill
        self.data = data
        self.axes = axes

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(self.data.shape[: self.axes])

    def _grown(self, reach: Sequence[int]) -> Array:
        extents = [max(own, end) for own, end in zip(self.extents, reach, strict=True)]
        if np.prod(extents, dtype=object) * max(1, int(np.prod(self.data.shape[self.axes :]))) > MOST_CELLS:
            raise TooMuchError
        grown = np.full((*extents, *self.data.shape[self.axes :]), self.fill, self.data.dtype)
        grown[tuple(slice(extent) for extent in self.data.shape)] = self.data
        return grown

    def read(self, cells: Sequence[Cells]) -> Array:
        return self._grown(_reach(cells))[(*_region(cells), ...)]

    def written(self, cells: Sequence[Cells], value: Array) -> "Grid":
        if 0 in lengths(cells):
            return self
        data = self._grown(_reach(cells))
        data[_region(cells)] = value
        return Grid(self.fill, data, self.axes)

    def reset(self, cells: Sequence[Cells]) -> "Grid":
        """Initial values where a prefix of cells says; the extents stay."""
        data = self.data.copy()
        inside = all(not isinstance(one, int) or one < extent for one, extent in zip(cells, self.extents, strict=False))
        if inside:
            data[_region(cells)] = self.fill
        return Grid(self.fill, data, self.axes)


class Table:
    """One persistent table as it is at some moment: changing it gives another one."""

    def __init__(self, decl: Decl, grids: dict[tuple[int, ...], Grid], key_extents: tuple[int, ...]) -> None:
        self.decl = decl
        self._grids = grids
        self._key_extents = key_extents
        self._fixed = dict(decl.fixed)
        self._keys = tuple(name for name in decl.indices if name not in decl.auto_dim)

    @classmethod
    def new(cls, decl: Decl) -> "Table":
        keys = [name for name in decl.indices if name not in decl.auto_dim]
        fresh = cls(decl, {}, (0,) * len(keys))
        if not decl.auto_dim or not keys:
            fresh._grids[()] = fresh._new_grid()
        return fresh

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(number for number, _ in self.decl.kind.dims)

    def _new_grid(self) -> Grid:
        dtype = self.decl.kind.dtype
        fill = zero(dtype) if self.decl.init is None else np.asarray(self.decl.init).astype(held_as(dtype))
        axes = len(self.decl.auto_dim) or len(self.decl.indices)
        start = self._shape if self.decl.auto_dim else (*(0,) * axes, *self._shape)
        return Grid(fill, np.full(start, fill, held_as(dtype)), axes)

    # --- access -------------------------------------------------------------------------------------------------------

    def read(self, chosen: Sequence[Chosen]) -> Array:
        if not self.decl.auto_dim:
            return self._grids[()].read(self._cells(chosen, self._grids[()].extents, self.decl.indices))
        picks, where = self._matrices(chosen)
        shape = (*lengths(picks), *lengths(where), *self._shape[len(self.decl.auto_dim) :])
        found = np.full(shape, self._new_grid().fill, held_as(self.decl.kind.dtype))
        for key in self._chosen(picks):
            place = tuple(part - one[0] for part, one in zip(key, picks, strict=True) if not isinstance(one, int))
            found[place] = self._grids[key].read(where)
        return found

    def written(self, chosen: Sequence[Chosen], value: Array) -> "Table":
        grids = dict(self._grids)
        if not self.decl.auto_dim:
            cells = self._cells(chosen, grids[()].extents, self.decl.indices)
            self._require_shape((*lengths(cells), *self._shape), value)
            grids[()] = grids[()].written(cells, value)
            return Table(self.decl, grids, self._key_extents)
        picks, where = self._matrices(chosen)
        self._require_shape((*lengths(picks), *lengths(where), *self._shape[len(self.decl.auto_dim) :]), value)
        if 0 in (*lengths(picks), *lengths(where)):
            return self
        self._require_growth(where)
        keys = list(product(*((one,) if isinstance(one, int) else range(*one) for one in picks)))
        front = len(lengths(picks))
        parts = value.reshape((-1, *value.shape[front:])) if front else value[None]
        for key, part in zip(keys, parts, strict=True):
            grids[key] = grids.get(key, self._new_grid()).written(where, part)
        ends = tuple(max(own, end) for own, end in zip(self._key_extents, _reach(picks), strict=True))
        return Table(self.decl, grids, ends)

    def reset(self, chosen: Sequence[Chosen]) -> "Table":
        if not chosen:
            return Table.new(self.decl)
        grids = dict(self._grids)
        if not self.decl.auto_dim:
            cells = self._cells(chosen, grids[()].extents, self.decl.indices[: len(chosen)])
            grids[()] = grids[()].reset(cells)
            return Table(self.decl, grids, self._key_extents)
        complete = [*chosen, *[(None, None)] * (len(self.decl.indices) - len(chosen))]
        is_whole = not set(self.decl.indices[: len(chosen)]) & set(self.decl.auto_dim)
        picks, where = self._matrices(complete)
        for key in self._chosen(picks):
            grids[key] = self._new_grid() if is_whole else grids[key].reset(where)
        return Table(self.decl, grids, self._key_extents)

    # --- indices ------------------------------------------------------------------------------------------------------

    def _cells(self, chosen: Sequence[Chosen], extents: Sequence[int], names: Sequence[str]) -> list[Cells]:
        complete = chosen or [(None, None)] * len(names)
        found = []
        for one, extent, name in zip(complete, extents, names, strict=False):
            cells = cells_of(one, extent)
            last = cells if isinstance(cells, int) else cells[1] - 1
            if name in self._fixed and last >= self._fixed[name]:
                raise FailedError("E507", f"{self.decl.name}: {last} of {name}")
            found.append(cells)
        return found

    def _matrices(self, chosen: Sequence[Chosen]) -> tuple[list[Cells], list[Cells]]:
        """Which matrices, and which of their cells."""
        complete = dict(zip(self.decl.indices, chosen or [(None, None)] * len(self.decl.indices), strict=True))
        picks = (
            self._cells([complete[name] for name in self._keys], self._key_extents, self._keys) if self._keys else []
        )
        inner = [complete[name] for name in self.decl.auto_dim]
        own = [self._grids[key].extents for key in self._chosen(picks)]
        extents = [max(parts) for parts in zip(self._shape[: len(inner)], *own, strict=True)]
        if not all(isinstance(one, int) for one in inner):
            return picks, [cells_of(one, extent) for one, extent in zip(inner, extents, strict=True)]
        grown: list[Cells] = []
        for name, more, least in zip(self.decl.auto_dim, inner, self._shape, strict=False):
            assert isinstance(more, int)
            if more < 0 or more > self._fixed.get(name, more):
                raise FailedError("E507", f"{self.decl.name} grown by {more}")
            grown.append((0, least + more))
        return picks, grown

    def _chosen(self, picks: Sequence[Cells]) -> list[tuple[int, ...]]:
        return [
            key
            for key in self._grids
            if all(
                part == one if isinstance(one, int) else one[0] <= part < one[1]
                for part, one in zip(key, picks, strict=True)
            )
        ]

    def _require_growth(self, where: Sequence[Cells]) -> None:
        for name, least, end in zip(self.decl.auto_dim, self._shape, _reach(where), strict=False):
            if name in self._fixed and end > least + self._fixed[name]:
                raise FailedError("E507", f"{self.decl.name} up to {end}")

    def _require_shape(self, shape: tuple[int, ...], value: Array) -> None:
        if value.shape != shape:
            raise FailedError("E308", f"{value.shape} for {shape} of {self.decl.name}")
