"""The current point in the graph during lowering: the node, its enclosing loops, and the values of names there."""

from itertools import product
from math import prod

from openinfer.check.access import static_value
from openinfer.check.bound import BoundGraph
from openinfer.check.indices import Around

_MOST_ITERATIONS = 4096
"""The most loop iterations to enumerate in order to see which entries are written."""


class LoweringPlace:
    """The position of the node that is being lowered."""

    def __init__(self, bound: BoundGraph) -> None:
        self._bound = bound
        self.node = -1
        """The node, or -1 for none."""
        self.loops: Around = ()
        """The enclosing loops, outermost first."""

    def is_index(self, name: str) -> bool:
        """Whether a name is the index of an enclosing loop."""
        return any(loop.index == name for loop in self.loops)

    def static(self, name: str) -> int | None:
        """The value of a name in an index, if it is statically known."""
        if self.is_index(name):
            return None  # the index shadows a size or constant of the same name
        if name in self._bound.vars:
            found = self._bound.constants.get(name)
            return found if isinstance(found, int) else None
        return self._bound.sizes.get(name)

    def iterations(self, loops: Around) -> list[dict[str, int]] | None:
        """The index values of each iteration of nested loops; None if bounds are dynamic or iterations too many."""
        bounds = [(static_value(one.start, self.static), static_value(one.end, self.static)) for one in loops]
        ranges = [range(start, end) for start, end in bounds if start is not None and end is not None]
        if len(ranges) < len(bounds) or prod(map(len, ranges)) > _MOST_ITERATIONS:
            return None
        return [dict(zip((loop.index for loop in loops), iteration, strict=True)) for iteration in product(*ranges)]
