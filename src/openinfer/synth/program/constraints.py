"""Constraints in the graph's source on which nodes passes may fuse, move or drop."""

from collections.abc import Iterable, Mapping, Sequence

from openinfer.ir import Block, Dep
from openinfer.ir.graph import walk
from openinfer.ir.rules import node_name
from openinfer.ir.values import AttrValue, BoolValue
from openinfer.synth.program.ir import Program
from openinfer.synth.program.refusal import Refusal

_NO, _YES = BoolValue(value=False), BoolValue(value=True)
_NOTHING: Mapping[str, AttrValue] = {}


class ProgramConstraints:
    """The constraints of each node (its own, else its block's), and the order that ``dep`` imposes."""

    def __init__(self, program: Program) -> None:
        self._said: dict[int, Mapping[str, AttrValue]] = {}
        self._deps: set[tuple[int, int]] = set()
        for block in program.bound.graph.blocks.values():
            for node in walk(block.nodes):
                is_free = not block.constraints and not node.constraints
                self._said[node.index] = _NOTHING if is_free else {**block.constraints, **node.constraints}
            self._deps |= set(_deps(block))
        self._ordered = {node for pair in self._deps for node in pair}
        self._after: dict[int, list[int]] = {}
        for one, other in self._deps:
            self._after.setdefault(one, []).append(other)

    def refusal(self, one: int, other: int) -> Refusal | None:
        """Why the graph forbids fusing two nodes; None if it does not."""
        if one not in self._said or other not in self._said:
            return None
        for node in (one, other):
            if self._said[node].get("fuse") == _NO:
                return Refusal("node {} says fuse = false", (node,))
            if self.must_stay(node):
                return Refusal("node {} says no_reorder = true", (node,))
        if self._said[one].get("group") != self._said[other].get("group"):
            return Refusal("the nodes are in different groups")
        if self._said[one].get("placement") != self._said[other].get("placement"):
            return Refusal("the nodes are placed differently")
        if (one, other) in self._deps or (other, one) in self._deps:
            return Refusal("a dep keeps them apart")
        return None

    def joined_refusal(self, nodes: Sequence[int], others: Sequence[int]) -> Refusal | None:
        """Why the graph forbids fusing kernels that compute these nodes; None if it does not."""
        if not any(self._said.get(node) or node in self._ordered for node in (*nodes, *others)):
            return None
        refusals = (self.refusal(one, other) for one in nodes for other in others)
        return next((refusal for refusal in refusals if refusal is not None), None)

    def after(self, node: int) -> Sequence[int]:
        """The nodes that a dep orders after this one."""
        return self._after.get(node, ())

    def must_stay(self, node: int) -> bool:
        """Whether nothing may move past a node."""
        return node in self._said and self._said[node].get("no_reorder") == _YES

    def allows_winograd(self, node: int, usual: bool) -> bool:  # noqa: FBT001  (the default)
        """Whether a convolution may use Winograd's algorithm: the node's own constraint, else ``usual``."""
        said = self._said.get(node, _NOTHING).get("winograd")
        return said == _YES or (said is None and usual)

    def is_bound(self, node: int) -> bool:
        """Whether a node must stay a kernel in place: a dep, ``fuse = false`` or ``no_reorder`` requires it."""
        return node in self._ordered or self.must_stay(node) or self._said.get(node, {}).get("fuse") == _NO


def _deps(block: Block) -> Iterable[tuple[int, int]]:
    """The pairs of nodes that deps order: the nearest named ``after`` above, the nearest named ``before`` below."""
    latest: dict[str, int] = {}
    asked: dict[str, list[int]] = {}
    for node in walk(block.nodes):
        name = node_name(node)
        if name is not None:
            yield from ((earlier, node.index) for earlier in asked.pop(name, ()))
            latest[name] = node.index
        if isinstance(node.kind, Dep) and node.kind.after in latest:
            asked.setdefault(node.kind.before, []).append(latest[node.kind.after])
