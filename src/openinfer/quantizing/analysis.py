"""Decides which layers of a graph become integer arithmetic, and which values between them exist only as codes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from openinfer.check.bound import BoundGraph, BoundOp, BoundVar, FromModel, FromPattern
from openinfer.dtypes import DTYPES
from openinfer.ir import Access, Graph, Loop, MemoryKind, Op, Single, walk
from openinfer.ir.expr import names
from openinfer.ir.uses import node_uses
from openinfer.loops.dim import is_symbolic
from openinfer.quantizing import kinds
from openinfer.quantizing.dataflow import Dataflow, dataflow
from openinfer.quantizing.groups import grouped
from openinfer.quantizing.sites import Analysis, CodeDefinition, CodeSite, FloatLayer, QuantLayer

F32 = DTYPES["f32"]
KEPT = "it is kept"
_WEIGHT_KINDS = (MemoryKind.CONSTANT, MemoryKind.VOLATILE)


@dataclass(frozen=True)
class AnalysisOptions:
    """The caller's choices about layers."""

    keep: tuple[str, ...] = ()
    is_symmetric: bool = False
    weights_only: bool = False
    excluded: Mapping[int, str] = field(default_factory=dict)
    """Nodes that turned out not to be layers, with the reason."""

    def without(self, nodes: Mapping[int, str]) -> "AnalysisOptions":
        """The same options, with more nodes that stay in floats."""
        return replace(self, excluded={**self.excluded, **nodes})


def analysed(bound: BoundGraph, options: AnalysisOptions) -> Analysis:
    """Analyse a graph that is bound to its model."""
    found = Candidates(bound, options)
    layers = {one.node: one for one in found.layers()}
    if options.weights_only:
        layers = {node: replace(one, sites=()) for node, one in layers.items() if one.weights is not None}
        empty = frozenset[int]()
        return Analysis(layers, tuple(found.floats), (), {}, frozenset(), frozenset(), empty, {}, frozenset(), {})
    flow = _Flowing(found, layers)
    flow.settle()
    groups = grouped(found, layers, flow.moved, flow.operands, flow.coded, is_symmetric=options.is_symmetric)
    by_site = {site: group for group in groups for site in group.sites}
    return Analysis(
        layers,
        tuple(found.floats),
        groups,
        by_site,
        frozenset(flow.coded),
        frozenset(one for one in flow.coded if flow.only(one)),
        frozenset(flow.moved),
        flow.folded,
        frozenset(flow.decoded),
        flow.operands,
    )


