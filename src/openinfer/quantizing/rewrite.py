"""Rewrites a float graph as an integer graph: same blocks, loops and scopes, codes where the analysis wants them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from openinfer.check.bound import BoundOp, BoundVar, FromInit
from openinfer.ir import Access, Assign, Input, Loop, MemoryKind, Node, Op, Scope
from openinfer.ir.expr import Num
from openinfer.ir.values import DTypeValue, IntValue
from openinfer.quantizing import kinds
from openinfer.quantizing.analysis import Candidates
from openinfer.quantizing.constants import Constants
from openinfer.quantizing.declarations import I8, NewDeclarations
from openinfer.quantizing.products import CodeNames, Products, Sums
from openinfer.quantizing.ranges import LOW
from openinfer.quantizing.sharing import Sharing
from openinfer.quantizing.sites import Analysis, CodeGroup, CodeSite, QuantLayer
from openinfer.quantizing.writing import Attrs, NodeWriter, WrittenGraph


def _is_empty(variable: BoundVar) -> bool:
    """Whether a declared variable starts as zeros and is forgotten after each step."""
    return variable.kind is MemoryKind.VOLATILE and variable.origin == FromInit(None)


@dataclass(frozen=True)
class Measured:
    """Where the result of a layer can be read: in the float graph, and in the integer graph as numbers or codes."""

    layer: QuantLayer
    float_node: int
    float_name: str
    token: int
    name: str
    group: CodeGroup | None


@dataclass(frozen=True)
class Rewritten:
    """The integer graph, and where the results of its layers can be read."""

    written: WrittenGraph
    measured: tuple[Measured, ...]


def rewritten(
    candidates: Candidates, analysis: Analysis, constants: Constants, declarations: NewDeclarations, sharing: Sharing
) -> Rewritten:
    """Rewrite a float graph as an integer graph."""
    return _Rewriting(candidates, analysis, constants, declarations, sharing).graph()


class _Rewriting:
    def __init__(
        self,
        candidates: Candidates,
        analysis: Analysis,
        constants: Constants,
        declarations: NewDeclarations,
        sharing: Sharing,
    ) -> None:
        self.candidates, self.analysis, self.constants = candidates, analysis, constants
        self.declarations, self.sharing = declarations, sharing
        self.writer = NodeWriter(declarations.inferred)
        self.names = CodeNames(declarations, self._coded_variables())
        self.products = Products(candidates, constants, declarations, sharing, self.writer)
        self.measured: list[Measured] = []
        self.sums: dict[int, Sums] = {}
        self.reads: dict[int, list[CodeSite]] = {}
        for site in analysis.group_of:
            if site.is_read:
                self.reads.setdefault(site.node, []).append(site)

    def graph(self) -> Rewritten:
        source = self.candidates.graph
        blocks = []
        for block in source.blocks.values():
            self.declarations.is_in_entry = block.name == "entry"
            blocks.append(replace(block, nodes=self._body(block.nodes), span=None))
        for name in self.names.kept:
            if name in source.vars:
                self.declarations.changed[name] = replace(source.vars[name], dtype=I8)
        return Rewritten(self.writer.finished(source, blocks, self.declarations), tuple(self.measured))

    def _coded_variables(self) -> frozenset[str]:
        """Variables that only ever hold codes, and so keep their names."""
        flow, found = self.candidates.flow, {name for _, name in self.analysis.only_coded}
        for node, place in flow.places.items():
            kind = place.node.kind
            for access in kind.outputs if isinstance(kind, Op) else ():
                if access.base in found and not self._gives_codes(node, access.base):
                    found.discard(access.base)
            if isinstance(kind, Assign) and flow.readers.get((node, kind.name)):
                found.discard(kind.name)
        found -= {name for _, name in self.analysis.decoded}
        found -= {site.access.base for site in self.analysis.group_of if site.is_read}
        variables = self.candidates.bound.vars
        return frozenset(name for name in found if variables[name].is_temporary or _is_empty(variables[name]))

    def _gives_codes(self, node: int, name: str) -> bool:
        """Whether a node writes codes to a variable, or nothing because its sums go elsewhere."""
        if node in self.analysis.folded.values():
            return True
        converts = node in self.analysis.layers or node in self.analysis.moved or node in self.analysis.folded
        return converts and (node, name) in self.analysis.only_coded

    # --- walking --------------------------------------------------------------------------------------------------

    def _body(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        outer, self.writer.nodes = self.writer.nodes, []
        for node in nodes:
            self.writer.came_to(node.index)
            kind = node.kind
            if isinstance(kind, Loop | Scope):
                at = len(self.writer.nodes)
                self.writer.write(replace(kind, body=()), node.constraints)
                body = self._body(kind.body)
                head = self.writer.nodes[at]
                self.writer.nodes[at] = replace(head, kind=replace(kind, body=body))
            elif isinstance(kind, Assign) and kind.dtype is None:
                self.writer.inferred.add(kind.name)
            elif isinstance(kind, Assign):
                is_code = kind.name in self.names.kept
                self.writer.write(replace(kind, dtype=I8) if is_code else kind, node.constraints)
            elif isinstance(kind, Op):
                self._op(node, kind)
            else:
                self.writer.write(kind, node.constraints)
        found, self.writer.nodes = tuple(self.writer.nodes), outer
        return found

    def _op(self, node: Node, kind: Op) -> None:
        own, index = self.candidates.op(node.index), node.index
        for site in self.reads.get(index, ()):
            self._quantize(site, site.access)
        layer = self.analysis.layers.get(index)
        if own is None:
            self.writer.write(kind, node.constraints)
        elif layer is not None and layer.is_in_floats:
            self._in_floats(node, kind, own, layer)
        elif layer is not None:
            self._product(node, own, layer)
        elif index in self.analysis.moved:
            self._move(node, kind, own)
        elif index in self.analysis.folded:
            self._rectify(node, kind)
        else:
            self._number(node, kind, own)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _quantize(self, site: CodeSite, access: Access) -> int:
        """Quantize a value right where it is known."""
        group = self.analysis.group_of[site]
        scale, zero = self.constants.scale(group), self.constants.zero(group)
        codes = self.names.of(site, self._dims(site))
        attrs: Attrs = (("to", DTypeValue(I8)),)
        if self.constants.is_smoothed(group):
            attrs += (("axis", IntValue(self.declarations.rank(site.access.base) - 1)),)
        return self.writer.op("quantize", [access, scale, *zero], codes, attrs)

    def _dims(self, site: CodeSite) -> tuple[Num, ...] | None:
        """The dimensions of a slice, which are not those of its variable."""
        if not site.access.bracketed:
            return None
        own = self.candidates.op(site.node)
        assert own is not None
        assert own.call is not None
        return tuple(Num(int(extent)) for extent in own.call.shape(own.operands.index(site.access)))

    def _codes(self, node: int, slot: int) -> Access:
        site = self.analysis.operands[node, slot]
        return self.names.of(site, self._dims(site))

    def _in_floats(self, node: Node, kind: Op, own: BoundOp, layer: QuantLayer) -> None:
        weights = self.products.weights(layer)
        operands = [*own.operands]
        operands[layer.weight_slot] = weights
        inputs = tuple(Input(operand) for operand in operands if operand is not None)
        token = self.writer.write(replace(kind, inputs=inputs), node.constraints)
        self._measure(layer, node.index, kind.outputs[0].base, token, kind.outputs[0].base, None)
        self._after(node.index, kind)

    def _product(self, node: Node, own: BoundOp, layer: QuantLayer) -> None:
        """A layer in integers. Its sums become whatever is read: numbers, codes, or the operand of a rectifier."""
        index, result = node.index, self.candidates.kind(node.index).outputs[0]
        operands = [self._codes(index, slot) for slot in range(len(layer.sites))]
        groups = [self.analysis.group_of[site] for site in layer.sites]
        rectifier = next((one for one, source in self.analysis.folded.items() if source == index), None)
        sums = self.products.sums(layer, own, operands, groups, node.constraints)
        if rectifier is not None:
            self.sums[rectifier] = self.products.real(sums, is_scaled=not self._is_exact(rectifier))
        elif (index, result.base) in self.analysis.only_coded:
            site = CodeSite(index, Access(result.base))
            token = self._rounded(self.products.real(sums, is_scaled=False), site)
            self._measure(layer, index, result.base, token, self.names.of(site).base, self.analysis.group_of[site])
        else:
            token = self.products.numbers(sums, result)
            self._measure(layer, index, result.base, token, result.base, None)
            self._after(index, self.candidates.kind(index))

    def _rounded(self, sums: Sums, site: CodeSite) -> int:
        """Round the sums of a layer to the codes of its result."""
        group = self.analysis.group_of[site]
        attrs: Attrs = (("to", DTypeValue(I8)),)
        if sums.is_scaled:
            scale = self.constants.scale(group)
        else:
            scale = self.products.steps(sums, group, site.access.base)
            attrs += (("axis", IntValue(sums.axis)),) if sums.axis and sums.has_channels else ()
        return self.writer.op("quantize", [sums.real, scale, *self.constants.zero(group)], self.names.of(site), attrs)

    def _is_exact(self, rectifier: int) -> bool:
        """Whether a rectifier has no limit within the range of the codes."""
        own = self.candidates.op(rectifier)
        assert own is not None
        assert own.call is not None
        limit = kinds.rectifies(own.record.name, own.call.params)
        group = self.analysis.written(rectifier, self.candidates.kind(rectifier).outputs[0].base)
        assert limit is not None
        assert group is not None
        return all(codes.scale * (127 - codes.zero) <= limit * (1 + 1e-6) for codes in self.constants.codes_in(group))

    def _rectify(self, node: Node, kind: Op) -> None:
        """Clip negatives: the lowest code does that by itself if it stands for zero."""
        sums, result = self.sums[node.index], kind.outputs[0].base
        site = CodeSite(node.index, Access(result))
        group = self.analysis.group_of[site]
        if sums.is_scaled:
            self.writer.write(replace(kind, inputs=(Input(sums.real),), outputs=(sums.real,)), node.constraints)
        elif any(codes.zero != LOW for codes in self.constants.codes_in(group)):
            self.writer.op("relu", [sums.real], sums.real)
        token = self._rounded(sums, site)
        self._measure(sums.layer, node.index, result, token, self.names.of(site).base, group)

    def _move(self, node: Node, kind: Op, own: BoundOp) -> None:
        operands = list(own.operands)
        for slot in kinds.data_slots(own.record.name, len(operands)):
            operands[slot] = self._codes(node.index, slot)
        outputs = tuple(self.names.of(CodeSite(node.index, Access(access.base))) for access in kind.outputs)
        attrs = kind.attrs
        group = self.analysis.written(node.index, kind.outputs[0].base)
        assert group is not None
        assert own.call is not None
        if own.record.name == "pad" and own.call.params["mode"] == "constant":
            zero = next(iter(self.constants.codes_in(group))).zero
            attrs = (*(one for one in attrs if one[0] != "value"), ("value", IntValue(zero)))
        inputs = tuple(Input(operand) for operand in operands if operand is not None)
        self.writer.write(Op(kind.op, inputs, attrs, outputs), node.constraints)

    def _number(self, node: Node, kind: Op, own: BoundOp) -> None:
        """A node that computes in floats: operands are dequantized and its result quantized where needed."""
        for name in dict.fromkeys(name for user, name in self.analysis.decoded if user == node.index):
            slot = next(at for at, one in enumerate(own.operands) if one == Access(name))
            if (self.analysis.operands[node.index, slot].node, name) not in self.analysis.only_coded:
                continue  # the numbers themselves exist
            group = self.analysis.group_of[self.analysis.operands[node.index, slot]]
            scale, zero = self.constants.scale(group), self.constants.zero(group)
            self.writer.op("dequantize", [self._codes(node.index, slot), scale, *zero], Access(name))
        self.writer.write(kind, node.constraints)
        self._after(node.index, kind)

    def _after(self, node: int, kind: Op) -> None:
        """Quantize what a node has written as numbers."""
        for access in kind.outputs:
            if (node, access.base) in self.analysis.coded:
                self._quantize(CodeSite(node, Access(access.base)), access)

    def _measure(
        self, layer: QuantLayer, node: int, float_name: str, token: int, name: str, group: CodeGroup | None
    ) -> None:
        self.measured.append(Measured(layer, node, float_name, token, name, group))
