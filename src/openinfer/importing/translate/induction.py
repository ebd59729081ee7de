"""Analyses what a loop carries: values that never change, and counters that follow from the iteration.

Exporters write ``for`` loops as ``while`` loops with a counter and a comparison, and carry weights from iteration to
iteration. The analysis recovers the trip count, and the weights become constants.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from openinfer.importing.differences import behind
from openinfer.importing.draft import DraftOperand, DraftValue, IndexOperand, KnownTensor, known
from openinfer.importing.emitter import Emitter
from openinfer.importing.onnx_model import OnnxGraph, OnnxNode, OnnxTensor
from openinfer.importing.translate.context import NodeContext
from openinfer.loops.dim import is_same, is_symbolic

_PASSING = frozenset({"Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape"})
"""Op types that keep the value of a single number."""


@dataclass(frozen=True)
class Counter:
    """A carried number that grows by a constant step per iteration."""

    start: int
    step: int


@dataclass(frozen=True)
class Induction:
    """Facts about the carried values, by position, and the trip count if they determine it."""

    kept: frozenset[int] = frozenset()
    """Values that never change."""
    unread: frozenset[int] = frozenset()
    """Values that no iteration reads: they only pass on what the last one computed."""
    counters: Mapping[int, Counter] = field(default_factory=dict)
    count: "int | DraftValue | None" = None


def induction(n: NodeContext, body: OnnxGraph, carried: list[DraftOperand], start: DraftOperand | None) -> Induction:
    """Analyse the values that a loop carries; ``start`` is the condition before the loop, if it is not known."""
    names = _BodyNames(n, body, carried)
    kept = frozenset(place for place in range(len(carried)) if names.is_kept(place))
    counters = {place: found for place in range(len(carried)) if (found := names.counter(place)) is not None}
    unread = names.unread(body)
    return Induction(kept, unread - kept, counters, _count(n.emit, names, counters, start))


def counted_value(emit: Emitter, counter: Counter, iteration: "IndexOperand | int", like: DraftOperand) -> DraftOperand:
    """The value of a counter in an iteration, with the type that it is carried with."""
    if isinstance(iteration, IndexOperand):
        found: DraftOperand = iteration
        if counter.step != 1:
            found = emit.op("mul", found, known(np.int64(counter.step)))
        if counter.start:
            found = emit.op("add", found, known(np.int64(counter.start)))
    else:
        total = np.empty((), object)
        total[()] = iteration * counter.step + counter.start
        found = known(total)
    return emit.reshape(emit.cast(found, like.dtype), like.shape)


class _BodyNames:
    """The names in a loop body and the nodes that compute them."""

    def __init__(self, n: NodeContext, body: OnnxGraph, carried: list[DraftOperand]) -> None:
        self._n = n
        self._carried = carried
        self._makers: dict[str, OnnxNode] = {name: node for node in body.nodes for name in node.outputs if name}
        self._tensors = body.tensors
        self._given = [info.name for info in body.inputs[2:]]
        self._results = [info.name for info in body.outputs[1:]]
        self.condition = body.outputs[0].name if body.outputs else ""

    def is_kept(self, place: int) -> bool:
        """Whether a value is passed on unchanged."""
        name = self._results[place]
        for _ in range(len(self._makers)):  # names may form a cycle in a damaged file
            maker = self._makers.get(name)
            if maker is None or maker.op != "Identity":
                break
            name = maker.inputs[0]
        return name == self._given[place]

    def unread(self, body: OnnxGraph) -> frozenset[int]:
        read = _names_read(body)
        return frozenset(place for place, name in enumerate(self._given) if name not in read)

    def source(self, name: str) -> str:
        """The name behind ops that keep the value of a single number."""
        for _ in range(len(self._makers) + 1):
            maker = self._makers.get(name)
            if maker is None or maker.domain or not maker.inputs:
                return name
            added = [one for one in maker.inputs if self._number(one) == 0] if maker.op == "Add" else []
            if maker.op in _PASSING:
                name = maker.inputs[0]
            elif added and len(maker.inputs) == 2:
                name = next((one for one in maker.inputs if one != added[0]), name)
            else:
                return name
        return name

    def operand(self, name: str) -> DraftOperand | None:
        """The value of a name that is the same in every iteration, else None."""
        name = self.source(name)
        maker = self._makers.get(name)
        if maker is not None:
            value = maker.attributes.get("value")
            return KnownTensor(value.dtype, value.array) if isinstance(value, OnnxTensor) else None
        if name in self._tensors:
            return KnownTensor(self._tensors[name].dtype, self._tensors[name].array)
        if name in self._given:
            place = self._given.index(name)
            return self._carried[place] if self.is_kept(place) else None
        return self._n.subgraphs.find(name)

    def _number(self, name: str) -> int | None:
        maker = self._makers.get(name)
        value = maker.attributes.get("value") if maker is not None and maker.op == "Constant" else None
        found = value if isinstance(value, OnnxTensor) else self._tensors.get(name)
        if found is None and maker is None and name not in self._given:
            outer = self._n.subgraphs.find(name)
            return _integer(outer) if isinstance(outer, KnownTensor) else None
        return None if found is None else _integer(KnownTensor(found.dtype, found.array))

    def counter(self, place: int) -> Counter | None:
        start = self._carried[place]
        maker = self._makers.get(self.source(self._results[place]))
        if maker is None or maker.op != "Add" or len(maker.inputs) != 2 or not isinstance(start, KnownTensor):
            return None
        first = _integer(start)
        for one, other in (maker.inputs, maker.inputs[::-1]):
            step = self._number(other)
            if first is not None and step is not None and step > 0 and self.source(one) == self._given[place]:
                return Counter(first, step)
        return None

    def limit(self, counters: Mapping[int, Counter]) -> tuple[Counter, DraftOperand] | None:
        """The counter that the condition compares after each iteration, and the limit."""
        maker = self._makers.get(self.source(self.condition))
        if maker is None or maker.op != "Less" or len(maker.inputs) != 2:
            return None
        left, other = self.source(maker.inputs[0]), self.operand(maker.inputs[1])
        for place, counter in counters.items():
            if left == self.source(self._results[place]) and other is not None:
                return counter, other
        return None


def _names_read(graph: OnnxGraph) -> set[str]:
    """All names that a graph reads, including its own results."""
    found = {info.name for info in graph.outputs}
    for node in graph.nodes:
        found.update(node.inputs)
        for value in node.attributes.values():
            if isinstance(value, OnnxGraph):
                found |= _names_read(value)
    return found


def _integer(tensor: KnownTensor) -> int | None:
    """The value of a tensor with one element, if it is whole."""
    if tensor.array.size != 1 or tensor.has_sizes:
        return None
    value = tensor.array.reshape(-1)[0]
    return int(value) if np.isfinite(value) and value == np.floor(value) else None


def _count(
    emit: Emitter, names: _BodyNames, counters: Mapping[int, Counter], start: DraftOperand | None
) -> "int | DraftValue | None":
    """The trip count, if the condition depends only on a counter and a limit."""
    found = names.limit(counters)
    if found is None:
        return None
    counter, limit = found
    if start is not None and not _is_same_comparison(emit, start, counter.start, limit):
        return None
    if isinstance(limit, KnownTensor) and limit.array.size == 1:
        last = limit.array.reshape(-1)[0]
        if is_symbolic(last):
            return last - counter.start if counter.step == 1 else None
        times = int(np.ceil((float(last) - counter.start) / counter.step))
        return max(times, 0 if start is not None else 1)
    if start is None or counter != Counter(0, 1) or limit.dtype.kind not in ("int", "uint"):
        return None
    return emit.value(emit.reshape(emit.cast(limit, known(np.int64(0)).dtype), ()))


def _is_same_comparison(emit: Emitter, cond: DraftOperand, first: int, limit: DraftOperand) -> bool:
    """Whether a condition compares ``first < limit``."""
    asked = emit.asked(behind(emit, cond))
    if asked is None or asked[0] != "lt":
        return False
    one, other = (None if given is None else behind(emit, given) for given in asked[1])
    wanted = behind(emit, limit)
    if not isinstance(one, KnownTensor) or _integer(one) != first:
        return False
    if isinstance(other, KnownTensor) and isinstance(wanted, KnownTensor):
        return other.array.size == wanted.array.size == 1 and is_same(
            other.array.reshape(-1)[0], wanted.array.reshape(-1)[0]
        )
    return other is wanted