class Candidates:
    """The nodes of a graph as quantization sees them: layers, and what connects them."""

    def __init__(self, bound: BoundGraph, options: AnalysisOptions) -> None:
        self.bound = bound
        self.graph: Graph = bound.source
        self.options = options
        self.flow: Dataflow = dataflow(bound, self.graph)
        self.floats: list[FloatLayer] = []
        self._copies = {original: copy for copy, original in bound.origins.items()}
        self._layer_loops = frozenset(_layer_loops(self.graph))
        self._written = frozenset(
            access.base for node in self.graph.walk() for access in node_uses(node.kind).writes
        ) | {name for name, one in bound.vars.items() if one.kind is MemoryKind.DYNAMIC}

    def op(self, node: int) -> BoundOp | None:
        """An op node with its record, operands and parameters, or None."""
        return self.bound.ops.get(self._copies.get(node, node))

    def kind(self, node: int) -> Op:
        """An op node as the source writes it."""
        found = self.flow.places[node].node.kind
        assert isinstance(found, Op)
        return found

    def ops(self) -> Iterator[tuple[int, BoundOp]]:
        """The typed op nodes in source order, without those of blocks with parameters."""
        for node, place in self.flow.places.items():
            if isinstance(place.node.kind, Op) and self.graph.blocks[place.block].params is None:
                found = self.op(node)
                if found is not None:
                    yield node, found

    def path(self, node: int) -> tuple[str, ...]:
        """The indices of the layer loops around a node."""
        return tuple(index for index in self.flow.places[node].loops if index in self._layer_loops)

    def label(self, node: int) -> str:
        """The name of a node in reports: its scopes, and its weights or else its result."""
        own, kind = self.op(node), self.kind(node)
        operands = own.operands if own is not None else ()
        stored = (self.weights(one) for one in (operands[:1] if kind.op in kinds.TABLES else operands[1:2]))
        name = next((one.base for one in stored if one is not None), str(kind.outputs[0]))
        return "/".join((*self.flow.places[node].scopes, name))

    def layers(self) -> Iterator[QuantLayer]:
        """The layers that become integer arithmetic; the others are recorded with the reason."""
        for node, place in self.flow.places.items():
            kind = place.node.kind
            if not isinstance(kind, Op) or kind.op not in (*kinds.PRODUCTS, *kinds.TABLES):
                continue
            own = self.op(node)
            if own is None or self.graph.blocks[place.block].params is not None:
                self._stays(node, "it is in a block with parameters")
                continue
            found = self._table(node, own) if kind.op in kinds.TABLES else self._product(node, own)
            if found is not None:
                yield found

    def _stays(self, node: int, reason: str) -> None:
        self.floats.append(FloatLayer(node, self.kind(node).op, self.label(node), reason))

    def _table(self, node: int, own: BoundOp) -> QuantLayer | None:
        weights = self.weights(own.operands[0])
        if weights is None or own.stored[0] is not F32 or own.call is None or own.call.params.get("axis", 0):
            return None
        if len(own.call.shape(0)) < 2:
            return None
        if self.is_kept(node, weights.base) or node in self.options.excluded:
            self._stays(node, self.options.excluded.get(node, KEPT))
            return None
        return QuantLayer(node, own.record.name, self.label(node), (), self.path(node), weights)

    def _product(self, node: int, own: BoundOp) -> QuantLayer | None:
        stored = [dtype for dtype in own.stored if dtype is not None]
        if all(dtype.kind != "float" for dtype in stored):
            return None
        right = self.weights(own.operands[1])
        reason = self._obstacle(node, own, right)
        if self.is_kept(node, None if right is None else right.base):
            reason = KEPT
        reason = self.options.excluded.get(node, reason)
        if reason is not None:
            self._stays(node, reason)
            return None
        params = own.call.params if own.call is not None else {}
        bias = own.operands[2] if len(own.operands) > 2 else None
        slots = (0,) if right is not None else (0, 1)
        sites = tuple(self.site(node, slot) for slot in slots)
        assert bias is None or isinstance(bias, Access)
        axis = kinds.weight_axis(own.record.name, params)
        return QuantLayer(node, own.record.name, self.label(node), sites, self.path(node), right, axis, bias)

    def _obstacle(self, node: int, own: BoundOp, weights: Access | None) -> str | None:
        """Why a product stays in floats, or None."""
        kind, call = self.kind(node), own.call
        bias = own.operands[2] if len(own.operands) > 2 else None
        if any(dtype not in (F32, None) for dtype in own.stored):
            return "its operands are not f32"
        if call is None or call.params.get("acc") not in (None, (F32,)):
            return "its shapes or its accumulator are not supported"
        if (
            is_symbolic(kinds.factors(own.record.name, call))
            or kinds.factors(own.record.name, call) > kinds.MOST_FACTORS
        ):
            return f"a sum of more than {kinds.MOST_FACTORS} products may overflow i32"
        if weights is None and own.record.name != "matmul":
            return "its weights are computed"
        if weights is not None and len(call.shape(1)) != 2 and own.record.name == "matmul":
            return "its weights are not one matrix"
        if bias is not None and self.weights(bias) is None:
            return "its bias is computed"
        if kind.outputs[0].bracketed or not self.has_dims(kind.outputs[0].base, node):
            return "its result has no declared shape"
        operands = own.operands[: 1 if weights is not None else 2]
        if not all(isinstance(one, Access) and self._is_plain(node, one) for one in operands):
            return "the shape of its operand is not declared"
        return None

    def _is_plain(self, node: int, access: Access) -> bool:
        """Whether a variable with the shape of an operand can be declared."""
        if not access.bracketed:
            return access.base in self.bound.vars and self.has_dims(access.base, node)
        own = self.op(node)
        return own is not None and own.call is not None and not own.is_dynamic

    def has_dims(self, name: str, node: int) -> bool:
        """Whether another variable of the same shape can be declared for a node."""
        variable = self.bound.vars[name]
        is_free = variable.is_temporary and self.flow.places[node].block == "entry"
        return variable.dims is not None or is_free or not any(map(is_symbolic, variable.shape))

    def weights(self, operand: object) -> Access | None:
        """An operand that is a tensor of the model or an entry of a prefix table and is never written, else None."""
        if not isinstance(operand, Access) or operand.base not in self.bound.vars or operand.base in self._written:
            return None
        variable: BoundVar = self.bound.vars[operand.base]
        whole = isinstance(variable.origin, FromModel) and not operand.bracketed
        entry = isinstance(variable.origin, FromPattern) and all(
            isinstance(one, Single) and not any(name in self.bound.vars for name in names(one.value))
            for one in operand.indices
        )
        return operand if variable.kind in _WEIGHT_KINDS and (whole or entry) else None

    def is_kept(self, node: int, weights: str | None) -> bool:
        """Whether the caller keeps a layer in floats: by its result, its weights, or a scope or block around it."""
        place, label = self.flow.places[node], self.label(node)
        path = ["/".join(place.scopes[: count + 1]) for count in range(len(place.scopes))]
        spelled = (label, str(self.kind(node).outputs[0]), weights or label, place.block, *place.scopes, *path)
        return any(fnmatchcase(name, pattern) for name in spelled for pattern in self.options.keep)

    def site(self, node: int, slot: int) -> CodeSite:
        """Where an operand gets its codes: where it is written, if that is one place, else where it is read."""
        own = self.op(node)
        assert own is not None
        access = own.operands[slot]
        assert isinstance(access, Access)
        writer = None if access.bracketed else self.flow.only(node, access.base)
        if writer is not None and self._writes_numbers(writer):
            return CodeSite(writer, Access(access.base))
        return self._read_site(node, access)

    def _writes_numbers(self, node: int) -> bool:
        return isinstance(self.flow.places[node].node.kind, Op) and self.op(node) is not None

    def _read_site(self, node: int, access: Access) -> CodeSite:
        """One site for all nodes that read the same value in the same body: the first of them."""
        place = self.flow.places[node]
        reaching = self.flow.reaching.get((node, access.base))
        for other, there in self.flow.places.items():
            if other >= node:
                break
            own = self.op(other) if there.is_beside(place) and isinstance(there.node.kind, Op) else None
            if own is None or access not in own.operands or access.bracketed:
                continue
            if self.flow.reaching.get((other, access.base)) == reaching:
                return CodeSite(other, access, is_read=True)
        return CodeSite(node, access, is_read=True)

    def rectifiers(
        self, layers: Mapping[int, QuantLayer], only: Callable[[CodeDefinition], bool]
    ) -> Iterator[tuple[int, int]]:
        """Nodes that clip negatives right after a layer that nothing else reads, with these layers."""
        for node, own in self.ops():
            if own.call is None or kinds.rectifies(own.record.name, own.call.params) is None:
                continue
            access = own.operands[0]
            layer = self.flow.only(node, access.base) if isinstance(access, Access) and not access.bracketed else None
            if layer is None or layer not in layers or layers[layer].is_in_floats or not isinstance(access, Access):
                continue
            here, there = self.flow.places[node], self.flow.places[layer]
            if not here.is_beside(there):
                continue
            alone = self.flow.readers[layer, access.base] == {node} and self.flow.is_closed(layer, access.base)
            if alone and only((node, self.kind(node).outputs[0].base)):
                yield node, layer


