"""Steps on parts in C: slices of tables and of plain tensors."""

from collections.abc import Iterable, Mapping, Sequence

from openinfer.ir import Index, Single
from openinfer.ir.expr import Expr
from openinfer.loops.dim import sizes_in
from openinfer.synth.memory.rollback import is_partly_written
from openinfer.synth.memory.state import element_bits
from openinfer.synth.program.failures import BAD_LENGTH, NEGATIVE, NO_MEMORY, OUTSIDE
from openinfer.synth.program.ir import Action, PartStep, TableStep, Value, Weight
from openinfer.synth.targets.c.operands import Operands
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.c.tables import Picks, TableAccess, picks
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.integers import Integer
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter

_TABLE_CALLS = {Action.READ: "oi_table_read", Action.WRITE: "oi_table_write", Action.RESET: "oi_table_reset"}
_PART_ACTIONS = {Action.READ: "OI_READ", Action.WRITE: "OI_WRITE", Action.RESET: "OI_COPY"}


class Parts:
    """Prints steps on parts."""

    def __init__(
        self, file: HostFile, sizes: SizePrinter, indices: IndexPrinter, pointers: Pointers, operands: Operands
    ) -> None:
        self._file = file
        self._sizes = sizes
        self._indices = indices
        self._pointers = pointers
        self._operands = operands
        self._placed = file.placed

    # --- tables ---------------------------------------------------------------------------------------------------

    def table(self, step: TableStep, depth: int) -> None:
        """Reads, writes, resets or checks a slice of a table."""
        file, layout = self._file, self._placed.state.tables[step.table.variable.name]
        grid = f"grid{layout.number}"
        if step.action is Action.RESET and not step.indices:
            file.needs.add("oi_table_clear")
            file.line(depth, f"{{ const oi_grid grid = {grid}(c); oi_table_clear(&grid); }}")
            return
        access = TableAccess(layout, step)
        file.needs.add("oi_select")
        file.line(depth, "{")
        file.line(depth + 1, f"const oi_grid grid = {grid}(c);")
        found = picks(access.ordered, access.grown, self._computed(step.indices, depth + 1))
        self._picked(found, step.node, depth + 1)
        is_write = "true" if step.action is Action.WRITE else "false"
        fail = self._outside(found, "grid.table->bound", layout.table.keys, step.node)
        file.line(depth + 1, f"if (!oi_select(&grid, pick, {is_write}, &part)) {fail}")
        self._table_access(step, access, found, depth + 1)
        file.line(depth, "}")

    def _table_access(self, step: TableStep, access: TableAccess, found: Picks, depth: int) -> None:
        """What is done to the cells that were picked."""
        file = self._file
        is_view = step.action is Action.READ and step.value in self._placed.memory.views
        called = "oi_table_view" if is_view else _TABLE_CALLS.get(step.action)
        file.needs |= set() if called is None else {called}
        if step.action is Action.RESET:
            whole = "true" if access.is_whole_matrix else "false"
            file.line(depth, f"{called}(&grid, &part, {whole});")
            return
        assert step.value is not None
        self._lengths(step, step.value, found.kept, depth)
        if step.action is Action.WRITE and access.layout.heap is not None:
            file.needs.add("oi_table_grow")
            file.line(depth, f"if (!oi_table_grow(&grid, &part)) {file.fail(step.node, NO_MEMORY)}")
        if is_view:
            file.line(depth, f"{self._pointers.pointer(step.value)} = {called}(&grid, &part);")
        elif called is not None:
            file.line(depth, f"{called}(&grid, &part, {self._pointers.pointer(step.value)});")

    # --- tensors --------------------------------------------------------------------------------------------------

    def part(self, step: PartStep, depth: int) -> None:
        """Reads, writes, resets or checks a slice of a tensor."""
        file, whole = self._file, step.whole
        file.needs |= {"oi_inside"} if step.action is Action.CHECK else {"oi_inside", "oi_tensor_part"}
        axes = len(whole.shape)
        if isinstance(whole, Value):
            self._sizes.guard([whole], step.node, depth)
        file.line(depth, "{")
        shape = ", ".join(self._sizes.extent(one).text for one in whole.shape)
        file.line(depth + 1, f"const int64_t shape[] = {{ {shape} }};")
        found = picks(step.indices, [False] * axes, self._computed(step.indices, depth + 1))
        self._picked(found, step.node, depth + 1)
        fail = self._outside(found, "shape", axes, step.node)
        file.line(depth + 1, f"if (!oi_inside(pick, shape, {axes}, &part)) {fail}")
        if isinstance(step.value, Value) and step.action is not Action.RESET:
            self._lengths(step, step.value, found.kept, depth + 1)
        if step.action is not Action.CHECK:
            self._part_access(step, axes, depth + 1)
        file.line(depth, "}")

    def _part_access(self, step: PartStep, axes: int, depth: int) -> None:
        whole = step.whole
        action, value, element = _PART_ACTIONS[step.action], "NULL", 0
        if step.value is not None:
            value = self._operands.operand(step.value, step.node, depth)
        else:
            assert isinstance(whole, Value), "weights are not reset"
            action = "OI_FILL"
            element = element_bits(whole.dtype, self._file.program.bound.vars[str(whole.variable)].origin)
        own = self._operands.operand(whole, step.node, depth)
        is_constant = isinstance(whole, Weight) or self._pointers.is_constant(whole)
        own = f"(void *)(uintptr_t){own}" if is_constant else own
        facts = f"{own}, shape, {axes}, {whole.dtype.bits}, &part"
        is_kept = self._placed.rollback is not None and is_partly_written(step, self._placed.memory)
        undo = "c->undo" if is_kept else "NULL"
        self._file.line(depth, f"oi_tensor_part({action}, {facts}, {value}, UINT64_C(0x{element:x}), {undo});")

    # --- both -----------------------------------------------------------------------------------------------------

    def _computed(self, indices: Sequence[Index], depth: int) -> Mapping[Expr, Integer]:
        """The expressions in the indices of an access, which are computed in the order in which they are written."""
        ends = [(one.value,) if isinstance(one, Single) else (one.start, one.end) for one in indices]
        exprs = dict.fromkeys(end for both in ends for end in both if end is not None)
        return dict(zip(exprs, self._indices.integers(exprs, depth), strict=True))

    def _picked(self, found: Picks, node: int, depth: int) -> None:
        """The indices of an access, which must have values."""
        for line in found.lines:
            self._file.line(depth, line)
        if found.can_fail:
            self._file.line(depth, f"if (bad) {self._file.fail_bad(node)}")

    def _outside(self, found: Picks, bounds: str, keys: int, node: int) -> str:
        """The failure of an index that is out of bounds: the first such index may be negative."""
        if not found.can_be_negative:
            return self._file.fail(node, OUTSIDE)
        self._file.needs.add("oi_is_negative")
        condition = f"oi_is_negative(pick, {found.axes}, {bounds}, {keys})"
        return self._file.fail_either(node, condition, NEGATIVE, OUTSIDE)

    def _lengths(self, step: TableStep | PartStep, value: Value, kept: Iterable[int], depth: int) -> None:
        """The lengths of a part are those of a tensor; one that is read can be the first to have a dynamic size."""
        node, binds = step.node, step.action is not Action.WRITE
        for axis, extent in sorted(zip(kept, value.shape, strict=False), key=lambda pair: len(sizes_in(pair[1])) > 1):
            actual = Integer(f"part.count[{axis}]", 0, (1 << 63) - 1)
            if binds:
                if isinstance(step, TableStep):
                    self._sizes.require_room(extent, actual, step.table.bounds[axis], node, depth)
                self._sizes.agree(extent, actual, node, depth, is_exact=step.is_exact)
            else:
                self._sizes.require_known(sizes_in(extent), node, depth)
                fail = self._file.fail(node, BAD_LENGTH)
                self._file.line(depth, f"if ({actual.text} != {self._sizes.extent(extent).text}) {fail}")
        if binds:
            self._sizes.guard([value], node, depth)
