"""Lowers accesses: variables, model tensors, and slices of tables and plain tensors."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from openinfer.check.access import access_type
from openinfer.check.bound import BoundGraph, BoundVar, FromInit, FromModel, FromPattern
from openinfer.check.literals import literal_value
from openinfer.dtypes import DTYPES, DType
from openinfer.ir import Access, Index, Literal, ModelRef, Node, Operand, Single, Slice
from openinfer.ir.expr import Expr, Ref
from openinfer.loops.dim import form
from openinfer.synth.lower.emission import Emission, fill_step, refused
from openinfer.synth.lower.families import Families
from openinfer.synth.lower.variables import VariableValues
from openinfer.synth.program.ir import Action, IntegerStep, Move, PartStep, StepOperand, Table, TableStep, Value, Weight


@dataclass(frozen=True)
class _Kept:
    """A slice along an axis."""

    index: Index
    most: int | None
    """The upper bound of its length, if it has one."""
    of: Hashable
    """Identifies its extent: axes with equal keys have the same length."""


class Accesses:
    """Lowers reads and writes of variables, tables, entries, and slices of tensors."""

    def __init__(self, bound: BoundGraph, emission: Emission, variables: VariableValues, families: Families) -> None:
        self.tables = {name: table_of(variable) for name, variable in bound.vars.items() if variable.is_table}
        self._bound = bound
        self._emission = emission
        self._variables = variables
        self._families = families

    def operand(self, operand: Operand, node: Node, dtype: DType | None = None) -> StepOperand:
        """The current value of an operand; ``dtype`` is that of a literal."""
        if isinstance(operand, Literal):
            assert dtype is not None
            return self._literal(operand, node, dtype)
        if isinstance(operand, ModelRef):
            return self._families.model_ref(operand, node)
        if self._bound.is_index(operand):
            return self.integer(Ref(operand.base), node)
        variable = self._bound.vars[operand.base]
        if variable.is_table:
            return self.table_read(operand, node, None)
        if isinstance(variable.origin, FromPattern):
            weight = self._families.chosen(operand, variable, variable.origin.pattern, node)
            return (
                self._families.entry_read(operand, weight, node) if self._variables.is_written(operand.base) else weight
            )
        if operand.bracketed and operand.indices:
            return self.part_read(operand, node, None)
        return self._variables.read(operand.base, node.index)

    def integer(self, expr: Expr, node: Node) -> Value:
        """The value of an index expression."""
        scalars = self._variables.scalars(expr)
        value = self._emission.value(str(expr), DTYPES["i64"], ())
        self._emission.emit(IntegerStep(expr, value, node.index, scalars))
        return value

    def _literal(self, literal: Literal, node: Node, dtype: DType) -> Value:
        number = literal_value(literal, dtype)
        assert number is not None
        value = self._emission.value(str(literal), dtype, ())
        self._emission.emit(fill_step(value, number, node.index))
        return value

    def require_shape(self, operand: Operand | None) -> None:
        """Require that the dimensions of a variable which the operand names as a whole have values."""
        if isinstance(operand, Access) and not operand.bracketed and operand.base in self._bound.vars:
            self._emission.require_shape(self._bound.vars[operand.base])

    def write(self, node: Node, access: Access, value: Value) -> None:
        """Write a value to what is accessed."""
        variable = self._bound.vars[access.base]
        if variable.is_table:
            self._table_change(Action.WRITE, access, node, value)
        elif isinstance(variable.origin, FromPattern):
            weight = self._families.chosen(access, variable, variable.origin.pattern, node)
            self._families.entry_write(access, weight, value, node)
        elif access.bracketed and access.indices:
            self._part_change(Action.WRITE, access, node, value, 0)
        else:
            self._variables.current[access.base] = value

    def reset(self, node: Node, access: Access) -> None:
        """Reset what is accessed to its initial value."""
        variable = self._bound.vars[access.base]
        if variable.is_table:
            self._table_change(Action.RESET, access, node, None)
            return
        if isinstance(variable.origin, FromModel):
            original = Weight((variable.origin.name,), variable.dtype, variable.shape)
            if access.indices:
                self._part_change(Action.RESET, access, node, original, 0)
            else:
                self._variables.current[access.base] = original
            return
        assert isinstance(variable.origin, FromInit)
        number = 0 if variable.origin.value is None else variable.origin.value.value
        if access.indices:
            self._part_change(Action.RESET, access, node, None, number)
            return
        self._variables.current[access.base] = self._emission.filled(variable, number, node.index)

    # --- tables ---------------------------------------------------------------------------------------------------

    def table_read(self, access: Access, node: Node, shape: tuple[int, ...] | None, *, is_exact: bool = False) -> Value:
        """Read a slice of a table. Without a shape, its indices determine it."""
        table = self.tables[access.base]
        if shape is None:
            shape = self._table_shape(access, table, node)
        value = self._emission.value(access.base, table.variable.dtype, shape)
        scalars = self._variables.index_scalars(access.indices)
        self._emission.emit(TableStep(Action.READ, table, access.indices, value, node.index, scalars, is_exact))
        return value

    def _table_change(self, action: Action, access: Access, node: Node, value: Value | None) -> None:
        scalars = self._variables.index_scalars(access.indices)
        self._emission.emit(TableStep(action, self.tables[access.base], access.indices, value, node.index, scalars))

    def _table_shape(self, access: Access, table: Table, node: Node) -> tuple[int, ...]:
        """The shape of a slice that an op reads directly; lengths that are not declared sizes become unnamed ones."""
        variable = table.variable
        assert variable.decl is not None
        indices = variable.decl.table_indices
        chosen = dict(zip(indices, access.indices or (Slice(),) * len(indices), strict=True))
        keys = [chosen[name] for name in indices if name not in variable.decl.auto_dim]
        cells = [chosen[name] for name in variable.decl.auto_dim]
        is_grown = all(isinstance(one, Single) for one in cells)
        ordered = [*keys, *cells]
        # Matrices of a table grow independently; otherwise all full slices along one table index have the same extent.
        of = access if variable.decl.auto_dim else access.base
        kept = [
            _Kept(index, bound, (of, axis))
            for axis, (index, bound) in enumerate(zip(ordered, table.bounds, strict=True))
            if isinstance(index, Slice) or (is_grown and axis >= len(keys))
        ]
        return self._part_shape(access, variable, self._emission.shapes.of(variable), node, kept)

    def _symbolic(self, name: str) -> int | None:
        """The value of a name in an index, if known; dynamic sizes are symbols."""
        shapes, place = self._emission.shapes, self._emission.place
        is_size = name in shapes.sizes and name not in self._bound.vars and not place.is_index(name)
        return shapes.size(name) if is_size else place.static(name)

    def _part_shape(
        self,
        access: Access,
        variable: BoundVar,
        whole: tuple[int, ...],
        node: Node,
        kept: Sequence[_Kept],
    ) -> tuple[int, ...]:
        """The shape of a slice of a tensor or entry."""
        found = access_type(access, variable, whole, self._symbolic)
        extents: list[int] = []
        for axis, extent in enumerate(found.shape):
            if extent is not None:
                extents.append(extent)
                continue
            own = kept[axis]
            if own.most is None:
                raise refused(node, f"the length of {access} has no bound", "bound the table with @fixed")
            # Shape rules align axes from the end, so the same slice on different axes gets different lengths: d[0..n,
            # 0..n].
            of = (own.of, len(found.shape) - axis)
            extents.append(self._emission.shapes.unnamed(node, own.index, of, own.most))
        return tuple(extents)

    # --- slices of plain tensors ----------------------------------------------------------------------------------

    def is_part(self, access: Access) -> bool:
        """Whether the access is to a slice of a plain tensor."""
        variable = self._bound.vars[access.base]
        is_plain = not variable.is_table and not isinstance(variable.origin, FromPattern)
        return is_plain and access.bracketed and bool(access.indices)

    def part_read(self, access: Access, node: Node, shape: tuple[int, ...] | None, *, is_exact: bool = False) -> Value:
        """Read a slice of a tensor. Without a shape, its indices determine it."""
        whole = self._variables.read(access.base, node.index)
        if shape is None:
            pairs = zip(access.indices, whole.shape, strict=True)
            kept = [_Kept(index, extent, form(extent)) for index, extent in pairs if isinstance(index, Slice)]
            shape = self._part_shape(access, self._bound.vars[access.base], whole.shape, node, kept)
        scalars = self._variables.index_scalars(access.indices)
        value = self._emission.value(access.base, whole.dtype, shape)
        self._emission.emit(PartStep(Action.READ, whole, access.indices, value, node.index, scalars, is_exact=is_exact))
        return value

    def _part_change(
        self, action: Action, access: Access, node: Node, value: StepOperand | None, initial: float
    ) -> None:
        """Change a slice in a copy of the whole tensor; placement gives both the same memory."""
        scalars = self._variables.index_scalars(access.indices)
        whole = self._variables.read(access.base, node.index)
        changed = self._emission.value(access.base, whole.dtype, whole.shape)
        self._emission.emit(Move(whole, changed, node.index))
        self._emission.emit(PartStep(action, changed, access.indices, value, node.index, scalars, initial))
        self._variables.current[access.base] = changed


def table_of(variable: BoundVar) -> Table:
    """The storage of a table variable."""
    decl = variable.decl
    assert decl is not None
    keys = [index for index in decl.table_indices if index not in decl.auto_dim]
    bounds: list[int | None] = [variable.fixed.get(index) for index in keys]
    for axis, index in enumerate(decl.auto_dim):
        bounds.append(None if index not in variable.fixed else variable.shape[axis] + variable.fixed[index])
    return Table(variable, tuple(bounds), variable.shape[len(decl.auto_dim) :], len(keys))
