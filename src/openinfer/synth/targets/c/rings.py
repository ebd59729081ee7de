"""Table accesses in C whose indices are known to be in bounds: an address, and a copy.

A ring, such as ``levels[t%R]`` of a table of R entries, has cells at fixed addresses and an index that is always in
bounds. It needs no checks at run time and none of the general functions for tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from openinfer.ir import Single, Slice
from openinfer.ir.expr import Expr
from openinfer.loops.dim import Dim
from openinfer.synth.memory.checks.records import SliceChecks
from openinfer.synth.memory.table_access import TableAccess
from openinfer.synth.program.ir import Action
from openinfer.synth.targets.c.pointers import byte_at, offset_from
from openinfer.synth.targets.cstyle.host.integers import Integer


@dataclass(frozen=True)
class RingCells:
    """Contiguous cells: the index of the first one in the table, their count, and the bytes of each."""

    access: TableAccess
    first: str
    """Its index, in 32 bits."""
    count: int
    each: int

    @property
    def nbytes(self) -> int:
        """The bytes of all cells."""
        return self.count * self.each

    @property
    def place(self) -> str:
        """The address of the first cell."""
        start = byte_at("c->state", self.access.layout.memory_at)
        return start if self.first == "0" else f"{start} + cell * {self.each}"

    def lines(self, value: str, *, is_view: bool) -> list[str]:
        """The lines that read or write the cells; a write also grows the table's extent."""
        own = [] if self.first == "0" else [f"const int32_t cell = {self.first};"]
        if is_view:
            return [*own, f"{value} = (const void *)({self.place});"]
        if self.access.step.action is Action.READ:
            return [*own, f"memcpy({value}, {self.place}, {self.nbytes});"]
        extent = f"(int64_t *)(void *){offset_from('c->state', self.access.layout.extents_at)}"
        end = str(self.count) if self.first == "0" else f"cell + {self.count}"
        return [
            *own,
            f"int64_t *const extent = {extent};",
            f"memcpy({self.place}, {value}, {self.nbytes});",
            f"if (*extent < {end}) *extent = {end};",
        ]


def ring_cells(access: TableAccess, checks: SliceChecks, computed: Mapping[Expr, Integer]) -> RingCells | None:
    """The cells of an access that is always in bounds of a table that never moves; None for any other."""
    layout, table, step = access.layout, access.layout.table, access.step
    is_asked = checks.extents or checks.memory is not None or checks.indices is not None
    is_simple = layout.heap is None and layout.axes == table.keys == 1 and table.variable.dtype.bits >= 8
    if is_asked or not is_simple or step.action not in (Action.READ, Action.WRITE):
        return None
    each = prod(table.entry) * table.variable.dtype.bits // 8
    (index,), (bound,) = access.ordered, layout.capacity
    match index:
        case Single(value):
            found = computed[value]
            is_inside = (
                not found.can_fail and not checks.lengths and found.range.least >= 0 and found.range.most < bound
            )
            return RingCells(access, found.narrowed, 1, each) if is_inside else None
        case Slice(start, end) if end is not None:
            last = computed[end]
            begin = 0 if start is None else computed[start].range.least
            is_known = last.is_literal and (start is None or computed[start].is_literal)
            count = last.range.least - begin
            is_inside = is_known and begin >= 0 and count > 0 and last.range.least <= bound
            assert step.value is not None
            # This settles the checks of the slice's length.
            is_inside = is_inside and not isinstance(step.value.shape[0], Dim) and step.value.shape[0] == count
            return RingCells(access, str(begin), count, each) if is_inside else None
        case _:
            return None
