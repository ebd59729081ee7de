"""Operands of nodes: tensors of the model, one or a family; parts of tables and of plain tensors."""

from collections.abc import Sequence

from openinfer.check.access import access_type
from openinfer.check.bound import BoundGraph, BoundVar, FromPattern
from openinfer.check.literals import literal_value
from openinfer.dtypes import DTYPES, DType
from openinfer.ir import Access, Index, Literal, ModelRef, Node, Operand, Single, Slice
from openinfer.ir.expr import Expr, Ref
from openinfer.loops.dim import Dim
from openinfer.synth.lower.families import Families
from openinfer.synth.lower.variables import Current, fill_step, refused
from openinfer.synth.program.ir import Action, IntegerStep, Move, PartStep, Table, TableStep, Value


class Operands(Families):
    """What nodes read, and where in a table or a tensor they write."""

    def __init__(self, bound: BoundGraph) -> None:
        super().__init__(bound)
        self._lengths: dict[tuple[int, str], str] = {}

    def _operand(self, operand: Operand, node: Node, dtype: DType | None = None) -> Current:
        """What an operand is now; ``dtype`` is that of a literal."""
        if isinstance(operand, Literal):
            assert dtype is not None
            return self._literal(operand, node, dtype)
        if isinstance(operand, ModelRef):
            return self._model_ref(operand, node)
        if self.bound.is_index(operand):
            return self._integer(Ref(operand.base), node)
        variable = self.bound.vars[operand.base]
        if variable.is_table:
            return self._table_read(operand, node, None)
        if isinstance(variable.origin, FromPattern):
            weight = self._family(operand, variable, variable.origin.pattern, node)
            return self._entry_read(operand, weight, node) if self._is_written(operand.base) else weight
        if operand.bracketed and operand.indices:
            return self._part_read(operand, node, None)
        return self._read(operand.base, node.index)

    def _integer(self, expr: Expr, node: Node) -> Value:
        """An index expression as a value."""
        scalars = self._scalars(expr)
        value = self._value(str(expr), DTYPES["i64"], ())
        self._emit(IntegerStep(expr, value, node.index, scalars))
        return value

    def _literal(self, literal: Literal, node: Node, dtype: DType) -> Value:
        number = literal_value(literal, dtype)
        assert number is not None
        value = self._value(str(literal), dtype, ())
        self._emit(fill_step(value, number, node.index))
        return value

    # --- tables ---------------------------------------------------------------------------------------------------

    def _table_read(
        self, access: Access, node: Node, shape: tuple[int, ...] | None, *, is_exact: bool = False
    ) -> Value:
        table = self.tables[access.base]
        if shape is None:
            shape = self._table_shape(access, table, node)
        value = self._value(access.base, table.variable.dtype, shape)
        scalars = self._index_scalars(access.indices)
        self._emit(TableStep(Action.READ, table, access.indices, value, node.index, scalars, is_exact))
        return value

    def _table_shape(self, access: Access, table: Table, node: Node) -> tuple[int, ...]:
        """The shape of a part that an op reads directly; a length that is not a size gets one of its own."""
        variable = table.variable
        assert variable.decl is not None
        indices = variable.decl.table_indices
        chosen = dict(zip(indices, access.indices or (Slice(),) * len(indices), strict=True))
        keys = [chosen[name] for name in indices if name not in variable.decl.auto_dim]
        cells = [chosen[name] for name in variable.decl.auto_dim]
        is_grown = all(isinstance(one, Single) for one in cells)
        ordered = [*keys, *cells]
        kept = [
            (index, bound)
            for axis, (index, bound) in enumerate(zip(ordered, table.bounds, strict=True))
            if isinstance(index, Slice) or (is_grown and axis >= len(keys))
        ]
        return self._part_shape(access, variable, self._shape(variable), node, kept)

    def _symbolic(self, name: str) -> int | None:
        """What a name in an index is worth, as far as that is known: dynamic sizes are symbols."""
        is_size = name in self.sizes and name not in self.bound.vars and all(name != one.index for one in self.loops)
        return self._size(name) if is_size else self._static(name)

    def _part_shape(
        self,
        access: Access,
        variable: BoundVar,
        whole: tuple[int, ...],
        node: Node,
        kept: Sequence[tuple[Index, int | None]],
    ) -> tuple[int, ...]:
        """The shape of a part of a tensor or entry; ``kept`` are its slices, and the most these can be."""
        found = access_type(access, variable, whole, self._symbolic)
        extents: list[int] = []
        for axis, extent in enumerate(found.shape):
            if extent is not None:
                extents.append(extent)
                continue
            index, bound = kept[axis]
            if bound is None:
                raise refused(node, f"the length of {access} has no bound", "bound the table with @fixed")
            extents.append(self._unnamed(node, index, bound))
        return tuple(extents)

    def _unnamed(self, node: Node, index: Index, bound: int) -> int:
        """The length of a slice as a size without a name; slices of one node that are written alike are as long."""
        text = f"{index.value}" if isinstance(index, Single) else f"{index.start}..{index.end}"
        key = (node.index, text)
        if key not in self._lengths:
            # No size of a graph begins with a digit.
            self._lengths[key] = f"{len(self._lengths)}_{node.index}"
            self.sizes[self._lengths[key]] = int(bound)
        name = self._lengths[key]
        return Dim(self.sizes[name], Ref(name))

    # --- parts of plain tensors -----------------------------------------------------------------------------------

    def _is_part(self, access: Access) -> bool:
        variable = self.bound.vars[access.base]
        is_plain = not variable.is_table and not isinstance(variable.origin, FromPattern)
        return is_plain and access.bracketed and bool(access.indices)

    def _part_read(self, access: Access, node: Node, shape: tuple[int, ...] | None, *, is_exact: bool = False) -> Value:
        whole = self._read(access.base, node.index)
        if shape is None:
            pairs = zip(access.indices, whole.shape, strict=True)
            kept = [(index, extent) for index, extent in pairs if isinstance(index, Slice)]
            shape = self._part_shape(access, self.bound.vars[access.base], whole.shape, node, kept)
        scalars = self._index_scalars(access.indices)
        value = self._value(access.base, whole.dtype, shape)
        self._emit(PartStep(Action.READ, whole, access.indices, value, node.index, scalars, is_exact=is_exact))
        return value

    def _part_change(self, action: Action, access: Access, node: Node, value: Current | None, initial: float) -> None:
        """A part gets other values: a copy of the whole is changed, which placement makes the whole itself."""
        scalars = self._index_scalars(access.indices)
        whole = self._read(access.base, node.index)
        changed = self._value(access.base, whole.dtype, whole.shape)
        self._emit(Move(whole, changed, node.index))
        self._emit(PartStep(action, changed, access.indices, value, node.index, scalars, initial))
        self.current[access.base] = changed
