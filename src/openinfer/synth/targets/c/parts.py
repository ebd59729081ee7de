"""Steps on slices in C: slices of tables and of plain tensors."""

from collections.abc import Mapping, Sequence

from openinfer.ir import Index, Single
from openinfer.ir.expr import Expr
from openinfer.synth.memory.checks.records import LengthChecks, SliceChecks
from openinfer.synth.memory.rollback import is_partly_written
from openinfer.synth.memory.state import element_bits
from openinfer.synth.memory.table_access import TableAccess
from openinfer.synth.program.integers import Computed
from openinfer.synth.program.ir import Action, PartStep, TableStep, Value, Weight
from openinfer.synth.targets.c.memory_calls import MemoryCalls
from openinfer.synth.targets.c.operands import Operands
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.c.rings import RingCells, ring_cells
from openinfer.synth.targets.c.tables import Picks, picks
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.integers import Integer
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter

_PART_ACTIONS = {Action.READ: "OI_READ", Action.WRITE: "OI_WRITE", Action.RESET: "OI_COPY"}


class Parts:
    """Prints steps on slices."""

    def __init__(
        self,
        file: HostFile,
        sizes: SizePrinter,
        indices: IndexPrinter,
        pointers: Pointers,
        operands: Operands,
        calls: MemoryCalls,
    ) -> None:
        self._file = file
        self._calls = calls
        self._sizes = sizes
        self._indices = indices
        self._pointers = pointers
        self._operands = operands
        self._placed = file.placed

    # --- tables ---------------------------------------------------------------------------------------------------

    def table(self, step: TableStep, checks: SliceChecks | None, depth: int) -> None:
        """Reads, writes, resets or checks a slice of a table."""
        file, layout = self._file, self._placed.state.tables[step.table.variable.name]
        grid = f"grid{layout.number}"
        if checks is None:
            file.needs.add(self._calls.clear)
            file.line(depth, f"{{ const oi_grid grid = {grid}(c); {self._calls.clear}({self._calls.queue}&grid); }}")
            return
        access = TableAccess(layout, step)
        file.line(depth, "{")
        if self._calls.folds and self._placed.rollback is None:
            computed = self._computed(step.indices, depth + 1)
            cells = ring_cells(access, checks, computed)
            if cells is not None:
                self._copied(cells, step, depth)
                return
            file.line(depth + 1, f"const oi_grid grid = {grid}(c);")
        else:
            file.line(depth + 1, f"const oi_grid grid = {grid}(c);")
            computed = self._computed(step.indices, depth + 1)
        file.needs.add("oi_select")
        self._picked(picks(access.ordered, access.grown, computed), checks, depth + 1)
        is_write = "true" if step.action is Action.WRITE else "false"
        fail = self._outside(checks, len(access.ordered), "grid.table->bound", layout.table.keys)
        file.line(depth + 1, f"if (!oi_select(&grid, pick, {is_write}, &part)) {fail}")
        self._table_access(step, access, checks, depth + 1)
        file.line(depth, "}")

    def _is_view(self, step: TableStep) -> bool:
        """Whether a step reads a view of the table instead of a copy."""
        return step.action is Action.READ and step.value in self._placed.memory.views

    def _copied(self, cells: RingCells, step: TableStep, depth: int) -> None:
        """Accesses cells whose position is known."""
        assert step.value is not None
        for line in cells.lines(self._pointers.pointer(step.value), is_view=self._is_view(step)):
            self._file.line(depth + 1, line)
        self._file.line(depth, "}")

    def _table_access(self, step: TableStep, access: TableAccess, checks: SliceChecks, depth: int) -> None:
        """Accesses the selected cells."""
        file = self._file
        is_view = self._is_view(step)
        called = "oi_table_view" if is_view else self._calls.tables.get(step.action)
        file.needs |= set() if called is None else {called}
        if step.action is Action.RESET:
            whole = "true" if access.is_whole_matrix else "false"
            file.line(depth, f"{called}({self._calls.queue}&grid, &part, {whole});")
            return
        assert step.value is not None
        self._lengths(checks.lengths, depth)
        self._sizes.check(checks.extents, depth)
        if checks.memory is not None:
            file.needs.add("oi_table_grow")
            file.line(depth, f"if (!oi_table_grow(&grid, &part)) {file.fail(checks.memory)}")
        if is_view:
            file.line(depth, f"{self._pointers.pointer(step.value)} = {called}(&grid, &part);")
        elif called is not None:
            value = self._pointers.pointer(step.value)
            file.line(depth, f"{called}({self._calls.queue}&grid, &part, {value});")

    # --- tensors --------------------------------------------------------------------------------------------------

    def part(self, step: PartStep, checks: SliceChecks, depth: int) -> None:
        """Reads, writes, resets or checks a slice of a tensor."""
        file, whole = self._file, step.whole
        file.needs |= {"oi_inside"} if step.action is Action.CHECK else {"oi_inside", self._calls.part}
        axes = len(whole.shape)
        self._sizes.check(checks.whole, depth)
        file.line(depth, "{")
        shape = ", ".join(self._sizes.extent(one).text for one in whole.shape)
        file.line(depth + 1, f"const int64_t shape[] = {{ {shape} }};")
        self._picked(picks(step.indices, [False] * axes, self._computed(step.indices, depth + 1)), checks, depth + 1)
        fail = self._outside(checks, axes, "shape", axes)
        file.line(depth + 1, f"if (!oi_inside(pick, shape, {axes}, &part)) {fail}")
        self._lengths(checks.lengths, depth + 1)
        self._sizes.check(checks.extents, depth + 1)
        if step.action is not Action.CHECK:
            self._part_access(step, checks, axes, depth + 1)
        file.line(depth, "}")

    def _part_access(self, step: PartStep, checks: SliceChecks, axes: int, depth: int) -> None:
        whole = step.whole
        action, value, element = _PART_ACTIONS[step.action], "NULL", 0
        if step.value is not None:
            value = self._operands.operand(step.value, checks.value, depth)
        else:
            assert isinstance(whole, Value), "weights are not reset"
            action = "OI_FILL"
            element = element_bits(whole.dtype, self._file.program.bound.vars[str(whole.variable)].origin)
        own = self._operands.operand(whole, checks.source, depth)
        is_constant = isinstance(whole, Weight) or self._pointers.is_constant(whole)
        own = f"(void *)(uintptr_t){own}" if is_constant else own
        facts = f"{own}, shape, {axes}, {whole.dtype.bits}, &part"
        is_kept = self._placed.rollback is not None and is_partly_written(step, self._placed.memory)
        undo = "c->undo" if is_kept else "NULL"
        called = f"{self._calls.part}({self._calls.queue}{action}"
        self._file.line(depth, f"{called}, {facts}, {value}, UINT64_C(0x{element:x}), {undo});")

    # --- both -----------------------------------------------------------------------------------------------------

    def _computed(self, indices: Sequence[Index], depth: int) -> Mapping[Expr, Integer]:
        """The expressions in the indices of an access, computed in source order."""
        ends = [(one.value,) if isinstance(one, Single) else (one.start, one.end) for one in indices]
        exprs = dict.fromkeys(end for both in ends for end in both if end is not None)
        return dict(zip(exprs, self._indices.integers(exprs, depth), strict=True))

    def _picked(self, found: Picks, checks: SliceChecks, depth: int) -> None:
        """Prints the indices of an access, and fails if one could not be computed."""
        self._file.needs |= found.needs
        for line in found.lines:
            self._file.line(depth, line)
        if checks.indices is not None:
            self._file.line(depth, f"if (bad) {self._file.fail_bad(checks.indices)}")

    def _outside(self, checks: SliceChecks, axes: int, bounds: str, keys: int) -> str:
        """The failure of an index that is out of bounds, which depends on whether the first such index is negative."""
        if checks.negative is None:
            return self._file.fail(checks.outside)
        self._file.needs.add("oi_is_negative")
        condition = f"oi_is_negative(pick, {axes}, {bounds}, {keys})"
        return self._file.fail_either(condition, checks.negative, checks.outside)

    def _lengths(self, lengths: Sequence[LengthChecks], depth: int) -> None:
        """Checks that the lengths of a slice are those of a tensor."""
        for one in lengths:
            found = Integer(f"part.count[{one.axis}]", Computed(0, (1 << 63) - 1))
            self._sizes.check(one.checks, depth, found)
