"""Cache tables and auto-dim matrices in C, and slices of plain tensors.

A table is an array over its growing axes and the entry's own, filled with the initial value; cells that were never
written still hold it, so reading past an extent needs no special case. ``runtime/tables.c`` does the work; the code
printed here selects the table, the cells and the tensor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from openinfer.ir import Index, Single
from openinfer.ir.expr import Expr
from openinfer.ir.text import var_text
from openinfer.synth.memory.state import TableLayout, element_bits
from openinfer.synth.targets.c.pointers import byte_at, offset_from
from openinfer.synth.targets.cstyle.host.integers import Integer
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
    """The function that returns the memory of a table; ``undo`` is where changes are kept for rollback, or NULL."""
    number, extents = layout.number, f"(int64_t *)(void *){offset_from('c->state', layout.extents_at)}"
    if layout.heap is None:
        where = f"table{number}_bound, {byte_at('c->state', layout.memory_at)}, NULL, NULL"
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
    """The indices of an access in C: the lines that define them, and the functions these call."""

    lines: tuple[str, ...]
    needs: frozenset[str]


def picks(indices: Sequence[Index], grown: Sequence[bool], computed: Mapping[Expr, Integer]) -> Picks:
    """Indices in C, from their computed expressions; those marked as grown say how far a matrix has grown."""
    functions = [_pick(index, is_grown=is_grown) for index, is_grown in zip(indices, grown, strict=True)]
    parts: list[str] = []
    for index, function in zip(indices, functions, strict=True):
        ends = (index.value,) if isinstance(index, Single) else (index.start, index.end)
        own = [computed[end].text for end in ends if end is not None]
        parts.append(f"{function}({', '.join(own)})")
    lines = f"const oi_pick pick[] = {{ {', '.join(parts)} }};", "oi_part part = { { 0 }, { 0 } };"
    return Picks(lines, frozenset(functions))


def _pick(index: Index, *, is_grown: bool) -> str:
    if isinstance(index, Single):
        return "oi_grown" if is_grown else "oi_one"
    names = {(True, True): "oi_slice", (True, False): "oi_from", (False, True): "oi_upto", (False, False): "oi_all"}
    return names[index.start is not None, index.end is not None]
