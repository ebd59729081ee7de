"""Finds who else uses the weights and biases of a layer: those used nowhere else become codes in place."""

from collections import defaultdict
from collections.abc import Mapping

from openinfer.check.bound import BoundGraph
from openinfer.ir import Access, Single
from openinfer.ir.expr import Ref
from openinfer.ir.uses import node_uses
from openinfer.quantizing.sites import QuantLayer
from openinfer.quantizing.stored import StoredWeights


class Sharing:
    """The uses of stored tensors in a graph."""

    def __init__(
        self, bound: BoundGraph, layers: Mapping[int, QuantLayer], stored: StoredWeights, *, weights_only: bool
    ) -> None:
        self._layers = layers
        self._weights_only = weights_only
        self._users: dict[str, list[int]] = defaultdict(list)
        for node in bound.source.walk():
            for given in node_uses(node.kind).reads:
                if isinstance(given.operand, Access):
                    self._users[given.operand.base].append(node.index)
        linked: dict[str, set[str]] = defaultdict(set)
        for name, variable in bound.vars.items():
            for entry in stored.entries(name) if variable.decl is not None else ():
                linked[entry].add(name)
        self._aliased = {name for names in linked.values() if len(names) > 1 for name in names}

    def is_weights_only(self, layer: QuantLayer) -> bool:
        """Whether all readers of a layer's weights are layers that take them as codes along the same axis."""
        assert layer.weights is not None
        name = layer.weights.base
        others = [self._layers.get(node) for node in self._users[name]]
        return name not in self._aliased and all(
            other is not None
            and other.weights is not None
            and other.weights.base == name
            and other.axis == layer.axis
            and (other.bias is None or other.bias.base != name)
            for other in others
        )

    def is_read_as_numbers(self, layer: QuantLayer) -> bool:
        """Whether floats are computed with a layer's weights: a table lookup, or every layer in weights-only mode."""
        assert layer.weights is not None
        users = (self._layers.get(node) for node in self._users[layer.weights.base])
        return self._weights_only or any(user is not None and user.is_in_floats for user in users)

    def is_own(self, layer: QuantLayer, stored: Access) -> bool:
        """Whether a weight or bias is read by its layer alone, with an entry for each iteration of the layer loops."""
        indices = tuple(Single(Ref(index)) for index in layer.path)
        is_read_once = self._users[stored.base] == [layer.node]
        return stored.base not in self._aliased and is_read_once and stored.indices == indices