def _layer_loops(graph: Graph) -> Iterator[str]:
    """The indices of loops whose bodies use them to read prefix tables."""
    for node in graph.walk():
        if not isinstance(node.kind, Loop):
            continue
        index = node.kind.index
        for inner in walk(node.kind.body):
            for given in node_uses(inner.kind).reads:
                access = given.operand
                if not isinstance(access, Access) or access.base not in graph.vars:
                    continue
                singles = [one.value for one in access.indices if isinstance(one, Single)]
                if graph.vars[access.base].pattern is not None and any(index in names(one) for one in singles):
                    yield index


@dataclass
class _Flowing:
    """Propagates codes backwards from the layers that want them, through nodes that only move values."""

    candidates: Candidates
    layers: Mapping[int, QuantLayer]
    coded: set[CodeDefinition] = field(default_factory=set)
    moved: set[int] = field(default_factory=set)
    decoded: set[tuple[int, str]] = field(default_factory=set)
    folded: dict[int, int] = field(default_factory=dict)
    operands: dict[tuple[int, int], CodeSite] = field(default_factory=dict)

    def settle(self) -> None:
        """Iterate to a fixed point: each round may find more nodes whose results nothing reads as numbers."""
        for layer in self.layers.values():
            for slot, site in enumerate(layer.sites):
                self._want(layer.node, slot, site)
        nodes = [node for node, _ in self.candidates.ops()][::-1]
        size = -1
        while size != (size := len(self.coded) + len(self.moved) + len(self.decoded)):
            for node in nodes:
                self._look(node)
        self.folded = dict(self.candidates.rectifiers(self.layers, self._is_wanted_only))

    def _is_wanted_only(self, definition: CodeDefinition) -> bool:
        return definition in self.coded and self.only(definition)

    def _want(self, node: int, slot: int, site: CodeSite) -> None:
        self.operands[node, slot] = site
        if not site.is_read:
            self.coded.add((site.node, site.access.base))

    def _look(self, node: int) -> None:
        own = self.candidates.op(node)
        if own is None or own.call is None or node in self.layers or node in self.moved:
            return
        results = [access.base for access in self.candidates.kind(node).outputs]
        wanted = [name for name in results if (node, name) in self.coded]
        if not wanted or own.stored[0] is not F32:
            return
        if kinds.moves_values(own.record.name, own.call.params):
            self._move(node, own, results)
        elif own.record.name in kinds.LIGHT:
            self._decode(node, own)

    def _move(self, node: int, own: BoundOp, results: list[str]) -> None:
        outputs = self.candidates.kind(node).outputs
        if any(access.bracketed for access in outputs) or not all(self.only((node, name)) for name in results):
            return
        slots = kinds.data_slots(own.record.name, len(own.operands))
        if not all(isinstance(own.operands[slot], Access) for slot in slots):
            return
        sites = [self.candidates.site(node, slot) for slot in slots]
        if any(not self.candidates.has_dims(site.access.base, node) or site.access.bracketed for site in sites):
            return
        if own.record.name in kinds.SELECTING and not self._comes_as_codes(sites[0]):
            return
        self.moved.add(node)
        self.coded |= {(node, name) for name in results}
        for slot, site in zip(slots, sites, strict=True):
            self._want(node, slot, site)

    def _comes_as_codes(self, site: CodeSite) -> bool:
        """Whether a value would be codes anyway, and is not quantized only to be moved."""
        own = None if site.is_read else self.candidates.op(site.node)
        if own is None or own.call is None:
            return False
        name, params = own.record.name, own.call.params
        return site.node in self.layers or kinds.moves_values(name, params) or kinds.rectifies(name, params) is not None

    def _decode(self, node: int, own: BoundOp) -> None:
        for slot, access in enumerate(own.operands):
            if not isinstance(access, Access) or access.bracketed or own.stored[slot] is not F32:
                continue
            writer = self.candidates.flow.only(node, access.base)
            if writer is None or not isinstance(self.candidates.flow.places[writer].node.kind, Op):
                continue
            is_wanted = (writer, access.base) in self.coded
            if own.record.name in kinds.RESAMPLED or is_wanted:
                self.decoded.add((node, access.base))
                self._want(node, slot, CodeSite(writer, Access(access.base)))

    def only(self, definition: CodeDefinition) -> bool:
        """Whether every reader of a definition reads its codes."""
        node, name = definition
        flow = self.candidates.flow
        return flow.is_closed(node, name) and all(
            self._reads_codes(user, definition) for user in flow.readers.get(definition, ())
        )

    def _reads_codes(self, user: int, definition: CodeDefinition) -> bool:
        own = self.candidates.op(user)
        if own is None:
            return False
        slots = [
            slot
            for slot, access in enumerate(own.operands)
            if isinstance(access, Access) and access.base == definition[1]
        ]
        return bool(slots) and all(
            self.operands.get((user, slot)) == CodeSite(definition[0], Access(definition[1])) for slot in slots
        )
