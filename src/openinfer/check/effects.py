"""What nodes read and write, and the order that this imposes on them."""

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Literal

from openinfer.check.bound import BoundGraph
from openinfer.check.order import after_needs
from openinfer.check.reach import Effects, NameBits, Reach, Reached
from openinfer.ir import (
    Access,
    Await,
    Barrier,
    Block,
    BlockCall,
    Branch,
    Dep,
    Graph,
    Loop,
    Node,
    Op,
    Operand,
    Return,
    Scope,
    Single,
    Yield,
    walk,
)
from openinfer.ir.expr import Expr, names
from openinfer.ir.rules import blocks_run, node_name
from openinfer.ir.uses import node_uses
from openinfer.ir.values import VarValue

NameSet = frozenset[str]
_NONE = Effects()


class EffectsOf:
    """The effects of every node of a graph, and of its blocks with all that they run."""

    def __init__(self, graph: Graph, variables: Set[str], *, follows_calls: bool = True) -> None:
        self._variables = variables
        self._follows_calls = follows_calls
        self.nodes: dict[int, Effects] = {}
        reached: dict[str, Reach] = {}
        self.reached = Reached(NameBits(variables), reached)
        self.callees_first = tuple(_callees_first(graph, follows_calls=follows_calls))
        """The blocks, callees before callers."""
        self.callers = {name: node for node in reversed([*graph.walk()]) for name in blocks_run(node)}
        """For each block, the first node that runs it."""
        for name in self.callees_first:
            block = graph.blocks[name]
            found = self.reached.of(self._body(block.nodes, frozenset(block.indices)))
            # Nothing else touches the variables of a block that is called.
            own = self.reached.bits.of(block.locals)
            reached[name] = Reach(found.reads & ~own, found.writes & ~own) if own else found

    def _body(self, nodes: Iterable[Node], indices: NameSet) -> Effects:
        reads: set[str] = set()
        writes: set[str] = set()
        indexing: set[str] = set()
        calls: set[str] = set()
        for node in nodes:
            found = self.nodes[node.index] = self._node(node, indices)
            reads |= found.reads
            writes |= found.writes
            indexing |= found.indexing
            calls |= found.calls
        return Effects(frozenset(reads), frozenset(writes), frozenset(indexing), frozenset(calls))

    def _node(self, node: Node, indices: NameSet) -> Effects:
        kind = node.kind
        found = node_uses(kind)
        reads = (self._read(given.operand, indices) for given in found.reads)
        writes = (self._write(access, indices) for access in found.writes)
        own = _joined(*reads, *writes, self._names(found.exprs, indices))
        match kind:
            case Op():
                return own | self._parameters(kind)
            case Scope(_, body):
                return self._body(body, indices)
            case Loop(_, index, _, _, body):
                return own | self._body(body, indices | {index})
            case BlockCall() if not self._follows_calls:
                return own
            case Branch() | BlockCall():
                # What indices read inside a block concerns only that block.
                return own | Effects(calls=frozenset(blocks_run(node)))
            case _:
                return own

    def _parameters(self, kind: Op) -> Effects:
        found = {value.name for _, value in kind.attrs if isinstance(value, VarValue)}
        return Effects(frozenset(found & self._variables))

    def _names(self, exprs: Iterable[Expr | None], indices: NameSet) -> Effects:
        """The variables in index expressions; the index of a loop shadows a variable of the same name."""
        found = {name for expr in exprs if expr is not None for name in names(expr)}
        used = frozenset((found & self._variables) - indices)
        return Effects(used, indexing=used) if used else _NONE

    def _chosen(self, access: Access, indices: NameSet) -> Effects:
        exprs = [
            expr
            for index in access.indices
            for expr in ((index.value,) if isinstance(index, Single) else (index.start, index.end))
        ]
        return self._names(exprs, indices)

    def _read(self, operand: Operand, indices: NameSet) -> Effects:
        if not isinstance(operand, Access):
            return _NONE
        return Effects(frozenset((operand.base,)) & self._variables) | self._chosen(operand, indices)

    def _write(self, access: Access, indices: NameSet) -> Effects:
        return Effects(writes=frozenset((access.base,))) | self._chosen(access, indices)


