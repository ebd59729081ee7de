"""Tables in the sequencer: extents and cells in the state, as ``memory.state`` lays them out."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod

from openinfer.ir import Single
from openinfer.ir.expr import Expr
from openinfer.loops.ir import BOOL, Const, Scalar, Select
from openinfer.synth.memory.checks.records import SliceChecks
from openinfer.synth.memory.state import TableLayout, element_bits
from openinfer.synth.memory.table_access import TableAccess
from openinfer.synth.program.ir import Action
from openinfer.synth.targets.vhdl.code import I64, MemoryPlace, SequencerCode, conjunction, disjunction, integer
from openinfer.synth.targets.vhdl.map import CircuitMap
from openinfer.synth.targets.vhdl.slices import CellGrid, SliceCells, SliceCode


@dataclass(frozen=True)
class PickedCells:
    """The cells of a table that indices select."""

    cells: tuple[SliceCells, ...]
    is_outside: Scalar
    is_beyond: Scalar
    """Whether some lie beyond a bound of their matrix, which matters only for writes."""


class TableCode:
    """Accesses one table."""

    def __init__(self, layout: TableLayout, places: CircuitMap, code: SequencerCode, slices: SliceCode) -> None:
        self._layout = layout
        self._places = places
        self._code = code
        self._slices = slices
        self._table = layout.table
        self._keys = layout.table.keys
        self._matrix = layout.axes - self._keys
        dtype = layout.table.variable.dtype
        self._initial = element_bits(dtype, layout.table.variable.origin)
        cells = places.state(layout.memory_at + layout.cells_at(layout.capacity))
        extents = tuple(map(integer, layout.capacity))
        entry = prod(map(int, layout.table.entry))
        self.grid = CellGrid(cells, dtype, extents, prod(layout.capacity) * entry, entry, is_packed=False)

    # --- extents --------------------------------------------------------------------------------------------------

    def _at(self, offset: int, count: int) -> "PlacedExtents":
        return PlacedExtents(self._code, self._places.state(offset), count)

    @property
    def _extents(self) -> "PlacedExtents":
        return self._at(self._layout.extents_at, self._layout.axes)

    @contextmanager
    def _matrices(self, cells: Sequence[SliceCells]) -> Iterator[Scalar]:
        """Loop over the matrices that keys select; yields where each one's extents begin among all."""
        code, capacity = self._code, self._layout.capacity[: self._keys]
        with ExitStack() as loops:
            number: Scalar = integer(0)
            for one, most in zip(cells, capacity, strict=True):
                room = code.let(Select(one.first < most, integer(most) - one.first, integer(0)))
                count = code.let(Select(one.count < room, one.count, room))
                place = loops.enter_context(code.count(integer(0), count, (0, most)))
                number = number * most + (one.first + place)
            yield code.let(number * self._matrix)

    @property
    def _matrix_extents(self) -> "PlacedExtents":
        sets = prod(self._layout.capacity[: self._keys])
        return self._at(self._layout.memory_at, sets * self._matrix)

    def _extent(self, axis: int, keys: Sequence[SliceCells]) -> Scalar:
        """The extent of a table along an axis; the widest of several matrices."""
        if axis < self._keys or not self._layout.has_matrices:
            return self._extents.load(integer(axis))
        start = self._layout.start_extents[axis]
        widest = self._code.local(integer(start), (0, 2**40), "widest")
        with self._matrices(keys) as first:
            own = self._matrix_extents.load(first + (axis - self._keys))
            with self._code.when(own > widest):
                self._code.set(widest, own)
        return widest

    # --- picking --------------------------------------------------------------------------------------------------

    def pick(self, access: TableAccess, computed: Mapping[Expr, Scalar]) -> PickedCells:
        """The cells that indices select."""
        cells: list[SliceCells] = []
        outside: list[Scalar] = []
        beyond: list[Scalar] = []
        indices = [*zip(access.ordered, access.grown, self._table.bounds, strict=True)]
        for axis, (index, is_grown, bound) in enumerate(indices):
            needs_extent = not isinstance(index, Single)
            extent = self._extent(axis, cells[: self._keys]) if needs_extent else integer(0)
            start = self._layout.start_extents[axis]
            found = self._slices.chosen(index, computed, extent, start, is_grown=is_grown)
            cells.append(found)
            outside.append(found.is_wrong)
            assert bound is not None, "tables without bounds have been refused"
            (outside if axis < self._keys or is_grown else beyond).append(found.end > bound)
        is_empty = disjunction([one.count.eq(0) for one in cells])
        return PickedCells(
            tuple(cells),
            self._code.let(disjunction(outside)),
            self._code.let(conjunction([disjunction(beyond), Select(is_empty, Const(0, BOOL), Const(1, BOOL))])),
        )

    def fail_outside(
        self, picked: PickedCells, access: TableAccess, computed: Mapping[Expr, Scalar], checks: SliceChecks
    ) -> None:
        """Fail if an index is out of bounds."""
        is_write = access.step.action is Action.WRITE
        bounds: list[Scalar | None] = [
            integer(bound) if axis < self._keys and bound is not None else None
            for axis, bound in enumerate(self._table.bounds)
        ]
        outside = disjunction([picked.is_outside, *[picked.is_beyond] * is_write])
        self._slices.fail_outside(outside, access.ordered, computed, checks, bounds)

    # --- actions --------------------------------------------------------------------------------------------------

    def read(self, cells: Sequence[SliceCells], value: CellGrid, most: Sequence[int]) -> None:
        """Read a slice of the table into a tensor."""
        self._slices.access(Action.READ, self.grid, cells, most, value, self._initial)

    def first(self, cells: Sequence[SliceCells]) -> Scalar:
        """The address of the first cell."""
        cell: Scalar = integer(0)
        for one, extent in zip(cells, self._layout.capacity, strict=True):
            cell = cell * extent + one.first
        nbytes = self.grid.entry * max(self.grid.dtype.bits, 8) // 8
        at = self._layout.memory_at + self._layout.cells_at(self._layout.capacity)
        return self._code.let(cell * nbytes + at)

    def write(self, cells: Sequence[SliceCells], value: CellGrid, most: Sequence[int]) -> None:
        """Write a tensor into a slice of the table; extents grow to cover it."""
        code, layout = self._code, self._layout
        with code.when(conjunction([one.count > 0 for one in cells])):
            self._slices.access(Action.WRITE, self.grid, cells, most, value, 0)
            for axis in range(self._keys if layout.has_matrices else layout.axes):
                self._extents.reach(integer(axis), code.let(cells[axis].first + cells[axis].count))
            if layout.has_matrices:
                with self._matrices(cells[: self._keys]) as first:
                    for axis in range(self._keys, layout.axes):
                        end = code.let(cells[axis].first + cells[axis].count)
                        self._matrix_extents.reach(code.let(first + (axis - self._keys)), end)

    def clear(self) -> None:
        """Reset the whole table to its initial state."""
        code, layout = self._code, self._layout
        for axis, start in enumerate(layout.start_extents):
            self._extents.store(integer(axis), integer(start))
        if layout.has_matrices:
            sets = prod(layout.capacity[: self._keys])
            with code.count(integer(0), integer(sets), (0, sets)) as number:
                first = code.let(number * self._matrix)
                self._to_start(first)
        code.fill(self.grid.place, self.grid.element, self.grid.most, self._initial)

    def _to_start(self, first: Scalar) -> None:
        for axis in range(self._keys, self._layout.axes):
            at = self._code.let(first + (axis - self._keys))
            self._matrix_extents.store(at, integer(self._layout.start_extents[axis]))

    def reset(self, cells: Sequence[SliceCells], *, is_whole: bool) -> None:
        """Reset a slice of the table to its initial state; whole matrices also shrink to their initial extents."""
        capacity = self._layout.capacity
        there = list(cells)
        if is_whole:
            for axis in range(self._keys, self._layout.axes):
                end = integer(capacity[axis])
                there[axis] = SliceCells(integer(0), end, end, Const(0, BOOL))
        self._slices.access(Action.RESET, self.grid, there, capacity, None, self._initial)
        if is_whole and self._layout.has_matrices:
            with self._matrices(there[: self._keys]) as first:
                self._to_start(first)


@dataclass(frozen=True)
class PlacedExtents:
    """Extents stored in the state."""

    code: SequencerCode
    place: MemoryPlace
    count: int

    def load(self, at: Scalar) -> Scalar:
        """Load an extent."""
        return self.code.let(self.code.load(self.code.buffer(self.place, I64, self.count), at))

    def store(self, at: Scalar, value: Scalar) -> None:
        """Store an extent."""
        self.code.store(self.code.buffer(self.place, I64, self.count), at, value)

    def reach(self, at: Scalar, end: Scalar) -> None:
        """Raise an extent to at least ``end``."""
        own = self.load(at)
        with self.code.when(end > own):
            self.store(at, end)
