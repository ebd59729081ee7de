"""What nodes read and write, and which must therefore stay in order."""

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Literal

from openinfer.check.bound import BoundGraph, Effects
from openinfer.ir import (
    Access,
    Assign,
    Await,
    Barrier,
    Block,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Dep,
    Graph,
    Loop,
    Node,
    Op,
    Operand,
    Return,
    Scope,
    Single,
    Transfer,
    Yield,
)
from openinfer.ir.expr import Expr, names
from openinfer.ir.rules import branch_targets, node_name


class EffectsOf:
    """The effects of every node of a graph; those of blocks are computed once."""

    def __init__(self, graph: Graph, variables: Set[str]) -> None:
        self._graph = graph
        self._variables = variables
        self._blocks: dict[str, Effects] = {}
        self.nodes: dict[int, Effects] = {}
        for name in graph.blocks:
            self.block(name)

    def block(self, name: str) -> Effects:
        """The effects of all nodes of a block; blocks do not call each other in cycles."""
        if name not in self._blocks:
            self._blocks[name] = self._body(self._graph.blocks[name].nodes)
        return self._blocks[name]

    def _body(self, nodes: Iterable[Node]) -> Effects:
        total = Effects()
        for node in nodes:
            found = self._node(node)
            self.nodes[node.index] = found
            total |= found
        return total

    def _node(self, node: Node) -> Effects:
        kind = node.kind
        match kind:
            case Assign(name):
                return Effects(writes=frozenset((name,)))
            case Op():
                reads = [self._read(given.operand) for given in kind.inputs]
                return _joined(*reads, *(self._write(output) for output in kind.outputs))
            case Transfer(source, dst) | CacheWrite(source, dst):
                return self._read(source) | self._write(dst)
            case CacheRead(src, dst):
                return self._read(src) | self._write(dst)
            case CacheReset(target):
                return self._write(target)
            case CacheIncrement(name) | CacheDecrement(name):
                return Effects(frozenset((name,)), frozenset((name,)))
            case Return(variables) | Yield(variables) | Await(variables):
                return Effects(reads=frozenset(variables))
            case Scope(_, body):
                return self._body(body)
            case Loop(_, _, start, end, body):
                return self._body(body) | self._names(start, end)
            case Branch():
                cond = frozenset(() if kind.cond is None else (kind.cond,))
                return _joined(Effects(cond), *(self.block(name) for name in branch_targets(node)))
            case _:
                return Effects()

    def _names(self, *exprs: Expr | None) -> Effects:
        found = {name for expr in exprs if expr is not None for name in names(expr)}
        return Effects(frozenset(found & self._variables))

    def _indices(self, access: Access) -> Effects:
        exprs = [
            expr
            for index in access.indices
            for expr in ((index.value,) if isinstance(index, Single) else (index.start, index.end))
        ]
        return self._names(*exprs)

    def _read(self, operand: Operand) -> Effects:
        if not isinstance(operand, Access):
            return Effects()
        return Effects(frozenset((operand.base,))) | self._indices(operand)

    def _write(self, access: Access) -> Effects:
        return Effects(writes=frozenset((access.base,))) | self._indices(access)


def _joined(*effects: Effects) -> Effects:
    total = Effects()
    for one in effects:
        total |= one
    return total


Reason = Literal["value", "overwrite", "barrier", "dep", "order"]


@dataclass(frozen=True)
class Dependency:
    """The node with index ``before`` must run before the one with index ``after``."""

    before: int
    after: int
    reason: Reason
    variable: str | None = None


def dependencies(bound: BoundGraph, block: Block) -> Iterator[Dependency]:
    """Which nodes of a block's body must stay in order, and why: values, overwrites, barriers, ``dep``."""
    last_write: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    barrier: int | None = None
    since_barrier: list[int] = []
    for position, node in enumerate(block.nodes):
        effects = bound.effects[node.index]
        if barrier is not None:
            yield Dependency(barrier, node.index, "barrier")
        if isinstance(node.kind, Barrier | Yield | Await | Branch | Return):
            reason: Reason = "barrier" if isinstance(node.kind, Barrier) else "order"
            yield from (Dependency(earlier, node.index, reason) for earlier in since_barrier)
            barrier, since_barrier = node.index, []
        if isinstance(node.kind, Dep):
            yield from _explicit(block, position, node.kind)
        for name in sorted(effects.reads):
            if name in last_write:
                yield Dependency(last_write[name], node.index, "value", name)
        for name in sorted(effects.writes):
            yield from (Dependency(reader, node.index, "overwrite", name) for reader in readers.pop(name, ()))
            if name in last_write and name not in effects.reads:
                yield Dependency(last_write[name], node.index, "overwrite", name)
            last_write[name] = node.index
        for name in effects.reads - effects.writes:
            readers.setdefault(name, []).append(node.index)
        if not isinstance(node.kind, Barrier | Dep):
            since_barrier.append(node.index)


def _explicit(block: Block, position: int, dep: Dep) -> Iterator[Dependency]:
    earlier = [node for node in block.nodes[:position] if node_name(node) == dep.after]
    later = [node for node in block.nodes[position:] if node_name(node) == dep.before]
    if earlier and later:
        yield Dependency(earlier[-1].index, later[0].index, "dep")
