"""Expands recurrent cells into products and gates, so that their products are ordinary layers."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from openinfer.check.bound import BoundGraph, BoundOp
from openinfer.ir import Access, Assign, Literal, Loop, Node, Op, Operand, Scope
from openinfer.ir.expr import Expr, Num
from openinfer.ir.values import ExprList, FloatValue, IntValue
from openinfer.loops.dim import is_symbolic
from openinfer.quantizing.analysis import AnalysisOptions, Candidates
from openinfer.quantizing.declarations import F32, Dims, NewDeclarations
from openinfer.quantizing.stored import StoredWeights
from openinfer.quantizing.writing import NodeWriter, WrittenGraph

_STATES = {"lstm_cell": 2, "gru_cell": 1, "rnn_cell": 1}
"""The number of states of a cell."""


def without_cells(bound: BoundGraph, options: AnalysisOptions) -> WrittenGraph | None:
    """The graph with its recurrent cells expanded into products and gates, or None if it has none."""
    candidates = Candidates(bound, options)
    cells = {node for node, own in candidates.ops() if own.record.name in _STATES and _is_plain(candidates, node, own)}
    return _Expanding(bound, candidates, cells).graph() if cells else None


def _is_plain(candidates: Candidates, node: int, own: BoundOp) -> bool:
    """Whether a cell has stored f32 weights and is not kept by the caller."""
    states = _STATES[own.record.name]
    weights = [candidates.weights(one) for one in own.operands[1 + states : 3 + states]]
    if own.call is None or None in weights or any(dtype not in (F32, None) for dtype in own.stored):
        return False
    out = candidates.kind(node).outputs[0]
    if not candidates.has_dims(out.base, node) or (out.bracketed and any(map(is_symbolic, own.call.outputs[0].shape))):
        return False
    return not _is_kept(candidates, node, own)


def _is_kept(candidates: Candidates, node: int, own: BoundOp) -> bool:
    states = _STATES[own.record.name]
    weights = (candidates.weights(one) for one in own.operands[1 + states : 3 + states])
    return any(candidates.is_kept(node, None if one is None else one.base) for one in weights)


def kept_cells(bound: BoundGraph, pattern: str) -> Iterator[int]:
    """The cells that a pattern keeps in floats."""
    candidates = Candidates(bound, AnalysisOptions((pattern,)))
    for node, own in candidates.ops():
        if own.record.name in _STATES and _is_kept(candidates, node, own):
            yield node


class _Expanding:
    def __init__(self, bound: BoundGraph, candidates: Candidates, cells: set[int]) -> None:
        self._candidates, self._cells = candidates, cells
        self._declarations = NewDeclarations(bound, StoredWeights(bound))
        self._writer = NodeWriter(self._declarations.inferred)

    def graph(self) -> WrittenGraph:
        source = self._candidates.graph
        blocks = []
        for block in source.blocks.values():
            self._declarations.is_in_entry = block.name == "entry"
            blocks.append(replace(block, nodes=self._body(block.nodes), span=None))
        return self._writer.finished(source, blocks, self._declarations)

    def _body(self, nodes: Iterable[Node]) -> tuple[Node, ...]:
        outer, self._writer.nodes = self._writer.nodes, []
        for node in nodes:
            self._writer.came_to(node.index)
            kind = node.kind
            if isinstance(kind, Loop | Scope):
                at = len(self._writer.nodes)
                self._writer.write(replace(kind, body=()), node.constraints)
                self._writer.nodes[at] = replace(self._writer.nodes[at], kind=replace(kind, body=self._body(kind.body)))
            elif isinstance(kind, Assign) and kind.dtype is None:
                self._writer.inferred.add(kind.name)
            elif node.index in self._cells and isinstance(kind, Op):
                self._cell(node.index, kind)
            else:
                self._writer.write(kind, node.constraints)
        found, self._writer.nodes = tuple(self._writer.nodes), outer
        return found

    def _cell(self, node: int, kind: Op) -> None:
        own = self._candidates.op(node)
        assert own is not None
        write = {"lstm_cell": self._lstm, "gru_cell": self._gru, "rnn_cell": self._rnn}[kind.op]
        write(_CellWriter(self._declarations, self._writer, own, kind.outputs[0]), own, kind.outputs)

    def _lstm(self, cell: "_CellWriter", own: BoundOp, outputs: Sequence[Access]) -> None:
        inside, outside = cell.products(own, 2, 4)
        gates = cell.wide("gates", 4, "add", inside, outside)
        i, f, g, o = cell.parts(gates, ("i", "f", "g", "o"))
        state = own.operands[2]
        assert state is not None
        for gate in (i, f, o):
            cell.apply("sigmoid", gate, gate)
        cell.apply("tanh", g, g)
        cell.apply("mul", f, f, state)
        cell.apply("mul", i, i, g)
        cell.apply("add", outputs[1], f, i)
        cell.apply("tanh", g, outputs[1])
        cell.apply("mul", outputs[0], o, g)

    def _gru(self, cell: "_CellWriter", own: BoundOp, outputs: Sequence[Access]) -> None:
        inside, outside = cell.products(own, 1, 3)
        r, z, n = cell.parts(inside, ("r", "z", "n"))
        before_r, before_z, before_n = cell.parts(outside, ("hr", "hz", "hn"))
        state = own.operands[1]
        assert state is not None
        for gate, before in ((r, before_r), (z, before_z)):
            cell.apply("add", gate, gate, before)
            cell.apply("sigmoid", gate, gate)
        cell.apply("mul", before_n, r, before_n)
        cell.apply("add", n, n, before_n)
        cell.apply("tanh", n, n)
        cell.apply("mul", before_z, z, state)
        cell.apply("sub", z, Literal(FloatValue(1.0)), z)
        cell.apply("mul", n, z, n)
        cell.apply("add", outputs[0], n, before_z)

    def _rnn(self, cell: "_CellWriter", own: BoundOp, outputs: Sequence[Access]) -> None:
        inside, outside = cell.products(own, 1, 1)
        assert own.call is not None
        cell.apply("add", inside, inside, outside)
        cell.apply(own.call.params["activation"], outputs[0], inside)


class _CellWriter:
    """Writes the ops of one cell, with temporaries named after its result."""

    def __init__(self, declarations: NewDeclarations, writer: NodeWriter, own: BoundOp, output: Access) -> None:
        self._declarations, self._writer, self._name = declarations, writer, output.base
        assert own.call is not None
        self._dims: Dims = declarations.dims(output.base)
        if output.bracketed:
            self._dims = tuple(Num(int(extent)) for extent in own.call.outputs[0].shape)
        self._states = int(own.call.outputs[0].shape[-1])

    def _temporary(self, suffix: str, last: Expr) -> Access:
        dims = (*self._dims[:-1], last)
        return self._declarations.temporary(f"{self._name}_{suffix}", self._name, F32, dims)

    def products(self, own: BoundOp, states: int, gates: int) -> tuple[Access, Access]:
        """The products of the input and of the state with their weights."""
        found = []
        for at, (slot, suffix) in enumerate(((0, "ih"), (1, "hh"))):
            weights, bias = own.operands[1 + states + at], own.operands[3 + states + at]
            operands = [one for one in (own.operands[slot], weights, bias) if one is not None]
            result = self._temporary(suffix, Num(gates * self._states))
            self._writer.op("linear", operands, result)
            found.append(result)
        return found[0], found[1]

    def wide(self, suffix: str, gates: int, op: str, *operands: Operand) -> Access:
        """An op on all gates at once."""
        result = self._temporary(suffix, Num(gates * self._states))
        self._writer.op(op, list(operands), result)
        return result

    def parts(self, gates: Access, names: Sequence[str]) -> list[Access]:
        """Split the gates."""
        results = [self._temporary(name, Num(self._states)) for name in names]
        sizes = ExprList(tuple(Num(self._states) for _ in names))
        self._writer.split(gates, results, (("axis", IntValue(-1)), ("sizes", sizes)))
        return results

    def apply(self, op: str, result: Access, *operands: Operand) -> None:
        """Write an op on single gates."""
        self._writer.op(op, list(operands), result)
