"""Model tensors as operands: single tensors, families selected by indices, and families that the graph writes."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product, takewhile
from math import prod
from typing import Any

from openinfer.check.access import static_value
from openinfer.check.bound import BoundGraph, BoundVar, FromModel, FromPattern
from openinfer.check.indices import Around, Ranges, pattern_name, spelled
from openinfer.dtypes import DTYPES
from openinfer.errors import counted
from openinfer.ir import Access, CacheRead, CacheWrite, Loop, ModelRef, Node, Op, Scope, Single, Transfer
from openinfer.ir.expr import Expr, Ref
from openinfer.ir.expr import names as names_in
from openinfer.loops.dim import Dim
from openinfer.synth.lower.emission import Emission, refused
from openinfer.synth.lower.variables import VariableValues
from openinfer.synth.program.ir import Action, BindSize, EntryStep, Family, Value, Weight

_MOST_ENTRIES = 1 << 20
"""The most entries of a prefix table that are enumerated."""


class Families:
    """Resolves references to model tensors."""

    def __init__(self, bound: BoundGraph, emission: Emission, variables: VariableValues) -> None:
        self.written: dict[str, Family] = {}
        """The families that the graph writes, by prefix table."""
        self.origins: dict[Value, Weight] = {}
        """For each entry read from one of these, its model tensor."""
        self._bound = bound
        self._emission = emission
        self._place = emission.place
        self._variables = variables
        self._names = [] if bound.model is None else sorted(bound.model.tensors)
        self._tables: dict[str, Weight] = {}
        """Each prefix table with all its entries, without an index."""

    def model_ref(self, operand: ModelRef, node: Node) -> Weight:
        """A model tensor by name; the name may contain indices of loops."""
        model = self._bound.model
        assert model is not None
        if not operand.formatted:
            info = model.tensors.get(operand.name)
            if info is not None:
                return Weight((operand.name,), info.dtype, info.shape)
            variable = next(v for v in self._bound.vars.values() if v.origin == FromModel(operand.name))
            return Weight((operand.name,), variable.dtype, variable.shape)
        indices = [loop.index for loop in self._place.loops if f"{{{loop.index}}}" in operand.name]
        values = [dict(one) for one in Ranges(self._place.static).all(None, self._place.loops, operand.name)]
        names = [spelled(operand.name, one) for one in values]
        if not names:  # dynamic loop bounds: take every tensor that the name can match
            found = _entries_of(operand.name, tuple(indices), self._names_like(operand.name))
            values = [dict(zip(indices, key, strict=True)) for key in found]
            names = list(found.values())
        if not names:
            raise refused(node, f"the model has no tensor for {operand}")
        info = model.tensors[names[0]]
        return self._judged(_family_of(names, values, indices, [Ref(index) for index in indices], info))

    def chosen(self, access: Access, variable: BoundVar, pattern: str, node: Node) -> Weight:
        """An access to a prefix table: all entries that exist, selected by its indices at run time."""
        if variable.name not in self._tables:
            self._tables[variable.name] = self._table(access, variable, pattern, node)
        exprs = tuple(index.value for index in access.indices if isinstance(index, Single))
        return self._judged(replace(self._tables[variable.name], index=exprs))

    def _judged(self, weight: Weight) -> Weight:
        """The weight with ``can_miss`` set unless loops with known bounds prove that every access hits a tensor."""
        used = {name for expr in weight.index for name in names_in(expr)}
        iterations = self._place.iterations(tuple(loop for loop in self._place.loops if loop.index in used))
        return replace(
            weight, can_miss=iterations is None or not all(self._exists(weight, iteration) for iteration in iterations)
        )

    def _exists(self, weight: Weight, iteration: Mapping[str, int]) -> bool:
        place = 0
        for expr, first, extent in zip(weight.index, weight.firsts, weight.extents, strict=True):
            value = static_value(expr, lambda name: iteration[name] if name in iteration else self._place.static(name))
            if value is None or not first <= value < first + extent:
                return False
            place = place * extent + value - first
        return bool(weight.names[place])

    def _names_like(self, pattern: str) -> list[str]:
        """The model's names that begin with the literal prefix of a pattern."""
        begin = pattern.partition("{")[0]
        first = bisect_left(self._names, begin)
        return list(takewhile(lambda name: name.startswith(begin), islice(self._names, first, None)))

    def _table(self, access: Access, variable: BoundVar, pattern: str, node: Node) -> Weight:
        model = self._bound.model
        assert model is not None
        assert variable.decl is not None
        fitting = [
            name
            for name in self._names_like(pattern)
            if (info := model.tensors[name]).has_data and info.dtype is variable.dtype and info.shape == variable.shape
        ]
        entries = _entries_of(pattern, variable.decl.table_indices, fitting)
        if not entries:
            raise refused(node, f"the model has no tensor for {access}")
        axes = range(len(variable.decl.table_indices))
        firsts = [min(key[axis] for key in entries) for axis in axes]
        lasts = [max(key[axis] for key in entries) for axis in axes]
        extents = [last - first + 1 for first, last in zip(firsts, lasts, strict=True)]
        if prod(extents) > _MOST_ENTRIES:
            raise refused(
                node, f"{access} can be {counted(prod(extents), 'tensor')}, most of which the model does not have"
            )
        keys = product(*(range(first, last + 1) for first, last in zip(firsts, lasts, strict=True)))
        names = [entries.get(key, "") for key in keys]
        return Weight(tuple(names), variable.dtype, variable.shape, (), tuple(extents), tuple(firsts))

    # --- families that the graph writes ---------------------------------------------------------------------------

    def entry_read(self, access: Access, weight: Weight, node: Node) -> Value:
        """The current value of an entry: the model's, or the one that the step has written."""
        value = self._emission.value(access.base, weight.dtype, weight.shape)
        scalars = self._variables.scalars(*weight.index)
        self._emission.emit(
            EntryStep(Action.READ, self._written_family(access.base, weight), weight.index, value, node.index, scalars)
        )
        self.origins[value] = weight
        return value

    def entry_write(self, access: Access, weight: Weight, value: Value, node: Node) -> None:
        """Write an entry; the value holds until the step ends."""
        for declared, own in zip(weight.shape, value.shape, strict=True):
            if isinstance(own, Dim):
                self._emission.emit(BindSize(declared, own, node.index))
        scalars = self._variables.scalars(*weight.index)
        family = self._written_family(access.base, weight)
        self._emission.emit(EntryStep(Action.WRITE, family, weight.index, value, node.index, scalars))

    def _written_family(self, name: str, weight: Weight) -> Family:
        """The family of a prefix table, with memory for the entries that some node may write."""
        if name not in self.written:
            chosen = self._written_names(name)
            kept = [one for one in weight.names if one and (chosen is None or one in chosen)]
            places = {one: place for place, one in enumerate(kept)}
            slots = tuple(places.get(one, -1) for one in weight.names)
            byte = DTYPES["u8"]
            own = self._emission.home(name, byte, (len(kept), weight.dtype.nbytes(prod(weight.shape))))
            written = self._emission.home(name, byte, (len(kept),))
            self.written[name] = Family(replace(weight, index=()), slots, own, written)
        return self.written[name]

    def _written_names(self, name: str) -> set[str] | None:
        """The entries that nodes write, if statically known; None means any."""
        variable = self._bound.vars[name]
        assert isinstance(variable.origin, FromPattern)
        found: set[str] = set()
        for block in self._bound.graph.blocks.values():
            for access, loops in _writes_of(block.nodes, name):
                iterations = self._place.iterations(loops)
                if iterations is None:
                    return None
                for iteration in iterations:
                    entry = pattern_name(variable, access, variable.origin.pattern, iteration, self._place.static)
                    if entry is None:
                        return None
                    found.add(entry)
        return found


def _writes_of(nodes: Sequence[Node], name: str, loops: Around = ()) -> Iterator[tuple[Access, Around]]:
    """The accesses that write a variable, with their enclosing loops."""
    for node in nodes:
        match node.kind:
            case Loop() as loop:
                yield from _writes_of(loop.body, name, (*loops, loop))
            case Scope(body=body):
                yield from _writes_of(body, name, loops)
            case Op(outputs=outputs):
                yield from ((output, loops) for output in outputs if output.base == name)
            case Transfer(dst=dst) | CacheRead(dst=dst) | CacheWrite(dst=dst) if dst.base == name:
                yield dst, loops


def _entries_of(pattern: str, indices: tuple[str, ...], names: Sequence[str]) -> dict[tuple[int, ...], str]:
    """The tensors whose names match a pattern, by index values."""
    parts = re.split(r"\{([^{}]*)\}", pattern)
    text = "".join(
        re.escape(part) if position % 2 == 0 else rf"(?P<{part}_{position}>-?\d+)"
        for position, part in enumerate(parts)
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
