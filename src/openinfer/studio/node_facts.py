"""The panel of a node: its text, its op, and its operands with statistics and histograms."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from openinfer.check.bound import BoundGraph, FromModel, FromPattern
from openinfer.check.type_texts import bound_type_text
from openinfer.errors import OpenInferError
from openinfer.ir import Access, Literal, Node, Op, Operand, Single
from openinfer.ir.expr import Num
from openinfer.ir.text import node_head
from openinfer.ir.uses import node_uses
from openinfer.ops import OPS
from openinfer.ops.catalogue import op_facts
from openinfer.sim import Simulator
from openinfer.sim.executor import Executor
from openinfer.studio.document import CheckedText
from openinfer.studio.values import value_facts


class Inspector:
    """Inspects nodes and weights of a checked text. Weights are read on first use."""

    def __init__(self, checked: CheckedText) -> None:
        self._checked = checked
        self._nodes: dict[int, tuple[str, Node]] = {}
        for name, block in checked.graph.blocks.items() if checked.graph is not None else ():
            todo = list(block.nodes)
            while todo:
                node = todo.pop()
                self._nodes[node.index] = (name, node)
                todo += node.body
        self._executor: Executor | None = None

    def node(self, index: int) -> dict[str, Any] | None:
        """A node as plain values, or None if there is no such node."""
        if index not in self._nodes:
            return None
        block, node = self._nodes[index]
        record = OPS.get(node.kind.op) if isinstance(node.kind, Op) else None
        return {
            "index": index,
            "block": block,
            "text": node_head(node),
            "place": None if node.span is None else node.span.facts(),
            "op": None if record is None else op_facts(record),
            "constraints": {name: str(value) for name, value in node.constraints.items()},
            "operands": [*self._operands(block, node)],
        }

    def _operands(self, block: str, node: Node) -> Iterator[dict[str, Any]]:
        uses = node_uses(node.kind)
        record = OPS.get(node.kind.op) if isinstance(node.kind, Op) else None
        names = [one.name for one in record.signature.inputs] if record is not None else []
        for position, one in enumerate(uses.reads):
            role = one.name or (names[position] if position < len(names) else "")
            yield {"role": role, "is_result": False, **self._operand(block, one.operand)}
        for access in uses.writes:
            yield {"role": "", "is_result": True, **self._operand(block, access)}

    def _operand(self, block: str, operand: Operand) -> dict[str, Any]:
        bound = self._checked.bound
        if isinstance(operand, Literal) or bound is None:
            return {"text": str(operand), "type": None, "kind": None, "is_weight": False}
        if not isinstance(operand, Access):
            return {"text": str(operand), "type": None, "kind": "model", "is_weight": False}
        name = _known(bound, block, operand.base)
        if name is None:
            return {"text": str(operand), "type": None, "kind": "index", "is_weight": False}
        variable = bound.vars[name]
        return {
            "text": str(operand),
            "type": bound_type_text(variable, bound),
            "kind": "temporary" if variable.is_temporary else variable.kind.value,
            "is_weight": isinstance(variable.origin, FromModel | FromPattern),
        }

    def weight(self, text: str, lead: list[int]) -> dict[str, Any]:
        """A weight in full; for a family of tensors indexed by a loop, the first one."""
        bound = self._checked.require_bound()
        if self._executor is None:
            given = self._checked.surroundings
            simulator = Simulator(given.model, sizes=given.sizes, strict=given.strict)
            self._executor = simulator.with_trace("off").make_executor(bound.source)
        from openinfer.sim.views import parsed

        access = parsed(text)
        try:
            value = self._executor.place.read(access)
        except OpenInferError:
            first = tuple(Single(Num(0)) if isinstance(one, Single) else one for one in access.indices)
            access = replace(access, indices=first)
            value = self._executor.place.read(access)
        return {"name": str(access), **value_facts(value, bound.vars[access.base].dtype.name, lead)}


def _known(bound: BoundGraph, block: str, name: str) -> str | None:
    """The name of a block's variable in a bound graph, or None."""
    own = f"{block}.{name}"
    return own if own in bound.vars else name if name in bound.vars else None
