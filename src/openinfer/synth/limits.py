"""What a graph itself says about which nodes passes may join, move or leave out."""

from openinfer.ir import Dep
from openinfer.ir.rules import node_name
from openinfer.ir.values import BoolValue
from openinfer.synth.program import Program


class Limits:
    """What the graph itself says about joining nodes: ``fuse``, ``group``, ``no_reorder``, ``dep``."""

    def __init__(self, program: Program) -> None:
        self._nodes = {node.index: node for node in program.bound.graph.walk()}
        self._deps: set[tuple[int, int]] = set()
        for block in program.bound.graph.blocks.values():
            for position, node in enumerate(block.nodes):
                if isinstance(node.kind, Dep):
                    earlier = [one.index for one in block.nodes[:position] if node_name(one) == node.kind.after]
                    later = [one.index for one in block.nodes[position:] if node_name(one) == node.kind.before]
                    if earlier and later:
                        self._deps.add((earlier[-1], later[0]))

    def refusal(self, one: int, other: int) -> str | None:
        """Why two nodes may not become one kernel, if the graph says so."""
        first, second = self._nodes.get(one), self._nodes.get(other)
        if first is None or second is None:
            return None
        for node in (first, second):
            if node.constraints.get("fuse") == BoolValue(value=False):
                return f"node {node.index} says fuse = false"
            if node.constraints.get("no_reorder") == BoolValue(value=True):
                return f"node {node.index} says no_reorder = true"
        if first.constraints.get("group") != second.constraints.get("group"):
            return "the nodes are in different groups"
        if first.constraints.get("placement") != second.constraints.get("placement"):
            return "the nodes are placed differently"
        if (one, other) in self._deps or (other, one) in self._deps:
            return "a dep keeps them apart"
        return None

    def must_stay(self, node: int) -> bool:
        """Whether nothing may be moved past a node."""
        found = self._nodes.get(node)
        return found is not None and found.constraints.get("no_reorder") == BoolValue(value=True)
