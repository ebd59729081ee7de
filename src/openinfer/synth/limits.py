"""What a graph itself says about which nodes passes may join, move or leave out."""

from collections.abc import Iterable, Mapping

from openinfer.ir import Block, Dep
from openinfer.ir.graph import walk
from openinfer.ir.rules import node_name
from openinfer.ir.values import AttrValue, BoolValue
from openinfer.synth.program import Program

_NO, _YES = BoolValue(value=False), BoolValue(value=True)


class Limits:
    """The constraints on nodes (their own, else those of their block), and the order that ``dep`` asks for."""

    def __init__(self, program: Program) -> None:
        self._said: dict[int, Mapping[str, AttrValue]] = {}
        self._deps: set[tuple[int, int]] = set()
        for block in program.bound.graph.blocks.values():
            for node in walk(block.nodes):
                self._said[node.index] = {**block.constraints, **node.constraints}
            self._deps |= set(_deps(block))
        self._ordered = {node for pair in self._deps for node in pair}

    def refusal(self, one: int, other: int) -> str | None:
        """Why two nodes may not become one kernel, if the graph says so."""
        if one not in self._said or other not in self._said:
            return None
        for node in (one, other):
            if self._said[node].get("fuse") == _NO:
                return f"node {node} says fuse = false"
            if self.must_stay(node):
                return f"node {node} says no_reorder = true"
        if self._said[one].get("group") != self._said[other].get("group"):
            return "the nodes are in different groups"
        if self._said[one].get("placement") != self._said[other].get("placement"):
            return "the nodes are placed differently"
        if (one, other) in self._deps or (other, one) in self._deps:
            return "a dep keeps them apart"
        return None

    def moved_refusal(self, nodes: Iterable[int], past: Iterable[int]) -> str | None:
        """Why nodes may not be computed only after others that they stand before, if the graph says so."""
        others = list(past)
        for other in others:
            if self.must_stay(other):
                return f"node {other}, which lies between them, says no_reorder = true"
        for one in nodes:
            for other in others:
                if (one, other) in self._deps:
                    return f"a dep keeps node {one} before node {other}"
        return None

    def must_stay(self, node: int) -> bool:
        """Whether nothing may be moved past a node."""
        return node in self._said and self._said[node].get("no_reorder") == _YES

    def is_bound(self, node: int) -> bool:
        """Whether a node must be a kernel where it stands: a dep, ``fuse = false`` or ``no_reorder`` says so."""
        return node in self._ordered or self.must_stay(node) or self._said.get(node, {}).get("fuse") == _NO


def _deps(block: Block) -> Iterable[tuple[int, int]]:
    """For each dep the two nodes it orders: the nearest before it with the one name, after it with the other."""
    nodes = list(walk(block.nodes))
    for position, node in enumerate(nodes):
        if isinstance(node.kind, Dep):
            earlier = [one.index for one in nodes[:position] if node_name(one) == node.kind.after]
            later = [one.index for one in nodes[position:] if node_name(one) == node.kind.before]
            if earlier and later:
                yield earlier[-1], later[0]