def _joined(*effects: Effects) -> Effects:
    none = frozenset[str]()
    return Effects(
        none.union(*(one.reads for one in effects)),
        none.union(*(one.writes for one in effects)),
        none.union(*(one.indexing for one in effects)),
        none.union(*(one.calls for one in effects)),
    )


def _callees_first(graph: Graph, *, follows_calls: bool) -> Iterator[str]:
    """The blocks, callees before callers; there are no cycles."""
    called = {
        block.name: [
            name
            for node in walk(block.nodes)
            if follows_calls or not isinstance(node.kind, BlockCall)
            for name in blocks_run(node)
        ]
        for block in graph.blocks.values()
    }
    return after_needs(called, called.__getitem__)


# --- order ----------------------------------------------------------------------------------------------------------

Reason = Literal["value", "overwrite", "barrier", "dep", "order"]


@dataclass(frozen=True)
class Dependency:
    """The node with index ``before`` must run before the one with index ``after``."""

    before: int
    after: int
    reason: Reason
    variable: str | None = None


def dependencies(bound: BoundGraph, block: Block) -> Iterator[Dependency]:
    """The pairs of nodes in a block that must stay in order, with reasons: values, overwrites, barriers, ``dep``.

    Nodes are compared with their siblings: those in a loop or scope with each other, and the loop or scope as a whole
    with the nodes around it.
    """
    bodies: list[tuple[Node, ...]] = [block.nodes, *(node.body for node in walk(block.nodes) if node.body)]
    for body in bodies:
        yield from _fenced(body)
        yield from _touching(bound, body)
    yield from _explicit(block)


def _fenced(body: tuple[Node, ...]) -> Iterator[Dependency]:
    """Nodes do not move across a barrier, nor across a node that runs other blocks or hands variables over."""
    fence: tuple[int, Reason] | None = None
    since: list[int] = []
    for node in body:
        if isinstance(node.kind, Dep):
            continue
        if fence is not None:
            yield Dependency(fence[0], node.index, fence[1])
        reason = _fence(node)
        if reason is None:
            since.append(node.index)
            continue
        yield from (Dependency(earlier, node.index, reason) for earlier in since)
        fence, since = (node.index, reason), []


def _fence(node: Node) -> Reason | None:
    """Why nodes do not move across a node: it is, or contains, a barrier or a node that runs blocks or hands over."""
    inside = [own.kind for own in walk((node,))]
    if any(isinstance(kind, Barrier) for kind in inside):
        return "barrier"
    return "order" if any(isinstance(kind, Yield | Await | Branch | BlockCall | Return) for kind in inside) else None


def _touching(bound: BoundGraph, body: tuple[Node, ...]) -> Iterator[Dependency]:
    """A value is written before it is read, and not overwritten before it has been read."""
    last_write: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for node in body:
        effects = bound.reached.whole(bound.effects[node.index])
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


def _explicit(block: Block) -> Iterator[Dependency]:
    """The order that ``dep`` asks for, between the nearest nodes before and after it or the bodies they are in."""
    latest: dict[str, tuple[int, ...]] = {}
    asked: dict[str, list[tuple[int, ...]]] = {}
    for node, path in _with_paths(block):
        if isinstance(node.kind, Dep):
            earlier = latest.get(node.kind.after)
            if earlier is not None:
                asked.setdefault(node.kind.before, []).append(earlier)
            continue
        name = node_name(node)
        if name is None:
            continue
        for earlier in asked.pop(name, ()):
            before, after = next((one, two) for one, two in zip(earlier, path, strict=False) if one != two)
            yield Dependency(before, after, "dep")
        latest[name] = path


def _with_paths(block: Block) -> Iterator[tuple[Node, tuple[int, ...]]]:
    """The nodes of a block in text order, each with the indices of its enclosing nodes and its own."""
    todo: list[tuple[Node, tuple[int, ...]]] = [(node, ()) for node in reversed(block.nodes)]
    while todo:
        node, around = todo.pop()
        path = (*around, node.index)
        yield node, path
        todo += [(inner, path) for inner in reversed(node.body)]
