"""Operands of nodes: tensors of the model, one or a family; parts of tables and of plain tensors."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from openinfer.check.access import access_type
from openinfer.check.bound import BoundGraph, BoundVar, FromModel, FromPattern
from openinfer.check.indices import Ranges, spelled
from openinfer.ir import Access, Index, ModelRef, Node, Operand, Single, Slice
from openinfer.ir.expr import Expr, Ref
from openinfer.loops.dim import Dim
from openinfer.synth.lower_values import Current, Values, refused
from openinfer.synth.program import Move, PartStep, Table, TableStep, Value, Weight

_MOST_ENTRIES = 1 << 20
"""How many entries of a prefix table are listed."""


class Operands(Values):
    """What nodes read, and where in a table or a tensor they write."""

    def __init__(self, bound: BoundGraph) -> None:
        super().__init__(bound)
        self._lengths: dict[tuple[int, str], str] = {}

    def _operand(self, operand: Operand, node: Node) -> Current:
        if isinstance(operand, ModelRef):
            return self._model_ref(operand, node)
        variable = self.bound.vars[operand.base]
        if variable.is_table:
            return self._table_read(operand, node, None)
        if isinstance(variable.origin, FromPattern):
            return self._family(operand, variable, variable.origin.pattern, node)
        if operand.bracketed and operand.indices:
            return self._part_read(operand, node, None)
        return self._read(operand.base, node.index)

    def _model_ref(self, operand: ModelRef, node: Node) -> Weight:
        model = self.bound.model
        assert model is not None
        if not operand.formatted:
            info = model.tensors.get(operand.name)
            if info is not None:
                return Weight((operand.name,), info.dtype, info.shape)
            variable = next(v for v in self.bound.vars.values() if v.origin == FromModel(operand.name))
            return Weight((operand.name,), variable.dtype, variable.shape)
        used = [loop for loop in self.loops if f"{{{loop.index}}}" in operand.name]
        values = [dict(one) for one in Ranges(self._static).all(None, self.loops, operand.name)]
        names = [spelled(operand.name, one) for one in values]
        if not names:  # the loops' bounds are known only while running: every tensor that can be meant
            indices = tuple(loop.index for loop in used)
            found = _entries_of(operand.name, indices, list(model.tensors))
            values = [dict(zip(indices, key, strict=True)) for key in found]
            names = list(found.values())
        if not names:
            raise refused(node, f"the model has no tensor for {operand}")
        info = model.tensors[names[0]]
        return _family_of(names, values, [loop.index for loop in used], [Ref(loop.index) for loop in used], info)

    def _family(self, access: Access, variable: BoundVar, pattern: str, node: Node) -> Weight:
        """A prefix table: every entry that the indices can name, chosen while running."""
        model = self.bound.model
        assert model is not None
        assert variable.decl is not None
        exprs = [index.value for index in access.indices if isinstance(index, Single)]
        fitting = [
            info.name
            for info in model.tensors.values()
            if info.has_data and info.dtype is variable.dtype and info.shape == variable.shape
        ]
        entries = _entries_of(pattern, variable.decl.table_indices, fitting)
        if not entries:
            raise refused(node, f"the model has no tensor for {access}")
        firsts = [min(key[axis] for key in entries) for axis in range(len(exprs))]
        lasts = [max(key[axis] for key in entries) for axis in range(len(exprs))]
        extents = [last - first + 1 for first, last in zip(firsts, lasts, strict=True)]
        if prod(extents) > _MOST_ENTRIES:
            raise refused(node, f"{access} can be {prod(extents)} tensors, most of which the model does not have")
        keys = product(*(range(first, last + 1) for first, last in zip(firsts, lasts, strict=True)))
        names = [entries.get(key, "") for key in keys]
        return Weight(tuple(names), variable.dtype, variable.shape, tuple(exprs), tuple(extents), tuple(firsts))

    # --- tables ---------------------------------------------------------------------------------------------------

    def _table_read(self, access: Access, node: Node, shape: tuple[int, ...] | None) -> Value:
        table = self.tables[access.base]
        if shape is None:
            shape = self._table_shape(access, table, node)
        value = self._value(access.base, table.variable.dtype, shape)
        scalars = self._index_scalars(access.indices)
        self._emit(TableStep("read", table, access.indices, value, node.index, scalars))
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
        return self._part_shape(access, variable, node, kept)

    def _part_shape(
        self, access: Access, variable: BoundVar, node: Node, kept: Sequence[tuple[Index, int | None]]
    ) -> tuple[int, ...]:
        """The shape of a part; ``kept`` are the indices that have lengths, with the most these can be."""
        found = access_type(access, variable, self._shape(variable), self._static)
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

    def _part_read(self, access: Access, node: Node, shape: tuple[int, ...] | None) -> Value:
        whole = self._read(access.base, node.index)
        if shape is None:
            pairs = zip(access.indices, whole.shape, strict=True)
            kept = [(index, extent) for index, extent in pairs if isinstance(index, Slice)]
            shape = self._part_shape(access, self.bound.vars[access.base], node, kept)
        scalars = self._index_scalars(access.indices)
        value = self._value(access.base, whole.dtype, shape)
        self._emit(PartStep("read", whole, access.indices, value, node.index, scalars))
        return value

    def _part_change(self, action: str, access: Access, node: Node, value: Current | None, initial: float) -> None:
        """A part gets other values: a copy of the whole is changed, which placement makes the whole itself."""
        scalars = self._index_scalars(access.indices)
        whole = self._read(access.base, node.index)
        changed = self._value(access.base, whole.dtype, whole.shape)
        self._emit(Move(whole, changed, node.index))
        self._emit(PartStep(action, changed, access.indices, value, node.index, scalars, initial))
        self.current[access.base] = changed


def _entries_of(pattern: str, indices: tuple[str, ...], names: Sequence[str]) -> dict[tuple[int, ...], str]:
    """The tensors whose names a pattern spells, by their indices."""
    import re

    parts = re.split(r"\{([^{}]*)\}", pattern)
    text = "".join(
        re.escape(part) if position % 2 == 0 else rf"(?P<{part}_{position}>\d+)" for position, part in enumerate(parts)
    )
    expression = re.compile(text)
    places = {index: f"{index}_{parts.index(index, 1)}" for index in indices}
    found: dict[tuple[int, ...], str] = {}
    for name in names:
        match = expression.fullmatch(name)
        if match is None:
            continue
        key = tuple(int(match[places[index]]) for index in indices)
        if spelled(pattern, dict(zip(indices, key, strict=True))) == name:
            found[key] = name
    return found


def _family_of(
    names: Sequence[str], values: Sequence[Mapping[str, int]], keys: Sequence[str], exprs: Sequence[Expr], info: Any
) -> Weight:
    firsts = [min(one[key] for one in values) for key in keys]
    extents = [max(one[key] for one in values) - first + 1 for key, first in zip(keys, firsts, strict=True)]
    by_key = {tuple(one[key] for key in keys): name for one, name in zip(values, names, strict=True)}
    ordered = [
        by_key.get(place, "")
        for place in product(*(range(first, first + extent) for first, extent in zip(firsts, extents, strict=True)))
    ]
    return Weight(tuple(ordered), info.dtype, info.shape, tuple(exprs), tuple(extents), tuple(firsts))
