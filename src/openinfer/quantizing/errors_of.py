"""Measures how far an integer graph is from its float graph: layer by layer, and in its outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log10, sqrt
from typing import Any

import numpy as np

from openinfer.dtypes import Array
from openinfer.ir import Access
from openinfer.oinf.statistics import Advance
from openinfer.ops import apply
from openinfer.quantizing.analysis import Candidates
from openinfer.quantizing.calibrate import LoopPlace, Watcher, place_of, watch
from openinfer.quantizing.pipeline import IntegerGraph
from openinfer.quantizing.rewrite import Measured
from openinfer.quantizing.samples import Samples
from openinfer.quantizing.sites import QuantLayer
from openinfer.sim.executor import Executor
from openinfer.sim.views import ExecutionPoint

_Key = tuple[int, LoopPlace]
"""The node of a layer, and a place in its loops."""


@dataclass
class SignalError:
    """How far values are from the exact ones, accumulated over batches."""

    signal: float = 0.0
    noise: float = 0.0
    other: float = 0.0
    product: float = 0.0

    def add(self, exact: Array, found: Array) -> None:
        """Compare a batch; elements that are not finite on either side are skipped."""
        one, two = (np.asarray(array, np.float64).reshape(-1) for array in (exact, found))
        both = np.isfinite(one) & np.isfinite(two)
        one, two = one[both], two[both]
        self.signal += float(one @ one)
        self.other += float(two @ two)
        self.product += float(one @ two)
        self.noise += float(((one - two) ** 2).sum())

    def join(self, other: "SignalError") -> None:
        """Add the sums of another error."""
        self.signal += other.signal
        self.noise += other.noise
        self.other += other.other
        self.product += other.product

    @property
    def decibels(self) -> float:
        """The signal-to-noise ratio."""
        if self.noise == 0:
            return inf
        return 10 * log10(self.signal / self.noise) if self.signal else -inf

    @property
    def cosine(self) -> float:
        """The cosine of the angle between both, as vectors."""
        if self.signal == 0 or self.other == 0:
            return 1.0 if self.signal == self.other else 0.0
        return self.product / sqrt(self.signal * self.other)


@dataclass(frozen=True)
class LayerError:
    """The effect of quantization on a layer.

    ``alone``: its operands and weights are rounded, everything before it exact. ``together``: as in the integer graph.
    """

    label: str
    op: str
    node: int
    alone: SignalError
    together: SignalError
    smoothing: float = 0.0
    """How much of the outliers of its operand its weights have absorbed."""

    def facts(self) -> dict[str, Any]:
        """The error as plain values."""
        return {
            "layer": self.label,
            "op": self.op,
            "node": self.node,
            "alone_db": finite(self.alone.decibels),
            "db": finite(self.together.decibels),
            "cosine": self.together.cosine,
            "smoothing": self.smoothing,
        }


def finite(value: float) -> float | None:
    """A number that JSON can represent; None for infinity, which means no error."""
    return value if abs(value) != inf else None


@dataclass
class _Comparison:
    candidates: Candidates
    found: IntegerGraph
    alone: dict[_Key, SignalError] = field(default_factory=dict)
    together: dict[_Key, SignalError] = field(default_factory=dict)
    exact: dict[_Key, list[Array]] = field(default_factory=dict)

    def of_floats(self) -> Watcher:
        """Watches the float graph: the results of layers, and what they would be with rounded operands."""
        layers, measured = self.found.analysis.layers, {}
        for one in self.found.rewritten.measured:
            measured[one.float_node] = one
        rounded: dict[int, Array] = {}

        def before(node: int, point: ExecutionPoint) -> None:
            if node in layers:
                rounded[node] = self._rounded(layers[node], point)

        def after(node: int, indices: Mapping[str, int], results: Mapping[str, Array]) -> None:
            if node in rounded:
                layer, name = layers[node], self.candidates.kind(node).outputs[0].base
                key = node, place_of(layer.path, indices)
                self.alone.setdefault(key, SignalError()).add(results[name], rounded.pop(node))
            if node in measured:
                one = measured[node]
                key = one.layer.node, place_of(one.layer.path, indices)
                self.exact.setdefault(key, []).append(results[one.float_name])

        return Watcher({*layers, *measured}, before, after)

    def _rounded(self, layer: QuantLayer, point: ExecutionPoint) -> Array:
        own = self.candidates.op(layer.node)
        assert own is not None
        assert own.call is not None
        arrays = [point.read(one) if isinstance(one, Access) else None for one in own.operands]
        for slot, site in enumerate(layer.sites):
            group = self.found.analysis.group_of[site]
            codes = self.found.codes[group.number, place_of(group.path, point.indices)]
            value = arrays[slot]
            assert value is not None
            arrays[slot] = codes.rounded(value)
        if layer.weights is not None:
            entry = self.found.stored.entry(layer.weights, point.indices)
            arrays[layer.weight_slot] = self.found.stored.rounded(entry, layer.axis)
        while arrays and arrays[-1] is None:
            arrays.pop()
        given = {name: value for name, value in own.call.params.items() if value is not None}
        result: Array = apply(own.record.name, *arrays, **given)
        return result

    def of_integers(self) -> Watcher:
        """Watches the integer graph: compares the results of its layers with the exact ones of the same step."""
        by_token = self.found.rewritten.written.by_token
        measured = {by_token[one.token]: one for one in self.found.rewritten.measured}
        turns: dict[_Key, int] = {}

        def after(node: int, indices: Mapping[str, int], results: Mapping[str, Array]) -> None:
            one = measured[node]
            key = one.layer.node, place_of(one.layer.path, indices)
            turn = turns[key] = turns.get(key, -1) + 1
            if turn < len(self.exact.get(key, ())):
                value = self._numbers(one, results[one.name], indices)
                self.together.setdefault(key, SignalError()).add(self.exact[key][turn], value)

        return Watcher(measured, lambda _node, _point: None, after)

    def _numbers(self, one: Measured, value: Array, indices: Mapping[str, int]) -> Array:
        if one.group is None:
            return value
        return self.found.codes[one.group.number, place_of(one.group.path, indices)].real(value)


def layer_errors(
    candidates: Candidates,
    found: IntegerGraph,
    executors: tuple[Executor, Executor],
    samples: Samples,
    advance: Advance,
) -> list[LayerError]:
    """Run the float and the integer graph side by side and compare the results of their layers."""
    comparison = _Comparison(candidates, found)
    for sample in samples:
        comparison.exact.clear()
        watch(executors[0], sample, comparison.of_floats())
        watch(executors[1], sample, comparison.of_integers())
        advance(1)
    layers = found.analysis.layers
    return [
        LayerError(
            _label(layers[node], place),
            layers[node].op,
            node,
            alone,
            comparison.together[node, place],
            _smoothing(found, layers[node], place),
        )
        for (node, place), alone in sorted(comparison.alone.items())
        if (node, place) in comparison.together
    ]


def _smoothing(found: IntegerGraph, layer: QuantLayer, place: LoopPlace) -> float:
    for site in layer.sites:
        group = found.analysis.group_of[site]
        smoothing = found.codes[group.number, place[: len(group.path)]].smoothing
        if smoothing is not None:
            return smoothing.strength
    return 0.0


def _label(layer: QuantLayer, place: LoopPlace) -> str:
    indices = ", ".join(f"{name}={value}" for name, value in zip(layer.path, place, strict=True))
    return f"{layer.label}[{indices}]" if indices else layer.label
