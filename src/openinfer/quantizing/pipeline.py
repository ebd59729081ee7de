"""From a float graph and its model to an integer graph and its model, stage by stage."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openinfer.check import bind
from openinfer.check.bound import BoundGraph, FromModel, FromPattern
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir import Graph, ModelRef
from openinfer.ir.uses import node_uses
from openinfer.oinf.model import ModelLoader
from openinfer.oinf.statistics import Advance
from openinfer.quantizing.analysis import AnalysisOptions, Candidates, analysed
from openinfer.quantizing.calibrate import Calibration, LoopPlace, calibrated, codes_of, unreached
from openinfer.quantizing.constants import Constants
from openinfer.quantizing.declarations import NewDeclarations
from openinfer.quantizing.products import MOST_BIAS
from openinfer.quantizing.ranges import Codes, Observer
from openinfer.quantizing.rewrite import Rewritten, rewritten
from openinfer.quantizing.samples import Samples
from openinfer.quantizing.sharing import Sharing
from openinfer.quantizing.sites import Analysis, QuantLayer
from openinfer.quantizing.smoothing import smoothable, smoothed
from openinfer.quantizing.stored import StoredWeights
from openinfer.sim import Simulator, TraceLevel


@dataclass(frozen=True)
class IntegerGraph:
    """An integer graph, the tensors of its model, and all decisions behind it."""

    analysis: Analysis
    codes: Mapping[tuple[int, LoopPlace], Codes]
    stored: StoredWeights
    rewritten: Rewritten
    tensors: Mapping[str, Any]
    """The tensors of the model by name, new and kept."""

    @property
    def graph(self) -> Graph:
        """The graph itself."""
        return self.rewritten.written.graph


@dataclass(frozen=True)
class QuantizeOptions:
    """The caller's choices."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    observer: Observer = field(default_factory=Observer)
    is_smoothing: bool = True
    """Whether outliers may move into weights."""
    analysis: AnalysisOptions = field(default_factory=AnalysisOptions)


def integer_graph(
    bound: BoundGraph, samples: Samples | None, options: QuantizeOptions, advance: Advance
) -> IntegerGraph:
    """Quantize a float graph: decide, run the samples, choose scales, rewrite."""
    seen = _observed(bound, samples, options, advance)
    declarations = NewDeclarations(bound, seen.stored)
    constants = Constants(seen.codes, seen.calibration, declarations)
    sharing = Sharing(bound, seen.analysis.layers, seen.stored, weights_only=options.analysis.weights_only)
    found = rewritten(Candidates(bound, options.analysis), seen.analysis, constants, declarations, sharing)
    tensors = _tensors(found.written.graph, bound, declarations)
    return IntegerGraph(seen.analysis, seen.codes, seen.stored, found, tensors)


@dataclass(frozen=True)
class _Observed:
    """The layers, what was observed of their values, and the codes chosen for values and weights."""

    analysis: Analysis
    calibration: Calibration
    codes: Mapping[tuple[int, LoopPlace], Codes]
    stored: StoredWeights


def _observed(bound: BoundGraph, samples: Samples | None, options: QuantizeOptions, advance: Advance) -> _Observed:
    chosen = options.analysis
    while True:
        analysis = analysed(bound, chosen)
        if not analysis.layers:
            raise _nothing(analysis)
        if samples is None or chosen.weights_only:
            return _Observed(analysis, Calibration(), {}, StoredWeights(bound))
        executor = simulator_of(bound, options.sizes).make_executor(bound.source)
        by_channel = _smoothable(bound, analysis, options)
        calibration = calibrated(executor, analysis, by_channel, samples, advance)
        missing = {layer.node: "no sample reaches it" for layer in unreached(analysis, calibration)}
        if not missing:
            found = _scaled(bound, analysis, calibration, by_channel, options.observer)
            missing = dict.fromkeys(_large_biases(found), "its bias is too large for its scales")
        if not missing:
            return found
        chosen = chosen.without(missing)


