"""Cache tables and auto-dim matrices in C, and parts of plain tensors.

A table is an array over its growing axes and the entry's own, filled with the initial value; cells that were never
written still hold it, so reading past an extent needs no special case. ``runtime/tables.c`` does the work; what is
printed here says which table, which cells, and which tensor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from openinfer.ir import Index, Single, Slice
from openinfer.ir.expr import Expr
from openinfer.ir.text import var_text
from openinfer.synth.memory.state import TableLayout, element_bits
from openinfer.synth.program.ir import TableStep
from openinfer.synth.targets.cstyle.host.integers import Integer, can_fail
from openinfer.synth.targets.cstyle.names import comment


def table_definition(layout: TableLayout) -> str:
    """The constants that describe a table."""
    table, number = layout.table, layout.number
    dtype = table.variable.dtype
    assert table.variable.decl is not None
    bounds = ", ".join(str(-1 if bound is None else bound) for bound in table.bounds)
    starts = ", ".join(map(str, layout.start_extents))
    initial = element_bits(dtype, table.variable.origin)
    facts = f"{layout.axes}, {table.keys}, {dtype.bits}, {prod(table.entry)}, UINT64_C(0x{initial:x})"
    return f"""/* {comment(var_text(table.variable.decl))} */
static const int64_t table{number}_bound[] = {{ {bounds} }}, table{number}_start[] = {{ {starts} }};
static const oi_table table{number} = {{ {facts}, table{number}_bound, table{number}_start }};
"""


def table_function(layout: TableLayout, name: str, undo: str) -> str:
    """The function that says where a table's memory is; ``undo`` is where changes are kept, or NULL."""
    number, extents = layout.number, f"(int64_t *)(void *)(c->state + {layout.extents_at})"
    if layout.heap is None:
        where = f"table{number}_bound, c->state + {layout.memory_at}, NULL, NULL"
    else:
        where = f"extent + {layout.axes}, NULL, extent + {layout.axes}, &c->heap[{layout.heap}]"
    return f"""static oi_grid grid{number}({name}_context *c)
{{
    int64_t *const extent = {extents};
    return (oi_grid){{ &table{number}, extent, {where}, {undo} }};
}}
"""


# --- accesses ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picks:
    """The indices of an access as an array in C, and which axes of it have a length."""

    lines: tuple[str, ...]
    kept: tuple[int, ...]
    can_fail: bool
    can_be_negative: bool
    """Whether a single index may be negative."""

    axes: int


def picks(indices: Sequence[Index], grown: Sequence[bool], computed: Mapping[Expr, Integer]) -> Picks:
    """Indices in C, of expressions that are computed as given; those marked as grown say how far a matrix has grown."""
    parts: list[str] = []
    used: list[Integer] = []
    is_negative = False
    for index, is_grown in zip(indices, grown, strict=True):
        ends = (index.value,) if isinstance(index, Single) else (index.start, index.end)
        own = [computed[end] for end in ends if end is not None]
        used += own
        is_negative = is_negative or (isinstance(index, Single) and not is_grown and own[0].least < 0)
        parts.append(f"{_pick(index, is_grown=is_grown)}({', '.join(one.text for one in own)})")
    kept = [axis for axis, index in enumerate(indices) if isinstance(index, Slice) or grown[axis]]
    line = f"const oi_pick pick[] = {{ {', '.join(parts)} }};"
    return Picks((line, "oi_part part = { { 0 }, { 0 } };"), tuple(kept), can_fail(used), is_negative, len(parts))


def _pick(index: Index, *, is_grown: bool) -> str:
    if isinstance(index, Single):
        return "oi_grown" if is_grown else "oi_one"
    names = {(True, True): "oi_slice", (True, False): "oi_from", (False, True): "oi_upto", (False, False): "oi_all"}
    return names[index.start is not None, index.end is not None]


@dataclass(frozen=True)
class TableAccess:
    """What one access of a table names: indices in the order of the table's axes."""

    layout: TableLayout
    step: TableStep

    @property
    def _order(self) -> list[int]:
        decl = self.layout.table.variable.decl
        assert decl is not None
        keys = [index for index in decl.table_indices if index not in decl.auto_dim]
        return [decl.table_indices.index(name) for name in (*keys, *decl.auto_dim)]

    @property
    def ordered(self) -> list[Index]:
        """The indices; those that are not written choose everything."""
        given = self.step.indices
        complete = (*given, *(Slice(),) * (self.layout.axes - len(given)))
        return [complete[axis] for axis in self._order]

    @property
    def grown(self) -> list[bool]:
        """Which indices say how far a matrix has grown: those of a matrix, if all of them are single ones."""
        keys, ordered = self.layout.table.keys, self.ordered
        matrix = ordered[keys:]
        is_grown = bool(matrix) and all(isinstance(one, Single) for one in matrix)
        return [is_grown and axis >= keys for axis in range(len(ordered))]

    @property
    def is_whole_matrix(self) -> bool:
        """Whether no index of the matrix itself is given."""
        keys, given = self.layout.table.keys, len(self.step.indices)
        return self.layout.axes > keys and not any(place < given for place in self._order[keys:])
