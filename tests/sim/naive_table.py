"""Tables as the language describes them, cell by cell and without any thought of speed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import numpy.typing as npt

Chosen = int | tuple[int | None, int | None]
Range = int | tuple[int, int]
Cell = tuple[tuple[int, ...], tuple[int, ...]]
"""The indices that choose a matrix (none without auto-dim), and the place in it."""
Array = npt.NDArray[np.float32]


@dataclass
class NaiveTable:
    """A dictionary of the cells that have been written, and the extents."""

    indices: Sequence[str]
    auto: Sequence[str]
    shape: tuple[int, ...]
    fill: float
    cells: dict[Cell, float] = field(default_factory=dict)
    extents: list[int] = field(default_factory=list)
    """Of the indices that are not auto-dim's."""
    grown: dict[tuple[int, ...], list[int]] = field(default_factory=dict)
    """The extents of matrices."""

    def __post_init__(self) -> None:
        self.keys = [name for name in self.indices if name not in self.auto]
        self.extents = [0] * len(self.keys)
        self.trailing = self.shape[len(self.auto) :]

    def _resolved(self, chosen: Sequence[Chosen]) -> tuple[list[Range], list[Range]]:
        named: Mapping[str, Chosen] = dict(zip(self.indices, chosen or [(None, None)] * len(self.indices), strict=True))
        keys = [_range(named[name], extent) for name, extent in zip(self.keys, self.extents, strict=True)]
        if not self.auto:
            return [], keys
        extents = list(self.shape[: len(self.auto)])
        for key in product(*map(_each, keys)):
            extents = [max(pair) for pair in zip(extents, self.grown.get(key, extents), strict=True)]
        own = [named[name] for name in self.auto]
        if all(isinstance(one, int) for one in own):
            return keys, [
                (0, size + more) for size, more in zip(self.shape, own, strict=False) if isinstance(more, int)
            ]
        return keys, [_range(one, extent) for one, extent in zip(own, extents, strict=True)]

    def shape_of(self, chosen: Sequence[Chosen]) -> tuple[int, ...]:
        keys, places = self._resolved(chosen)
        return (*(one[1] - one[0] for one in (*keys, *places) if not isinstance(one, int)), *self.trailing)

    def _cells(self, chosen: Sequence[Chosen]) -> Iterator[Cell]:
        keys, places = self._resolved(chosen)
        for cell in product(*map(_each, (*keys, *places)), *map(range, self.trailing)):
            yield cell[: len(keys)], cell[len(keys) :]

    def read(self, chosen: Sequence[Chosen]) -> Array:
        values = [self.cells.get(cell, self.fill) for cell in self._cells(chosen)]
        return np.array(values, np.float32).reshape(self.shape_of(chosen))

    def write(self, chosen: Sequence[Chosen], value: Array) -> None:
        keys, places = self._resolved(chosen)
        if any(not list(_each(one)) for one in (*keys, *places)):
            return
        for cell, number in zip(list(self._cells(chosen)), value.reshape(-1).tolist(), strict=True):
            self.cells[cell] = number
        ends = [_end(one) for one in places]
        if not self.auto:
            self.extents = [max(pair) for pair in zip(self.extents, ends, strict=True)]
            return
        for key in product(*map(_each, keys)):
            own = self.grown.get(key, list(self.shape[: len(self.auto)]))
            self.grown[key] = [max(pair) for pair in zip(own, ends, strict=True)]
        self.extents = [max(own, _end(one)) for own, one in zip(self.extents, keys, strict=True)]

    def reset(self, chosen: Sequence[Chosen]) -> None:
        if not chosen:
            self.cells, self.grown, self.extents = {}, {}, [0] * len(self.keys)
            return
        whole: list[Chosen] = [*chosen, *[(None, None)] * (len(self.indices) - len(chosen))]
        if self.auto and not set(self.indices[: len(chosen)]) & set(self.auto):
            for key in product(*map(_each, self._resolved(whole)[0])):
                self.grown.pop(key, None)
                self.cells = {cell: value for cell, value in self.cells.items() if cell[0] != key}
            return
        for cell in list(self._cells(whole)):
            self.cells.pop(cell, None)


def _range(chosen: Chosen, extent: int) -> Range:
    if isinstance(chosen, int):
        return chosen
    start, end = (0 if chosen[0] is None else chosen[0]), (extent if chosen[1] is None else chosen[1])
    start, end = (max(0, one + extent) if one < 0 else one for one in (start, end))
    return (start, max(start, end))


def _each(one: Range) -> Iterator[int]:
    return iter((one,)) if isinstance(one, int) else iter(range(*one))


def _end(one: Range) -> int:
    return one + 1 if isinstance(one, int) else one[1]
