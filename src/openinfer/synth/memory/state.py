"""The layout of persistent memory: plain variables, then tables, each aligned.

Bounded tables are part of the state; unbounded ones own heap memory that grows, where the target has a heap. Nothing
here depends on a language.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from openinfer.check.bound import FromInit
from openinfer.dtypes import DType, convert, pack
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.synth.memory.alignment import aligned
from openinfer.synth.program.ir import Program, Storage, Table, Value


@dataclass(frozen=True)
class TableLayout:
    """The layout of a table in the state: its extents (and its capacity, if it grows), then its cells.

    Packed elements take a byte each in the cells. ``heap`` numbers the tables that own heap memory.
    """

    table: Table
    number: int
    extents_at: int
    memory_at: int
    size: int
    alignment: int
    heap: int | None = None

    @property
    def axes(self) -> int:
        """The number of growing axes."""
        return len(self.table.bounds)

    @property
    def capacity(self) -> tuple[int, ...]:
        """The number of cells along each growing axis, for a bounded table."""
        return tuple(bound or 0 for bound in self.table.bounds)

    @property
    def has_matrices(self) -> bool:
        """Whether keys select matrices that grow independently."""
        return 0 < self.table.keys < self.axes

    @property
    def start_extents(self) -> tuple[int, ...]:
        """The initial extents of the growing axes: tables are empty, matrices have their declared shape."""
        grown = self.axes - self.table.keys
        return (*(0,) * self.table.keys, *map(int, self.table.variable.shape[:grown]))

    def cells_at(self, capacity: Sequence[int]) -> int:
        """The offset of the cells in the table's memory, after the extents of matrices."""
        sets = prod(capacity[: self.table.keys]) if self.has_matrices else 0
        return aligned(sets * (self.axes - self.table.keys) * 8, self.alignment)

    def nbytes(self, capacity: Sequence[int]) -> int:
        """The bytes of memory for a capacity."""
        element = max(self.table.variable.dtype.bits, 8) // 8
        return self.cells_at(capacity) + prod(capacity) * prod(self.table.entry) * element


@dataclass(frozen=True)
class StateLayout:
    """The layout of persistent variables: plain ones by home, tables by name."""

    homes: Mapping[Value, int]
    tables: Mapping[str, TableLayout]
    size: int
    """The total bytes."""

    @property
    def growing(self) -> tuple[TableLayout, ...]:
        """The tables that own heap memory, in the order of their numbers."""
        return tuple(layout for layout in self.tables.values() if layout.heap is not None)


def state_layout(program: Program, alignment: int, *, heap: bool) -> StateLayout:
    """The state layout of a program; an unbounded table is an error where there is no heap."""
    homes: dict[Value, int] = {}
    offset = 0
    for home in program.homes.values():
        if home.storage is Storage.STATE:
            homes[home] = offset
            offset += aligned(home.nbytes, alignment)
    tables: dict[str, TableLayout] = {}
    heaps = 0
    for number, (key, table) in enumerate(program.tables.items()):
        own = None
        if None in table.bounds:
            _require_heap(table, heap=heap)
            own = heaps
            heaps += 1
        tables[key] = _table_layout(table, number, offset, own, alignment)
        offset += tables[key].size
    return StateLayout(homes, tables, offset)


def _table_layout(table: Table, number: int, offset: int, heap: int | None, alignment: int) -> TableLayout:
    own = TableLayout(table, number, offset, 0, 0, alignment, heap)
    head = 8 * own.axes * (1 if heap is None else 2)
    memory_at = aligned(offset + head, alignment)
    end = aligned(memory_at + own.nbytes(own.capacity), alignment) if heap is None else memory_at
    return TableLayout(table, number, offset, memory_at, end - offset, alignment, heap)


def _require_heap(table: Table, *, heap: bool) -> None:
    if heap:
        return
    decl = table.variable.decl
    message = f"the table {table.variable.name!r} can grow without bound, and there is no heap"
    advice = "bound its indices with @fixed(...)"
    raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, decl.span if decl else None, advice))


def element_bits(dtype: DType, origin: object) -> int:
    """The bit pattern of an initial element; zero if no value is given."""
    assert isinstance(origin, FromInit)
    if origin.value is None:
        return 0
    element = np.atleast_1d(convert(np.asarray(origin.value.value), dtype))
    if dtype.is_packed:
        return int(pack(element, dtype)[0])
    return int.from_bytes(element.tobytes(), "little" if np.little_endian else "big")
