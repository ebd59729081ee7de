"""Splits long bodies of nodes into columns, so that pictures fit a screen."""

from collections.abc import Callable, Sequence
from math import ceil, sqrt

from openinfer.ir.graph import Assign, Dep, Node

MOST_IN_ONE = 40
"""The most nodes of a body that stays in one column by default."""
_LEAST = 16
_NODES_OF_A_SQUARE = 1.3
"""The height of a column over its width, per node; a larger value gives fewer and longer columns."""


class ColumnRuler:
    """Computes the sizes of bodies, and their columns. A box is as long as its longest column."""

    def __init__(self, length: int | None, is_collapsed: Callable[[Node], bool]) -> None:
        self._length = length
        self._is_collapsed = is_collapsed
        self._sizes: dict[int, int] = {}

    def columns(self, nodes: Sequence[Node]) -> list[Sequence[Node]]:
        """Split a body into columns, at least one."""
        sizes = [self._size(node) for node in nodes]
        total = sum(sizes)
        length = self._longest(total)
        if not length or total <= length:
            return [nodes]
        wanted = ceil(total / ceil(total / length))
        found: list[Sequence[Node]] = []
        start, height = 0, 0
        for position, size in enumerate(sizes):
            if height and height + size > wanted:
                found.append(nodes[start:position])
                start, height = position, 0
            height += size
        return [*found, nodes[start:]]

    def _longest(self, total: int) -> int:
        if self._length is not None:
            return self._length
        return max(_LEAST, ceil(sqrt(total * _NODES_OF_A_SQUARE))) if total > MOST_IN_ONE else 0

    def _size(self, node: Node) -> int:
        if node.index not in self._sizes or node.index < 0:
            self._sizes[node.index] = self._measured(node)
        return self._sizes[node.index]

    def _measured(self, node: Node) -> int:
        if isinstance(node.kind, Assign | Dep):
            return 0
        if not node.body or self._is_collapsed(node):
            return 1
        total = sum(self._size(one) for one in node.body)
        return 1 + min(total, self._longest(total) or total)