def _smoothable(bound: BoundGraph, analysis: Analysis, options: QuantizeOptions) -> dict[int, tuple[QuantLayer, ...]]:
    if not options.is_smoothing:
        return {}
    sharing = Sharing(bound, analysis.layers, StoredWeights(bound), weights_only=False)
    return smoothable(Candidates(bound, options.analysis), analysis, sharing)


def _scaled(
    bound: BoundGraph,
    analysis: Analysis,
    calibration: Calibration,
    by_channel: Mapping[int, tuple[QuantLayer, ...]],
    observer: Observer,
) -> _Observed:
    """Codes of all values and weights, as the observer chooses them or smoothed."""
    plain = codes_of(analysis, calibration, observer)
    symmetric = {group.number: group.is_symmetric for group in analysis.groups}
    codes, matrices = smoothed(by_channel, calibration, plain, StoredWeights(bound), symmetric)
    return _Observed(analysis, calibration, {**plain, **codes}, StoredWeights(bound, matrices))


def _large_biases(found: _Observed) -> Iterator[int]:
    """Layers whose biases have too many steps of their sums."""
    analysis, codes, stored = found.analysis, found.codes, found.stored
    for layer in analysis.layers.values():
        if layer.bias is None or layer.weights is None or layer.is_in_floats:
            continue
        group = analysis.group_of[layer.sites[0]]
        entries = zip(stored.entries(layer.bias.base), stored.entries(layer.weights.base), strict=False)
        least = min(one.scale for (number, _), one in codes.items() if number == group.number)
        for bias, weights in entries:
            units = stored.codes(weights, layer.axis).scales.astype(np.float64) * least
            steps = stored.array(bias).reshape(-1, units.size) / units
            if np.abs(steps).max(initial=0) >= MOST_BIAS:
                yield layer.node
                break


def simulator_of(bound: BoundGraph, sizes: Mapping[str, int]) -> Simulator:
    """A simulator of the model that a graph is bound to; it records no trace."""
    return Simulator(bound.model, sizes=sizes).with_trace(TraceLevel.OFF)


def _nothing(analysis: Analysis) -> GraphError:
    notes = tuple(f"{one.op} {one.label}: {one.reason}" for one in analysis.floats[:10])
    message = "there is nothing to quantize: no layer with stored weights in f32"
    return GraphError(Diagnostic(Code.NOTHING_TO_QUANTIZE, message, notes=notes))


def _tensors(graph: Graph, bound: BoundGraph, declarations: NewDeclarations) -> dict[str, Any]:
    """The tensors of an integer graph's model: new ones, and those of the float model that it still names."""
    model = bound.model
    assert model is not None
    named: set[str] = set()
    for name in graph.vars:
        origin = bound.vars[name].origin if name in bound.vars else None
        if isinstance(origin, FromModel | FromPattern):
            named |= set(declarations.stored.entries(name))
    for node in graph.walk():
        for given in node_uses(node.kind).reads:
            if isinstance(given.operand, ModelRef):
                named |= set(declarations.stored.spelled(given.operand))
    kept = {
        name: tensor_of(model, name) for name in model.tensors if name in named and name not in declarations.tensors
    }
    return kept | declarations.tensors


def tensor_of(model: ModelLoader, name: str) -> Any:
    """A tensor of a model in a form that can be written again."""
    from openinfer.oinf.authoring import TensorSpec, UninitializedTensor

    info = model.tensors[name]
    if not info.has_data:
        return UninitializedTensor(info.dtype.name, info.shape)
    tensor = model.load(name)
    return tensor if info.quant is None else TensorSpec(tensor.to_numpy(), dtype=info.dtype.name, quant=info.quant)


def bound_graph(graph: Graph, model: ModelLoader, sizes: Mapping[str, int]) -> BoundGraph:
    """Bind a graph to its model."""
    return bind(graph, model, sizes)
