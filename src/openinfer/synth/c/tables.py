"""Cache tables and auto-dim matrices in C.

A table is an array over its growing axes and the entry's own, filled with the initial value; cells that were never
written still hold it, so reading past an extent needs no special case. Extents are kept beside the data: one for each
growing axis, and for matrices that a table chooses, one set for each of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from openinfer.ir import Index, Single, Slice
from openinfer.ir.expr import Expr
from openinfer.loops.dim import Dim
from openinfer.synth.c.scalars import size_text
from openinfer.synth.c.types import literal, stored_type
from openinfer.synth.program import Table, TableStep, Value

Integer = Callable[[Expr], str]
ALIGNMENT = 64
REGION = """
/* The ends of a slice: those below zero count from the extent; *n becomes the length. */
static inline void oi_ends(int64_t *a, int64_t *n, int64_t extent)
{
    if (*a < 0) *a = *a + extent < 0 ? 0 : *a + extent;
    if (*n < 0) *n = *n + extent < 0 ? 0 : *n + extent;
    *n = *n < *a ? 0 : *n - *a;
}

/* An extent grows to what was written. */
static inline void oi_reach(int64_t *extent, int64_t end)
{
    if (end > *extent) *extent = end;
}

/* Copies a box of rank axes, row by row; steps and the row are in bytes. */
static inline void oi_region(unsigned char *dst, const int64_t *dst_step, const unsigned char *src,
                             const int64_t *src_step, const int64_t *count, int rank, size_t row)
{
    if (rank == 0) {
        memcpy(dst, src, row);
        return;
    }
    for (int64_t i = 0; i < count[0]; ++i)
        oi_region(dst + i * dst_step[0], dst_step + 1, src + i * src_step[0], src_step + 1, count + 1, rank - 1, row);
}
"""


@dataclass(frozen=True)
class TableLayout:
    """Where a table lies in the state: its extents, then its data. Packed elements have a byte each there."""

    table: Table
    number: int
    extents_at: int
    data_at: int
    size: int

    @property
    def capacity(self) -> tuple[int, ...]:
        """How many cells each growing axis has."""
        return tuple(bound or 0 for bound in self.table.bounds)

    @property
    def element_bytes(self) -> int:
        """The bytes of an element in the table."""
        return 1 if self.table.variable.dtype.is_packed else self.table.variable.dtype.bits // 8

    @property
    def sets(self) -> int:
        """How many sets of matrix extents there are."""
        return prod(self.capacity[: self.table.keys]) if self.has_matrices else 1

    @property
    def has_matrices(self) -> bool:
        """Whether keys choose matrices that grow by themselves."""
        return self.table.keys > 0 and self.table.keys < len(self.table.bounds)

    @property
    def start_extents(self) -> tuple[int, ...]:
        """The extents of the growing axes in the beginning: tables are empty, matrices have their declared shape."""
        grown = len(self.table.bounds) - self.table.keys
        return (*(0,) * self.table.keys, *self.table.variable.shape[:grown])


def table_layout(table: Table, number: int, offset: int) -> TableLayout:
    """A table at an offset of the state; all its growing axes are bounded."""
    own = TableLayout(table, number, offset, 0, 0)
    count = len(table.bounds) * (1 + (own.sets if own.has_matrices else 0))
    data_at = -(-(offset + 8 * count) // ALIGNMENT) * ALIGNMENT
    cells = prod(own.capacity) * prod(table.entry)
    end = -(-(data_at + cells * own.element_bytes) // ALIGNMENT) * ALIGNMENT
    return TableLayout(table, number, offset, data_at, end - offset)


class TablePrinter:
    """The statements of one access."""

    def __init__(self, layout: TableLayout, integer: Integer, pointer: Callable[[Value], str]) -> None:
        self._layout = layout
        self._table = layout.table
        self._integer = integer
        self._pointer = pointer
        decl = layout.table.variable.decl
        assert decl is not None
        keys = [index for index in decl.table_indices if index not in decl.auto_dim]
        self._order = [decl.table_indices.index(name) for name in (*keys, *decl.auto_dim)]
        self._indices = decl.table_indices

    def access(self, step: TableStep) -> list[str]:
        """A block of statements that reads, writes or resets a part."""
        indices = step.indices or (Slice(),) * len(self._indices)
        lines = ["{", f"    int64_t *const extent = (int64_t *)(c->state + {self._layout.extents_at});"]
        if step.action == "reset" and len(step.indices) < len(self._indices):
            indices = (*step.indices, *(Slice(),) * (len(self._indices) - len(step.indices)))
        ordered = [indices[axis] for axis in self._order]
        lines += self._selection(ordered, step)
        kept = [axis for axis, index in enumerate(ordered) if self._keeps(index, axis, ordered)]
        if step.action == "reset":
            lines += self._reset(step)
        else:
            assert step.value is not None
            lines += self._lengths(step, kept)
            lines += self._copy(step, kept)
        return [*(f"    {line}" if line not in "{}" else line for line in lines[:1]), *lines[1:], "}"]

    def _keeps(self, index: Index, axis: int, ordered: list[Index]) -> bool:
        return isinstance(index, Slice) or self._is_grown(axis, ordered)

    def _is_grown(self, axis: int, ordered: list[Index]) -> bool:
        """Whether an index is one of those that all together mean the matrix grown by them."""
        matrix = ordered[self._table.keys :]
        return bool(matrix) and axis >= self._table.keys and all(isinstance(one, Single) for one in matrix)

    def _selection(self, ordered: list[Index], step: TableStep) -> list[str]:
        """Where the part begins along each growing axis, and how many cells it has."""
        lines: list[str] = []
        fail = f"return oi_fail(c, {step.node})"
        for axis, index in enumerate(ordered):
            bound, here = self._layout.capacity[axis], self._extent(axis)
            if self._is_grown(axis, ordered):
                assert isinstance(index, Single)
                own = self._table.variable.shape[axis - self._table.keys]
                lines.append(f"    const int64_t a{axis} = 0, n{axis} = {own} + {self._integer(index.value)};")
                lines.append(f"    if (n{axis} < {own} || n{axis} > {bound}) {fail};")
            elif isinstance(index, Single):
                lines.append(f"    const int64_t a{axis} = {self._integer(index.value)};")
                lines.append(f"    if (a{axis} < 0 || a{axis} >= {bound}) {fail};")
            else:
                start = "0" if index.start is None else self._integer(index.start)
                end = here if index.end is None else self._integer(index.end)
                lines.append(f"    int64_t a{axis} = {start}, n{axis} = {end};")
                lines.append(f"    oi_ends(&a{axis}, &n{axis}, {here});")
                lines.append(f"    if (n{axis} > 0 && a{axis} + n{axis} > {bound}) {fail};")
        return lines

    def _extent(self, axis: int) -> str:
        """The extent of a growing axis; a matrix that keys choose has its own."""
        keys = self._table.keys
        if not self._layout.has_matrices or axis < keys:
            return f"extent[{axis}]"
        place = "0"
        for key in range(keys):
            place = f"({place} * {self._layout.capacity[key]} + a{key})"
        return f"extent[{len(self._table.bounds)} * (1 + {place}) + {axis}]"

    def _lengths(self, step: TableStep, kept: list[int]) -> list[str]:
        """The lengths of the part are those of the value: a size that has no value yet gets it here."""
        assert step.value is not None
        lines: list[str] = []
        for axis, extent in zip(kept, step.value.shape, strict=False):
            if not isinstance(extent, Dim):
                lines.append(f"    if (n{axis} != {extent}) return oi_fail(c, {step.node});")
                continue
            text = size_text(extent.expr).replace("s_", "c->s_")
            name = str(extent.expr)
            if step.action == "read" and name.isidentifier():
                lines.append(f"    if (c->s_{name} < 0 && n{axis} <= {int(extent)}) c->s_{name} = n{axis};")
            lines.append(f"    if (n{axis} != {text}) return oi_fail(c, {step.node});")
        return lines

    def _strides(self) -> list[int]:
        """Bytes between neighbours along each growing axis."""
        row = prod(self._table.entry) * self._layout.element_bytes
        steps: list[int] = []
        for bound in reversed(self._layout.capacity):
            steps.append(row)
            row *= bound
        return list(reversed(steps))

    def _copy(self, step: TableStep, kept: list[int]) -> list[str]:
        assert step.value is not None
        strides, row = self._strides(), prod(self._table.entry) * self._layout.element_bytes
        base = " + ".join([str(self._layout.data_at), *(f"a{axis} * {stride}" for axis, stride in enumerate(strides))])
        count = ", ".join(f"n{axis}" for axis in kept) or "1"
        table_steps = ", ".join(str(strides[axis]) for axis in kept) or "0"
        own: list[str] = []
        text = str(row)
        for axis in reversed(kept):
            own.append(text)
            text = f"{text} * n{axis}"
        value_steps = ", ".join(reversed(own)) or "0"
        pointer = f"(unsigned char *){self._pointer(step.value)}"
        lines = [
            f"    unsigned char *const cells = c->state + {base};",
            f"    const int64_t count[] = {{ {count} }}, there[] = {{ {table_steps} }}, here[] = {{ {value_steps} }};",
        ]
        if step.action == "read":
            lines.append(f"    oi_region({pointer}, here, cells, there, count, {len(kept)}, {row});")
            return lines
        lines.append(f"    oi_region(cells, there, (const unsigned char *){pointer}, here, count, {len(kept)}, {row});")
        written = " && ".join(f"n{axis} > 0" for axis in kept) or "1"
        ends = [f"a{axis} + {f'n{axis}' if axis in kept else 1}" for axis in range(len(self._table.bounds))]
        grows = [f"        oi_reach(&{self._extent(axis)}, {end});" for axis, end in enumerate(ends)]
        if self._layout.has_matrices:
            grows += [f"        oi_reach(&extent[{axis}], {ends[axis]});" for axis in range(self._table.keys)]
        return [*lines, f"    if ({written}) {{", *grows, "    }"]

    def _has_length(self, axis: int, step: TableStep) -> bool:
        place = self._order[axis]
        return place >= len(step.indices) or isinstance(step.indices[place], Slice)

    def _reset(self, step: TableStep) -> list[str]:
        if not step.indices:
            return [f"    oi_reset_table{self._layout.number}(c);", "    (void)extent;"]
        strides, row = self._strides(), prod(self._table.entry) * self._layout.element_bytes
        lines, depth = [], 1
        base = str(self._layout.data_at)
        for axis, stride in enumerate(strides):
            pad = "    " * depth
            length = f"n{axis}" if self._has_length(axis, step) else "1"
            lines.append(f"{pad}for (int64_t j{axis} = a{axis}; j{axis} < a{axis} + {length}; ++j{axis})")
            base += f" + j{axis} * {stride}"
            depth += 1
        lines.append(
            "    " * depth
            + f"oi_fill_table{self._layout.number}(c->state + {base}, {row // max(1, self._layout.element_bytes)});"
        )
        return [*lines, "    (void)extent;"]


def table_functions(layout: TableLayout, name: str, initial: float) -> str:
    """The functions that fill a table with its initial value, and start it anew."""
    variable = layout.table.variable
    dtype = variable.dtype
    kind = "int8_t" if dtype.is_packed else stored_type(dtype)
    value = literal(initial, dtype.compute)
    if dtype.name in ("f8", "bf16", "f16"):
        value = f"oi_to_{dtype.name}({value})"
    count = prod(layout.capacity) * prod(layout.table.entry)
    starts = [f"    extent[{axis}] = {start};" for axis, start in enumerate(layout.start_extents)]
    if layout.has_matrices:
        axes = len(layout.table.bounds)
        starts.append(f"    for (int64_t i = 1; i <= {layout.sets}; ++i) {{")
        starts += [f"        extent[{axes} * i + {axis}] = {start};" for axis, start in enumerate(layout.start_extents)]
        starts.append("    }")
    body = "\n".join(starts)
    return f"""
static void oi_fill_table{layout.number}(unsigned char *cells, int64_t count)
{{
    for (int64_t i = 0; i < count; ++i) (({kind} *)cells)[i] = {value};
}}

static void oi_reset_table{layout.number}({name}_context *c)
{{
    int64_t *const extent = (int64_t *)(c->state + {layout.extents_at});
{body}
    oi_fill_table{layout.number}(c->state + {layout.data_at}, {count});
}}
"""
