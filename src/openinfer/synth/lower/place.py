"""The point in a graph that is being lowered: the node, the loops around it, and the values of names there."""

from itertools import product
from math import prod

from openinfer.check.access import static_value
from openinfer.check.bound import BoundGraph
from openinfer.check.indices import Around

_MOST_TURNS = 4096
"""How many loop iterations are followed to see which entries are written."""


class LoweringPlace:
    """The position of the node that is being lowered."""

    def __init__(self, bound: BoundGraph) -> None:
        self._bound = bound
        self.node = -1
        """The node; -1 stands for no node."""
        self.loops: Around = ()
        """The loops around it, outermost first."""

    def is_index(self, name: str) -> bool:
        """Whether a name is that of a loop's index."""
        return any(loop.index == name for loop in self.loops)

    def static(self, name: str) -> int | None:
        """The value of a name in an index, where that is known before anything runs."""
        if self.is_index(name):
            return None  # the index hides a size or constant of its name
        if name in self._bound.vars:
            found = self._bound.constants.get(name)
            return found if isinstance(found, int) else None
        return self._bound.sizes.get(name)

    def turns(self, loops: Around) -> list[dict[str, int]] | None:
        """The indices of nested loops, iteration by iteration, if all bounds are static and there are not too many."""
        bounds = [(static_value(one.start, self.static), static_value(one.end, self.static)) for one in loops]
        ranges = [range(start, end) for start, end in bounds if start is not None and end is not None]
        if len(ranges) < len(bounds) or prod(map(len, ranges)) > _MOST_TURNS:
            return None
        return [dict(zip((loop.index for loop in loops), turn, strict=True)) for turn in product(*ranges)]
