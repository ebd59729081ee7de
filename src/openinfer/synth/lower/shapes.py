"""Dynamic sizes while a graph is lowered, and shapes over them."""

from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.check.sizes import evaluate_evenly
from openinfer.check.typing import TOO_DEEP_ADVICE
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir import Index, Node
from openinfer.ir.expr import MAX_DEPTH, Ref, TooDeepError
from openinfer.loops.dim import Dim, expr_of

_DEEPEST = MAX_DEPTH - 20
"""How deep the expression of an extent may be."""


class Shapes:
    """The sizes of a program. Slices whose lengths are no sizes of the graph add some of their own."""

    def __init__(self, bound: BoundGraph) -> None:
        self._bound = bound
        self.sizes: dict[str, int] = dict(bound.bounds)
        """Dynamic sizes, with their bounds."""
        self._lengths: dict[tuple[int, Index], str] = {}

    def size(self, name: str) -> int:
        """A size: a number, or a symbol that is known when the code runs."""
        if name in self.sizes:
            return Dim(self.sizes[name], Ref(name))
        return self._bound.sizes[name]

    def of(self, variable: BoundVar) -> tuple[int, ...]:
        """The shape of a variable."""
        if variable.dims is None:
            return variable.shape
        try:
            return with_room(tuple(evaluate_evenly(dim, {}, self.size) for dim in variable.dims))
        except TooDeepError as error:
            place = None if variable.decl is None else variable.decl.span
            message = f"a dimension of {variable.name!r}: {error}"
            raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, place, TOO_DEEP_ADVICE)) from error

    def unnamed(self, node: Node, index: Index, bound: int) -> int:
        """The length of a slice as a size without a name; slices of one node that are written alike are as long."""
        key = (node.index, index)
        if key not in self._lengths:
            # No size of a graph begins with a digit.
            self._lengths[key] = f"{len(self._lengths)}_{node.index}"
            self.sizes[self._lengths[key]] = int(bound)
        return self.size(self._lengths[key])


def with_room(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape whose extents passes can compute with: what they make of them is deeper."""
    if any(expr_of(extent).depth > _DEEPEST for extent in shape):
        message = f"the extent is an expression of more than {_DEEPEST} operators inside each other"
        raise TooDeepError(message)
    return shape
