"""The tensors that a stage reads, so that its model has no others."""

import re
from collections.abc import Iterable, Mapping

from openinfer.check.bound import BoundGraph, BoundVar, FromModel, FromPattern
from openinfer.ir import Access, Graph, Loop, ModelRef, Node, Single
from openinfer.ir.expr import Expr, Ref, names
from openinfer.ir.uses import node_uses
from openinfer.stages.extents import IndexRanges, loop_range, values_of


def tensors_read(bound: BoundGraph, graph: Graph) -> set[str]:
    """The tensors of a bound graph's model that a stage of it reads, by name or by a pattern.

    If indices are not known before a step, these are all tensors that match the pattern.
    """
    assert bound.model is not None
    reader = _Reader(bound, bound.model.tensors.keys())
    for name in graph.vars:
        origin = bound.vars[name].origin
        if isinstance(origin, FromModel):
            reader.found.add(origin.name)
    for block in graph.blocks.values():
        unknown = frozenset(param.name for param in block.params or ())
        reader.walk(block.nodes, {}, unknown)
    return reader.found & bound.model.tensors.keys()


class _Reader:
    def __init__(self, bound: BoundGraph, known: Iterable[str]) -> None:
        self._bound = bound
        self._known = list(known)
        self.found: set[str] = set()
        self._sizes: Mapping[str, int] = {
            **bound.sizes,
            **{name: one for name, one in bound.constants.items() if isinstance(one, int)},
        }

    def walk(self, nodes: Iterable[Node], ranges: IndexRanges, unknown: frozenset[str]) -> None:
        """Collect the tensors that nodes read. ``unknown`` has indices whose values are not known before a step."""
        for node in nodes:
            if isinstance(node.kind, Loop):
                own = loop_range(self._bound, node.kind)
                index = node.kind.index
                inside = {name: one for name, one in ranges.items() if name != index}
                hidden = unknown - {index} if own is not None else unknown | {index}
                self.walk(node.kind.body, inside if own is None else {**inside, index: own}, hidden)
            elif node.body:
                self.walk(node.body, ranges, unknown)
            for given in node_uses(node.kind).reads:
                self._operand(given.operand, ranges, unknown)

    def _operand(self, operand: object, ranges: IndexRanges, unknown: frozenset[str]) -> None:
        if isinstance(operand, ModelRef):
            if operand.formatted:
                self._add_matches(operand.name, _names_in(operand.name), ranges, unknown)
            else:
                self.found.add(operand.name)
            return
        variable = self._bound.vars.get(operand.base) if isinstance(operand, Access) else None
        if variable is not None and isinstance(variable.origin, FromPattern):
            assert isinstance(operand, Access)
            self._entry(variable, variable.origin.pattern, operand, ranges, unknown)

    def _entry(
        self, variable: BoundVar, pattern: str, access: Access, ranges: IndexRanges, unknown: frozenset[str]
    ) -> None:
        assert variable.decl is not None
        indices = variable.decl.table_indices
        exprs = [one.value for one in access.indices if isinstance(one, Single)]
        if len(exprs) != len(indices):  # the whole table, handed to a block
            self._add_matches(pattern, {}, {}, frozenset(indices))
            return
        self._add_matches(pattern, dict(zip(indices, exprs, strict=True)), ranges, unknown)

    def _add_matches(
        self, pattern: str, indices: Mapping[str, Expr], ranges: IndexRanges, unknown: frozenset[str]
    ) -> None:
        """Collect the tensors that a pattern names for all values of its indices."""
        has_unknown = any(set(names(one)) & unknown for one in indices.values()) or not indices
        values = None if has_unknown else values_of(indices.values(), ranges, self._sizes)
        if values is None:
            spelt = re.compile(re.sub(r"\\\{\w+\\\}", r"-?\\d+", re.escape(pattern)))
            self.found |= {name for name in self._known if spelt.fullmatch(name)}
            return
        for numbers in values:
            self.found.add(_filled(pattern, dict(zip(indices, numbers, strict=True))))


def _filled(pattern: str, values: Mapping[str, int]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: str(values.get(match[1], match[0])), pattern)


def _names_in(pattern: str) -> dict[str, Expr]:
    return {name: Ref(name) for name in re.findall(r"\{(\w+)\}", pattern)}
