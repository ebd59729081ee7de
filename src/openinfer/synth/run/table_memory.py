"""The tables of a compiled module as arrays: fetched, saved, and restored.

A bounded table is part of the state, whose memory the arrays share. A growing table has heap memory, which its next
growth frees; no array may refer to it, so ``array`` and ``dumped`` return copies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openinfer.check.saved_state import MatrixKey
from openinfer.dtypes import DType, pack, unpack
from openinfer.ops import Array
from openinfer.synth.memory.state import TableLayout, element_bits
from openinfer.synth.run.library import Instance
from openinfer.synth.run.state_memory import StateMemory


@dataclass(frozen=True)
class TableMemory:
    """A table, the state that holds its extents, and the instance that knows the heap memory of a growing one."""

    layout: TableLayout
    memory: StateMemory
    instance: Instance

    @property
    def state(self) -> Array:
        """The current state."""
        return self.memory.array

    def _cells(self) -> tuple[Array, Array, Array | None]:
        """The extents of the table, its cells up to its capacity, and the extents of its matrices."""
        layout, table = self.layout, self.layout.table
        self.memory.look(layout.extents_at, layout.size)
        head = self.state[layout.extents_at : layout.extents_at + 16 * layout.axes].view(np.int64)
        extents = head[: layout.axes]
        if layout.heap is None:
            capacity = layout.capacity
            memory = self.state[layout.memory_at : layout.memory_at + layout.nbytes(capacity)]
        else:
            capacity = tuple(map(int, head[layout.axes : 2 * layout.axes]))
            address = self.instance.heap(layout.heap)
            memory = borrowed(address, layout.nbytes(capacity) if address else 0)
        own = None
        if layout.has_matrices:
            keys = capacity[: table.keys]
            count = int(np.prod(keys, dtype=np.int64)) * (layout.axes - table.keys)
            own = memory[: 8 * count].view(np.int64).reshape(*keys, layout.axes - table.keys)
        kind = np.dtype(np.uint8) if table.variable.dtype.is_packed else table.variable.dtype.array
        cells = memory[layout.cells_at(capacity) :].view(kind).reshape(*capacity, *table.entry)
        return extents, cells, own

    def array(self) -> Array:
        """The whole table; matrices selected by keys are padded to the extents of the largest."""
        layout, keys = self.layout, self.layout.table.keys
        extents, cells, own = self._cells()
        wanted = list(map(int, extents))
        if own is not None:
            chosen = own[tuple(slice(extent) for extent in wanted[:keys])]
            start = layout.start_extents[keys:]
            widest = chosen.reshape(-1, len(start)).max(axis=0, initial=0) if chosen.size else np.zeros(len(start), int)
            wanted[keys:] = [max(int(one), first) for one, first in zip(widest, start, strict=True)]
        found = self._grid(cells, wanted)
        return found if layout.heap is None else found.copy()

    def _grid(self, cells: Array, extents: Sequence[int]) -> Array:
        """Cells up to some extents, as values; those beyond the capacity have the initial value."""
        dtype = self.layout.table.variable.dtype
        part = cells[tuple(slice(extent) for extent in extents)]
        if part.shape[: len(extents)] != tuple(extents):
            whole = np.full((*extents, *self.layout.table.entry), self._initial_cell(), cells.dtype)
            whole[tuple(slice(extent) for extent in part.shape)] = part
            part = whole
        return _decoded(part, dtype) if dtype.is_packed else part

    def _initial_cell(self) -> Any:
        dtype = self.layout.table.variable.dtype
        bits = element_bits(dtype, self.layout.table.variable.origin)
        if dtype.is_packed:
            return np.uint8(bits)
        return np.frombuffer(bits.to_bytes(dtype.bits // 8, "little"), dtype.array)[0]

    # --- states ---------------------------------------------------------------------------------------------------

    def dumped(self) -> dict[MatrixKey, Array]:
        """Copies of everything in the table, by the keys that select matrices."""
        layout = self.layout
        extents, cells, own = self._cells()
        if own is None:
            return {(): _contiguous_copy(self._grid(cells, list(map(int, extents))))}
        found: dict[MatrixKey, Array] = {}
        for key in np.ndindex(*map(int, extents[: layout.table.keys])):
            inside = all(part < room for part, room in zip(key, cells.shape, strict=False))
            start = layout.start_extents[layout.table.keys :]
            matrix = [int(one) for one in own[key]] if inside else list(start)
            part = cells[key] if inside else cells[:0].reshape(0, *cells.shape[len(key) + 1 :])
            found[key] = _contiguous_copy(self._grid(part, matrix))
        return found

    def reserve(self, parts: Mapping[MatrixKey, Array]) -> None:
        """Reserve room for saved parts; extents and cells stay as they are."""
        needed = self._needed_cells(parts)
        if needed and self.layout.heap is not None:
            # Empty matrices have extents too, which need memory.
            cells = [max(end, 1) for end in needed] if self.layout.has_matrices else needed
            self.instance.reserve(self.layout.heap, cells)

    def _needed_cells(self, parts: Mapping[MatrixKey, Array]) -> list[int]:
        """The number of cells that saved parts need along each axis; empty if there are none."""
        keys = self.layout.table.keys if self.layout.has_matrices else 0
        if not parts:
            return []
        ends = [tuple(one + 1 for one in key) for key in parts]
        shapes = [array.shape[: self.layout.axes - keys] for array in parts.values()]
        found = [max(column) for column in zip(*ends, strict=True)] if keys else []
        return [*found, *(max(column) for column in zip(*shapes, strict=True))]

    def restore(self, parts: Mapping[MatrixKey, Array]) -> None:
        """Restore what ``dumped`` returned, into a freshly reset table that has room for it."""
        layout = self.layout
        needed = self._needed_cells(parts)
        if not needed:
            return
        keys = layout.table.keys if layout.has_matrices else 0
        extents, cells, own = self._cells()
        for key, array in parts.items():
            shape = array.shape[: layout.axes - keys]
            data = _encoded(array, layout.table.variable.dtype)
            if array.size:
                cells[key][tuple(slice(extent) for extent in shape)] = data
            if own is not None:
                own[key][:] = shape
        count = keys or len(needed)
        extents[:count] = needed[:count]
        self.memory.put(layout.extents_at, layout.size)

    def fits(self, key: MatrixKey, shape: tuple[int, ...]) -> bool:
        """Whether an array is a valid content of the table under a key."""
        layout = self.layout
        keys = layout.table.keys if layout.has_matrices else 0
        grown = layout.axes - keys
        if len(key) != keys or tuple(shape[grown:]) != tuple(layout.table.entry) or len(shape) < grown:
            return False
        bounds = layout.table.bounds
        if any(bound is not None and part >= bound for part, bound in zip(key, bounds, strict=False)):
            return False
        rest = zip(shape, layout.start_extents[keys:], bounds[keys:], strict=False)
        return all(least <= extent and (bound is None or extent <= bound) for extent, least, bound in rest)


class _MappedBytes:
    """Bytes at an address, exposed to NumPy."""

    def __init__(self, address: int, nbytes: int, owner: object) -> None:
        self.owner = owner
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}


def borrowed(address: int, nbytes: int, owner: object = None) -> Array:
    """Bytes at an address as an array, which keeps ``owner`` alive."""
    return np.asarray(_MappedBytes(address, nbytes, owner)) if nbytes else np.empty(0, np.uint8)


def _contiguous_copy(array: Array) -> Array:
    return np.array(array, order="C")


def _decoded(codes: Array, dtype: DType) -> Array:
    """Unpacked values of packed elements that are stored in a byte each."""
    bits, per_byte = dtype.bits, 8 // dtype.bits
    flat = np.zeros(-(-codes.size // per_byte) * per_byte, np.uint8)
    flat[: codes.size] = codes.reshape(-1)
    shifts = np.arange(per_byte, dtype=np.uint16) * bits
    stream = (flat.reshape(-1, per_byte).astype(np.uint16) << shifts).sum(axis=1).astype(np.uint8)
    return unpack(stream, dtype, 0, codes.size).reshape(codes.shape)


def _encoded(values: Array, dtype: DType) -> Array:
    """Values as codes with a byte each; elements of other dtypes are unchanged."""
    if not dtype.is_packed:
        return values
    stream = pack(np.ascontiguousarray(values).reshape(-1), dtype)
    places = np.arange(values.size)
    per_byte = 8 // dtype.bits
    codes = (stream[places // per_byte] >> (places % per_byte * dtype.bits)) & ((1 << dtype.bits) - 1)
    return codes.astype(np.uint8).reshape(values.shape)
