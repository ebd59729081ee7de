"""Dynamic sizes during lowering, and shapes over them."""

from collections.abc import Hashable, Mapping, Sequence

from openinfer.check.bound import BoundGraph, BoundVar
from openinfer.check.sizes import evaluate_evenly
from openinfer.check.typing import TOO_DEEP_ADVICE
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir import Index, Node
from openinfer.ir.expr import MAX_DEPTH, Ref, TooDeepError
from openinfer.loops.dim import Dim, expr_of, sizes_in

_DEEPEST = MAX_DEPTH - 20
"""The maximum depth of an extent's expression."""


class Shapes:
    """The sizes of a program: the graph's, and unnamed ones for lengths of slices."""

    def __init__(self, bound: BoundGraph) -> None:
        self._bound = bound
        self.sizes: dict[str, int] = dict(bound.bounds)
        """Dynamic sizes, with their bounds."""
        self._lengths: dict[int, dict[tuple[Index, Hashable], str]] = {}
        """The lengths of the slices that each node reads, by the slice as written and the extent it is taken of."""
        self._count = 0

    def size(self, name: str) -> int:
        """A size: a number, or a symbol whose value is known at run time."""
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

    def unnamed(self, node: Node, index: Index, of: Hashable, bound: int) -> int:
        """The length of a slice as an unnamed size.

        Identically written slices of one node share it if their ``of`` is equal: they are taken of axes with equal
        extents.
        """
        own = self._lengths.setdefault(node.index, {})
        if (index, of) not in own:
            own[index, of] = self._new(node.index, bound)
        return self.size(own[index, of])

    def joined_length(self, node: Node, bound: int) -> int:
        """An unnamed size to which several lengths are broadcast."""
        return self.size(self._new(node.index, bound))

    def lengths(self, node: Node) -> Mapping[str, Index]:
        """The sizes that are lengths of the slices a node reads, and the slices as written."""
        return {name: index for (index, _), name in self._lengths.get(node.index, {}).items()}

    def merge(self, node: Node, groups: Sequence[Sequence[str]]) -> Mapping[str, str]:
        """Merge the lengths in each group into one size; returns the node's new lengths by their old names."""
        own = self._lengths[node.index]
        first = {name: name for name in own.values()} | {name: group[0] for group in groups for name in group}
        bounds = {name: self.sizes.pop(name) for name in first}
        self._count -= len(first)
        kept = {name: self._new(node.index, bounds[name]) for name in first if first[name] == name}
        found = {name: kept[first[name]] for name in first}
        self._lengths[node.index] = {key: found[name] for key, name in own.items()}
        return found

    def renamed(self, shape: tuple[int, ...], names: Mapping[str, str]) -> tuple[int, ...]:
        """A shape with its lengths renamed; a length is always an extent by itself."""
        owns = [(one, min(sizes_in(one), default="")) for one in shape]
        return tuple(self.size(names[own]) if own in names else one for one, own in owns)

    def _new(self, node: int, bound: int) -> str:
        name = f"{self._count}_{node}"  # names of a graph's sizes never begin with a digit
        self._count += 1
        self.sizes[name] = int(bound)
        return name


def with_room(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, if its expressions leave passes room to build deeper ones on top."""
    if any(expr_of(extent).depth > _DEEPEST for extent in shape):
        message = f"the extent is an expression of more than {_DEEPEST} operators inside each other"
        raise TooDeepError(message)
    return shape
