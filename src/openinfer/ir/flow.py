"""Which node's value each node reads: the edges of the picture, with those that loops and persistent memory carry."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from openinfer.ir import (
    Access,
    Assign,
    Block,
    BlockCall,
    Branch,
    Graph,
    Index,
    Loop,
    MemoryKind,
    ModelRef,
    Node,
    Operand,
    Scope,
    Single,
    walk,
)
from openinfer.ir.expr import Expr, names
from openinfer.ir.graph import BlockParamKind, VarDecl
from openinfer.ir.rules import blocks_run
from openinfer.ir.uses import node_uses

EdgeKind = Literal["data", "index", "carried", "state"]
"""A value that is read; one used only in an index; one of the previous iteration; one stored in persistent memory."""


@dataclass(frozen=True)
class FlowEdge:
    """A value on its way from a writer to a reader; both are ids of the picture."""

    source: str
    target: str
    variable: str
    kind: EdgeKind


@dataclass(frozen=True)
class FlowSource:
    """A value that a block reads before writing it: an input, persistent memory, a parameter, or an initial value."""

    id: str
    block: str
    variable: str
    kind: Literal["input", "state", "param", "variable"]


@dataclass(frozen=True)
class BlockFlow:
    """The edges of a block, its sources, and the weights that each node reads, by node index."""

    edges: tuple[FlowEdge, ...]
    sources: tuple[FlowSource, ...]
    weights: Mapping[int, tuple[str, ...]]


def node_id(node: Node) -> str:
    """The id of a node in the picture."""
    return f"n{node.index}"


class GraphFlow:
    """The flow of values in a graph, one block at a time."""

    def __init__(self, graph: Graph, linked: frozenset[str] = frozenset()) -> None:
        """``linked`` are the variables known to be filled from the model."""
        self.graph = graph
        self._linked = linked
        self._touched: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def blocks(self) -> Iterator[tuple[Block, BlockFlow]]:
        """Every block with its flow."""
        for block in self.graph.blocks.values():
            yield block, _BlockWalk(self, block).run()

    @cached_property
    def weights(self) -> frozenset[str]:
        """Variables that are filled from the model and only read; the picture shows them inside their readers."""
        written = {access.base for node in self.graph.walk() for access in node_uses(node.kind).writes}
        return frozenset(
            name
            for name, one in self.graph.vars.items()
            if name not in written and (one.kind is MemoryKind.CONSTANT or name in self._linked or _is_filled(one))
        )

    @cached_property
    def _shared(self) -> frozenset[str]:
        """Variables that several blocks see: declared ones, and temporaries of blocks that ``branch`` runs."""
        plain = [block for block in self.graph.blocks.values() if block.params is None]
        assigned = {node.kind.name for block in plain for node in walk(block.nodes) if isinstance(node.kind, Assign)}
        return frozenset(self.graph.vars.keys() | assigned) - self.weights

    def touched(self, block: str) -> tuple[frozenset[str], frozenset[str]]:
        """The shared variables that a block and all blocks it runs read and write."""
        if block not in self._touched:
            reads: set[str] = set()
            writes: set[str] = set()
            for name in self._run_by(block):
                for node in walk(self.graph.blocks[name].nodes):
                    uses = node_uses(node.kind)
                    reads |= {one.operand.base for one in uses.reads if isinstance(one.operand, Access)}
                    writes |= {one.base for one in uses.writes}
            self._touched[block] = (frozenset(reads & self._shared), frozenset(writes & self._shared))
        return self._touched[block]

    def _run_by(self, block: str) -> set[str]:
        found: set[str] = set()
        todo = [block]
        while todo:
            name = todo.pop()
            if name not in found and name in self.graph.blocks:
                found.add(name)
                todo += [one for node in walk(self.graph.blocks[name].nodes) for one in blocks_run(node)]
        return found


def _is_filled(variable: VarDecl) -> bool:
    is_named = variable.ref_name is not None or variable.pattern is not None
    return is_named and variable.kind is not MemoryKind.PERSISTENT


@dataclass
class _Body:
    """What has been read and written so far in the body of a loop."""

    written: set[str] = field(default_factory=set)
    first_reads: dict[str, list[str]] = field(default_factory=dict)
    """The readers of each variable before the body writes it."""


class _BlockWalk:
    """Walks over a block in source order, tracking the last writer of each variable."""

    def __init__(self, flow: GraphFlow, block: Block) -> None:
        self._flow = flow
        self._block = block
        self._writers: dict[str, str] = {}
        self._loops: list[_Body] = []
        self._indices: list[str] = list(block.indices)
        self._sources: dict[str, FlowSource] = {}
        self._edges: dict[FlowEdge, None] = {}
        self._weights: dict[int, tuple[str, ...]] = {}
        self._params = {one.name: one for one in block.params or ()}

    def run(self) -> BlockFlow:
        self._walk(self._block.nodes)
        return BlockFlow(tuple(self._edges), tuple(self._sources.values()), self._weights)

    def _walk(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            match node.kind:
                case Assign():
                    continue
                case Loop():
                    self._loop(node, node.kind)
                case Scope():
                    self._walk(node.body)
                case _:
                    self._node(node)

    def _loop(self, node: Node, loop: Loop) -> None:
        self._expressions(node_id(node), (loop.start, loop.end))
        body = _Body()
        self._loops.append(body)
        self._indices.append(loop.index)
        self._walk(loop.body)
        self._indices.pop()
        self._loops.pop()
        for name in (one for one in body.first_reads if one in body.written and not self._is_table(one)):
            for reader in body.first_reads[name]:
                self._edge(self._writers[name], reader, name, "carried")

    def _node(self, node: Node) -> None:
        uses, me = node_uses(node.kind), node_id(node)
        weights = [*self._operands(me, [one.operand for one in uses.reads])]
        self._expressions(me, uses.exprs)
        for access in uses.writes:
            self._expressions(me, _expressions(access.indices))
        if isinstance(node.kind, Branch | BlockCall):
            for block in blocks_run(node):
                for name in sorted(self._flow.touched(block)[0]):
                    self._read(me, name, "data")
        for access in uses.writes:
            if access.bracketed and access.base in self._writers and not self._is_table(access.base):
                self._read(me, access.base, "data")
            self._write(me, access.base)
        if isinstance(node.kind, Branch | BlockCall):
            for block in blocks_run(node):
                for name in sorted(self._flow.touched(block)[1]):
                    self._write(me, name)
        if weights:
            self._weights[node.index] = tuple(dict.fromkeys(weights))

    def _operands(self, me: str, operands: Iterable[Operand]) -> Iterator[str]:
        """Record what is read; yields the names of weights."""
        for operand in operands:
            if isinstance(operand, ModelRef):
                yield str(operand)
            if not isinstance(operand, Access):
                continue
            self._expressions(me, _expressions(operand.indices))
            if operand.base in self._flow.weights or self._is_prefix(operand.base):
                yield str(operand)
            elif operand.base not in self._indices:
                self._read(me, operand.base, "data")

    def _is_prefix(self, name: str) -> bool:
        return name in self._params and self._params[name].kind is BlockParamKind.PREFIX

    def _is_table(self, name: str) -> bool:
        declared = self._flow.graph.vars.get(name)
        return declared is not None and declared.is_indexed

    def _expressions(self, me: str, exprs: Iterable[Expr]) -> None:
        """Record variables that determine an index or a number of iterations."""
        for name in dict.fromkeys(name for expr in exprs for name in names(expr)):
            known = name in self._flow.graph.vars or name in self._writers
            if known and name not in self._indices and name not in self._flow.weights:
                self._read(me, name, "index")

    def _read(self, me: str, name: str, kind: EdgeKind) -> None:
        for loop in self._loops:
            if name not in loop.written:
                loop.first_reads.setdefault(name, []).append(me)
        writer = self._writers.get(name)
        self._edge(writer if writer is not None else self._source(name).id, me, name, kind)

    def _write(self, me: str, name: str) -> None:
        for loop in self._loops:
            loop.written.add(name)
        self._writers[name] = me
        declared = self._flow.graph.vars.get(name)
        if declared is not None and declared.kind is MemoryKind.PERSISTENT:
            self._edge(me, self._source(name).id, name, "state")

    def _source(self, name: str) -> FlowSource:
        if name not in self._sources:
            declared = self._flow.graph.vars.get(name)
            kind: Literal["input", "state", "param", "variable"] = "variable"
            if name in self._params:
                kind = "param"
            elif declared is not None and declared.kind is MemoryKind.DYNAMIC:
                kind = "input"
            elif declared is not None and declared.kind is MemoryKind.PERSISTENT:
                kind = "state"
            self._sources[name] = FlowSource(f"{self._block.name}/{name}", self._block.name, name, kind)
        return self._sources[name]

    def _edge(self, source: str, target: str, name: str, kind: EdgeKind) -> None:
        if source != target or kind == "carried":
            self._edges[FlowEdge(source, target, name, kind)] = None


def _expressions(indices: Iterable[Index]) -> Iterator[Expr]:
    for index in indices:
        found = (index.value,) if isinstance(index, Single) else (index.start, index.end)
        yield from (one for one in found if one is not None)
