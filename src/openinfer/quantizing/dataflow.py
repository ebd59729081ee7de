"""Reaching definitions: which writes of a variable reach which reads, across loops and scopes, block by block.

A definition is a node that writes a variable. Possible writes by other blocks, and the values at the start of a
step, are definitions from outside, with negative ids.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from openinfer.check.bound import BoundGraph
from openinfer.ir import (
    Access,
    Await,
    Block,
    BlockCall,
    Branch,
    Graph,
    Loop,
    MemoryKind,
    Node,
    Return,
    Scope,
    Yield,
    walk,
)
from openinfer.ir.uses import node_uses

Definitions = frozenset[int]
"""Node indices; negative ones stand for writes outside the block."""
_START = -1
_State = dict[str, Definitions]


@dataclass(frozen=True)
class FlowPlace:
    """Where a node stands: its block, the loops around it by index and by node (outermost first), and the scopes."""

    node: Node
    block: str
    loops: tuple[str, ...]
    scopes: tuple[str, ...]
    bodies: tuple[int, ...] = ()

    def is_beside(self, other: "FlowPlace") -> bool:
        """Whether both are in the same body, regardless of scopes."""
        return (self.block, self.bodies) == (other.block, other.bodies)


@dataclass(frozen=True)
class Dataflow:
    """What reaches what. Keys of ``reaching`` are a node and a variable that it reads."""

    places: Mapping[int, FlowPlace]
    reaching: Mapping[tuple[int, str], Definitions]
    readers: Mapping[tuple[int, str], frozenset[int]]
    """The nodes that may read a definition, by definition and variable."""
    seen_outside: frozenset[tuple[int, str]]
    """Definitions that something other than a node of the block reads: callers, other blocks, the next step."""

    def only(self, node: int, name: str) -> int | None:
        """The definition of a variable that a node reads, if it is the only one and a node; else None."""
        found = self.reaching.get((node, name), frozenset({_START}))
        one = next(iter(found)) if len(found) == 1 else _START
        return one if one >= 0 else None

    def is_closed(self, definition: int, name: str) -> bool:
        """Whether all readers of a definition are nodes that read no other definition."""
        users = self.readers.get((definition, name), frozenset())
        return (definition, name) not in self.seen_outside and all(
            self.only(user, name) == definition for user in users
        )


def dataflow(bound: BoundGraph, graph: Graph) -> Dataflow:
    """The dataflow of a graph whose types are in ``bound``."""
    flow = _Flow(_mentioned(graph), frozenset(bound.output_names) | _kept(graph))
    for block in graph.blocks.values():
        flow.block(block)
    readers: dict[tuple[int, str], set[int]] = {}
    for (user, name), found in flow.reaching.items():
        for one in found:
            readers.setdefault((one, name), set()).add(user)
    return Dataflow(
        flow.places,
        flow.reaching,
        {key: frozenset(users) for key, users in readers.items()},
        frozenset(flow.outside),
    )


def _kept(graph: Graph) -> frozenset[str]:
    """Variables whose value outlives a step or comes from the caller."""
    kinds = (MemoryKind.PERSISTENT, MemoryKind.DYNAMIC)
    return frozenset(name for name, variable in graph.vars.items() if variable.kind in kinds)


def _mentioned(graph: Graph) -> Mapping[str, frozenset[str]]:
    """The variables that each block mentions."""
    return {
        name: frozenset(
            base
            for node in walk(block.nodes)
            for base in (*_read(node), *(access.base for access in node_uses(node.kind).writes))
        )
        - block.locals
        for name, block in graph.blocks.items()
    }


def _read(node: Node) -> list[str]:
    """The variables that a node reads as operands."""
    return [one.operand.base for one in node_uses(node.kind).reads if isinstance(one.operand, Access)]


@dataclass
class _Flow:
    mentioned: Mapping[str, frozenset[str]]
    outputs: frozenset[str]
    places: dict[int, FlowPlace] = field(default_factory=dict)
    reaching: dict[tuple[int, str], Definitions] = field(default_factory=dict)
    outside: set[tuple[int, str]] = field(default_factory=set)
    name: str = ""
    elsewhere: frozenset[str] = frozenset()

    def block(self, block: Block) -> None:
        self.name = block.name
        others = (names for name, names in self.mentioned.items() if name != block.name)
        self.elsewhere = frozenset[str]().union(*others)
        end = self._nodes(block.nodes, {}, (), ())
        for name in end if block.name != "entry" else end.keys() & self.outputs:
            if name not in block.locals:
                self._see(end, name)

    def _see(self, state: _State, name: str) -> None:
        self.outside |= {(one, name) for one in state.get(name, ()) if one >= 0}

    def _nodes(self, nodes: Iterable[Node], state: _State, loops: tuple[Node, ...], scopes: tuple[str, ...]) -> _State:
        for node in nodes:
            self.places[node.index] = _placed(node, self.name, loops, scopes)
            match node.kind:
                case Loop(body=body):
                    once = self._nodes(body, dict(state), (*loops, node), scopes)
                    state = _joined(state, self._nodes(body, _joined(state, once), (*loops, node), scopes))
                case Scope(name=name, body=body):
                    state = self._nodes(body, state, loops, (*scopes, name))
                case _:
                    self._node(node, state)
        return state

    def _node(self, node: Node, state: _State) -> None:
        is_handing_over = isinstance(node.kind, Branch | BlockCall | Yield | Await)
        for name in _read(node):
            if isinstance(node.kind, Return) or is_handing_over:
                self._see(state, name)
            else:
                self.reaching[node.index, name] = state.get(name, frozenset({_START}))
        if is_handing_over:
            for name in self.elsewhere:
                self._see(state, name)
                state[name] = frozenset({-2 - node.index})
        for access in node_uses(node.kind).writes:
            own = frozenset({node.index})
            if access.bracketed:
                # A partial write keeps the rest of the old value, which readers of the whole then read.
                self._see(state, access.base)
                state[access.base] = frozenset({-2 - node.index})
            else:
                state[access.base] = own


def _placed(node: Node, block: str, loops: tuple[Node, ...], scopes: tuple[str, ...]) -> FlowPlace:
    indices = tuple(loop.kind.index for loop in loops if isinstance(loop.kind, Loop))
    return FlowPlace(node, block, indices, scopes, tuple(loop.index for loop in loops))


def _joined(one: _State, other: _State) -> _State:
    start = frozenset({_START})
    return {name: one.get(name, start) | other.get(name, start) for name in one.keys() | other.keys()}
