"""Cache tables and auto-dim matrices: maps the indices of an access to cells of grids."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from openinfer.check.bound import BoundVar
from openinfer.errors import Code
from openinfer.ir.expr import MOST_INDEX
from openinfer.ops import Array, OpError
from openinfer.sim.growable import GrowableArray, Selector, filled

Chosen = int | tuple[int | None, int | None]
"""An evaluated index: a single one, or the ends of a slice, which may be missing or count from the extent."""


class TableStorage:
    """The storage of one persistent table. ``indices`` have a fixed order; auto-dim indices are dimensions."""

    def __init__(self, variable: BoundVar, fill: Array) -> None:
        assert variable.decl is not None
        decl = variable.decl
        self.name = variable.name
        self._fill = fill
        self._shape = variable.shape
        self._fixed: Mapping[str, int] = variable.fixed
        self._auto = decl.auto_dim
        self._keys = tuple(index for index in decl.table_indices if index not in decl.auto_dim)
        self._indices = decl.table_indices
        # Without auto-dim, there is one grid over all indices; with it, one matrix for each choice of the others.
        self._grids: dict[tuple[int, ...], GrowableArray] = {}
        # A step changes few of many matrices; only those need a rollback.
        self._born: set[tuple[int, ...]] = set()
        self._changed: set[tuple[int, ...]] = set()
        self._key_extents = (0,) * len(self._keys)
        self._old_key_extents = self._key_extents
        if not decl.auto_dim or not self._keys:
            self._grids[()] = self._new_grid()

    @property
    def is_matrix(self) -> bool:
        """Whether indices are dimensions of a matrix."""
        return bool(self._auto)

    def _new_grid(self) -> GrowableArray:
        if not self._auto:
            bounds = [self._fixed.get(index) for index in self._indices]
            return GrowableArray(self._fill, (0,) * len(self._indices), self._shape, bounds)
        grown = len(self._auto)
        limits = [
            self._shape[axis] + self._fixed[index] if index in self._fixed else None
            for axis, index in enumerate(self._auto)
        ]
        return GrowableArray(self._fill, self._shape[:grown], self._shape[grown:], limits)

    # --- access ---------------------------------------------------------------------------------------------------

    def read(self, chosen: Sequence[Chosen]) -> Array:
        """Copy what an access names."""
        if not self._auto:
            grid = self._grids[()]
            return grid.read(self._selectors(chosen, grid.extents, self._indices))
        picks, where = self._places(chosen)
        found = filled(self._fill, (*_lengths(picks), *_lengths(where), *self._shape[len(self._auto) :]))
        for key, grid in self._chosen_grids(picks):
            place = tuple(part - one[0] for part, one in zip(key, picks, strict=True) if not isinstance(one, int))
            found[place] = grid.read(where)
        return found

    def _places(self, chosen: Sequence[Chosen]) -> tuple[list[Selector], list[Selector]]:
        """The matrices that an access names, and the cells in them."""
        keys, cells = self._split(chosen)
        picks = self._key_selectors(keys)
        # Several matrices in one tensor have the extents of the largest.
        return picks, self._cells(cells, self._common_extents(picks))

    def _chosen_grids(self, picks: Sequence[Selector]) -> Iterator[tuple[tuple[int, ...], GrowableArray]]:
        """The existing matrices among those selected; far more may be selected than exist."""
        one = tuple(pick for pick in picks if isinstance(pick, int))
        if len(one) == len(picks):
            if one in self._grids:
                yield one, self._grids[one]
            return
        for key, grid in self._grids.items():
            if all(_is_chosen(part, pick) for part, pick in zip(key, picks, strict=False)):
                yield key, grid

    def write(self, chosen: Sequence[Chosen], value: Array) -> None:
        """Write a value to what an access names; writing past the edge grows the storage."""
        if not self._auto:
            grid = self._changing(())
            grid.write(self._selectors(chosen, grid.extents, self._indices), value)
            return
        picks, where = self._places(chosen)
        if 0 in (*_lengths(picks), *_lengths(where)):
            return
        front = len(_lengths(picks))
        parts = value.reshape((-1, *value.shape[front:])) if front else value[None]
        for key, part in zip(_combinations(picks), parts, strict=True):
            self._changing(key).write(where, part)
        reach = [one + 1 if isinstance(one, int) else one[1] for one in picks]
        self._key_extents = tuple(max(own, end) for own, end in zip(self._key_extents, reach, strict=True))

    def shape_of(self, chosen: Sequence[Chosen]) -> tuple[int, ...]:
        """The shape of what an access names."""
        if not self._auto:
            selectors = self._selectors(chosen, self._grids[()].extents, self._indices)
            return (*_lengths(selectors), *self._shape)
        picks, where = self._places(chosen)
        return (*_lengths(picks), *_lengths(where), *self._shape[len(self._auto) :])

    def require_room(self, chosen: Sequence[Chosen]) -> None:
        """Refuse a write beyond the bounds of a matrix; indices of tables are checked in any case."""
        if not self._auto:
            return
        picks, where = self._places(chosen)
        if 0 in (*_lengths(picks), *_lengths(where)):
            return
        for axis, (name, one) in enumerate(zip(self._auto, where, strict=True)):
            last = one if isinstance(one, int) else one[1] - 1
            if name in self._fixed and last >= self._shape[axis] + self._fixed[name]:
                bound = self._shape[axis] + self._fixed[name]
                message = f"the index {last} of {self.name!r} is outside the bound {bound} along {name!r}"
                raise OpError(Code.INDEX_OUT_OF_RANGE, message)

    def _common_extents(self, picks: Sequence[Selector]) -> tuple[int, ...]:
        """The extents of the largest selected matrix."""
        found = [grid.extents for _, grid in self._chosen_grids(picks)]
        least = self._shape[: len(self._auto)]
        return tuple(max(parts) for parts in zip(least, *found, strict=True))

    def reset(self, chosen: Sequence[Chosen]) -> None:
        """Reset everything, or everything under a prefix of indices, to its initial value."""
        if not self._auto:
            grid = self._changing(())
            grid.reset(self._selectors(chosen, grid.extents, self._indices[: len(chosen)]))
            return
        keys, cells = self._split([*chosen, *[(None, None)] * (len(self._indices) - len(chosen))])
        # If no index of the matrix is given, its growth is reset as well.
        is_whole = not any(name in self._auto for name in self._indices[: len(chosen)])
        picks = self._key_selectors(keys)
        where = () if is_whole else self._cells(cells, self._common_extents(picks))
        for key, _ in self._chosen_grids(picks):
            self._changing(key).reset(where)
        if not chosen:
            self._key_extents = (0,) * len(self._keys)

    # --- indices --------------------------------------------------------------------------------------------------

    def _split(self, chosen: Sequence[Chosen]) -> tuple[list[Chosen], list[Chosen]]:
        complete = chosen or [(None, None)] * len(self._indices)
        named = dict(zip(self._indices, complete, strict=True))
        return [named[index] for index in self._keys], [named[index] for index in self._auto]

    def _selectors(self, chosen: Sequence[Chosen], extents: Sequence[int], names: Sequence[str]) -> list[Selector]:
        complete = chosen or [(None, None)] * len(names)
        found: list[Selector] = []
        for one, extent, name in zip(complete, extents, names, strict=False):
            selector = selected(one, extent)
            self._require_inside(name, selector)
            found.append(selector)
        return found

    def _key_selectors(self, keys: Sequence[Chosen]) -> list[Selector]:
        return self._selectors(keys, self._key_extents, self._keys) if keys else []

    def _require_inside(self, name: str, selector: Selector) -> None:
        bound = self._fixed.get(name)
        last = selector if isinstance(selector, int) else selector[1] - 1
        if bound is not None and last >= bound:
            message = f"the index {last} of {self.name!r} is outside its bound {name}={bound}"
            raise OpError(Code.INDEX_OUT_OF_RANGE, message)

    def _cells(self, cells: Sequence[Chosen], extents: Sequence[int]) -> list[Selector]:
        """The cells of a matrix: if all indices are single, the matrix grown by them; otherwise a selection."""
        if all(isinstance(one, int) for one in cells):
            grown: list[Selector] = []
            for axis, more in enumerate(cells):
                assert isinstance(more, int)
                name = self._auto[axis]
                if more < 0 or more > self._fixed.get(name, more):
                    bound = f"its bound {name}={self._fixed[name]}" if name in self._fixed else "0 and up"
                    message = f"{self.name!r} cannot grow by {more} along {name!r}: outside {bound}"
                    raise OpError(Code.INDEX_OUT_OF_RANGE, message)
                grown.append((0, self._shape[axis] + more))
            return grown
        return [selected(one, extent) for one, extent in zip(cells, extents, strict=False)]

    def _changing(self, key: tuple[int, ...]) -> GrowableArray:
        """The storage under these indices, for modification. An interrupt after any line can be rolled back."""
        grid = self._grids.get(key)
        if grid is None:
            self._born.add(key)
            grid = self._grids[key] = self._new_grid()
        self._changed.add(key)
        return grid

    # --- steps ----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start recording changes for ``rollback``."""
        self._old_key_extents = self._key_extents
        for key in self._changed:
            self._grids[key].begin()
        self._born.clear()
        self._changed.clear()

    def rollback(self) -> None:
        """Revert everything since ``begin``."""
        for key in self._born:
            self._grids.pop(key, None)
        self._key_extents = self._old_key_extents
        for key in self._changed - self._born:
            self._grids[key].rollback()
        self._changed.clear()
        self._born.clear()

    # --- saving ---------------------------------------------------------------------------------------------------

    def dump(self) -> dict[tuple[int, ...], Array]:
        """All stored arrays, keyed by the indices that select matrices."""
        return {
            key: np.ascontiguousarray(grid.data)
            for key, grid in sorted(self._grids.items())
            # A reset shrinks the extents and leaves initial matrices beyond them.
            if all(part < extent for part, extent in zip(key, self._key_extents, strict=False))
        }

    def restore(self, saved: Mapping[tuple[int, ...], Array]) -> None:
        """Replace everything with the result of ``dump``."""
        self._grids = {key: self._new_grid() for key in saved}
        self._changed.clear()
        for key, data in saved.items():
            self._grids[key].restore(data)
        if self._auto:
            ends = [tuple(part + 1 for part in key) for key in saved if key]
            self._key_extents = tuple(max(parts) for parts in zip(*ends, strict=True)) or (0,) * len(self._keys)
        self.begin()

    def fits(self, key: tuple[int, ...], shape: Sequence[int]) -> bool:
        """Whether an array of this shape can be the storage under these indices."""
        if len(key) != (len(self._keys) if self._auto else 0):
            return False
        if any(part >= self._fixed.get(name, part + 1) for name, part in zip(self._keys, key, strict=False)):
            return False
        growing = len(self._auto) if self._auto else len(self._indices)
        if len(shape) != growing + len(self._shape) - (len(self._auto) if self._auto else 0):
            return False
        trailing = self._shape[len(self._auto) :] if self._auto else self._shape
        least = self._shape[:growing] if self._auto else (0,) * growing
        names = self._auto or self._indices
        most = [
            None if name not in self._fixed else self._fixed[name] + (least[axis] if self._auto else 0)
            for axis, name in enumerate(names)
        ]
        return tuple(shape[growing:]) == tuple(trailing) and all(
            low <= extent and (high is None or extent <= high)
            for low, extent, high in zip(least, shape, most, strict=False)
        )


def selected(chosen: Chosen, extent: int) -> Selector:
    """Convert an evaluated index to cells; slices get both ends, neither below zero."""
    if isinstance(chosen, int):
        if chosen < 0:
            raise OpError(Code.NEGATIVE_INDEX, f"the index {chosen} is negative")
        if chosen == MOST_INDEX:
            raise OpError(Code.INDEX_OUT_OF_RANGE, f"the index {chosen} is the largest in 64 bits, and no table has it")
        return chosen
    start, end = (0 if chosen[0] is None else chosen[0]), (extent if chosen[1] is None else chosen[1])
    start, end = (max(0, one + extent) if one < 0 else one for one in (start, end))
    return (start, max(start, end))


def _lengths(selectors: Sequence[Selector]) -> list[int]:
    return [one[1] - one[0] for one in selectors if not isinstance(one, int)]


def _is_chosen(part: int, pick: Selector) -> bool:
    return part == pick if isinstance(pick, int) else pick[0] <= part < pick[1]


def _combinations(picks: Sequence[Selector]) -> Iterator[tuple[int, ...]]:
    return product(*((one,) if isinstance(one, int) else range(*one) for one in picks))
