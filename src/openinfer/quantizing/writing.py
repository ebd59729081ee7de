"""Writes the nodes of a new graph one by one, each with the nodes of the old graph that it came from."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from openinfer.ir import Access, Assign, Block, Graph, Input, Loop, Node, Op, Operand, Scope, VarDecl, walk
from openinfer.ir.graph import NO_CONSTRAINTS, Constraints, NodeKind
from openinfer.ir.uses import node_uses
from openinfer.ir.values import AttrValue
from openinfer.quantizing.declarations import NewDeclarations

Attrs = tuple[tuple[str, AttrValue], ...]


@dataclass(frozen=True)
class WrittenGraph:
    """A new graph, the origins of its nodes in the old one, and the nodes by the tokens that writing them returned."""

    graph: Graph
    origins: tuple[tuple[int, ...], ...]
    by_token: Mapping[int, int]

    def after(self, first: "WrittenGraph | None") -> "WrittenGraph":
        """The same graph with origins before an earlier rewrite, ``first``, if there was one."""
        if first is None:
            return self
        origins = (tuple(old for new in olds for old in first.origins[new]) for olds in self.origins)
        return replace(self, origins=tuple(origins))


@dataclass
class NodeWriter:
    """Writes one body at a time. Until all nodes are numbered, the index of each is a token."""

    inferred: set[str]
    """Temporaries that have no type yet: an untyped assign goes before their first write."""
    nodes: list[Node] = field(default_factory=list)
    _origins: list[list[int]] = field(default_factory=list)
    _pending: list[int] = field(default_factory=list)

    def came_to(self, node: int) -> None:
        """Record this node as an origin of whatever is written next."""
        self._pending.append(node)

    def write(self, kind: NodeKind, constraints: Constraints = NO_CONSTRAINTS) -> int:
        """Add a node and return its token."""
        for access in kind.outputs if isinstance(kind, Op) else ():
            if access.base in self.inferred:
                self.inferred.discard(access.base)
                self.nodes.append(Node(Assign(access.base, None, None), index=self._token()))
        token = self._token()
        self.nodes.append(Node(kind, constraints, index=token))
        return token

    def op(
        self,
        op: str,
        operands: list[Operand],
        output: Access,
        attrs: Attrs = (),
        constraints: Constraints = NO_CONSTRAINTS,
    ) -> int:
        """Add an op with one result and return its token."""
        return self.write(Op(op, tuple(map(Input, operands)), attrs, (output,)), constraints)

    def split(self, source: Access, results: list[Access], attrs: Attrs) -> int:
        """Add a split and return its token."""
        return self.write(Op("split", (Input(source),), attrs, tuple(results)))

    def _token(self) -> int:
        self._origins.append(self._pending)
        self._pending = []
        return len(self._origins) - 1

    def finished(self, graph: Graph, blocks: list[Block], declarations: NewDeclarations) -> WrittenGraph:
        """The graph, with temporaries assigned beside the variables they belong to, and without unused ones."""
        used = {name for block in blocks for name in _used(block)}
        before = {name for block in graph.blocks.values() for name in _used(block)}
        gone = before - used
        placed = [replace(block, nodes=_assigned(block.nodes, declarations, gone)) for block in blocks]
        rest = tuple(Node(assign) for assign in declarations.others())
        placed = [_with_first(block, rest) if block.name == "entry" else block for block in placed]
        tokens = [node.index for block in placed for node in walk(block.nodes)]
        origins = tuple(tuple(self._origins[token]) if token >= 0 else () for token in tokens)
        variables: list[VarDecl] = declarations.variables(graph)
        found = Graph.of(graph.sizes.values(), variables, placed)
        return WrittenGraph(found, origins, {token: index for index, token in enumerate(tokens) if token >= 0})


def _used(block: Block) -> set[str]:
    """The variables that the nodes of a block use, other than by assigning them."""
    found = set()
    for node in walk(block.nodes):
        if isinstance(node.kind, Assign):
            continue
        uses = node_uses(node.kind)
        found |= {access.base for access in uses.writes}
        found |= {given.operand.base for given in uses.reads if isinstance(given.operand, Access)}
    return found


def _assigned(nodes: tuple[Node, ...], declarations: NewDeclarations, gone: set[str]) -> tuple[Node, ...]:
    found: list[Node] = []
    for node in nodes:
        kind = node.kind
        if isinstance(kind, Loop | Scope):
            found.append(replace(node, kind=replace(kind, body=_assigned(kind.body, declarations, gone))))
        elif isinstance(kind, Assign):
            found += [node] if kind.name not in gone else []
            found += [Node(assign) for assign in declarations.assigned_beside(kind.name)]
        else:
            found.append(node)
    return tuple(found)


def _with_first(block: Block, assigns: tuple[Node, ...]) -> Block:
    """A block with assigns inserted after those that it begins with."""
    count = 0
    while count < len(block.nodes) and isinstance(block.nodes[count].kind, Assign):
        count += 1
    return replace(block, nodes=(*block.nodes[:count], *assigns, *block.nodes[count:]))
