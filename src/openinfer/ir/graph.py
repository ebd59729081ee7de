"""The graph: variables, sizes, and blocks of nodes.

Declarations, accesses and values compare by value. Nodes compare by content; their source location, index and uuid are
ignored.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import count
from types import MappingProxyType
from typing import Any, Literal
from uuid import UUID, uuid5

from openinfer.dtypes import DType
from openinfer.errors import GraphPlace, counted
from openinfer.ir.expr import ONE, Expr
from openinfer.ir.operand import Access, Operand
from openinfer.ir.values import AttrValue, InitValue

UUID_SPACE = UUID("6f1c2d0e-3b7a-5c7e-9d43-0a4f0c9b8e21")
"""The namespace for derived node uuids."""

Constraints = Mapping[str, AttrValue]
NO_CONSTRAINTS: Constraints = MappingProxyType({})


class MemoryKind(StrEnum):
    """Who fills a variable, who may write it, and how long it lives."""

    DYNAMIC = "dynamic"
    VOLATILE = "volatile"
    CONSTANT = "constant"
    PERSISTENT = "persistent"


@dataclass(frozen=True)
class SizeDecl:
    """A size that the graph declares: fixed (``:=``), or dynamic up to a bound (``<=``)."""

    name: str
    relation: Literal[":=", "<="]
    value: Expr
    span: GraphPlace | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Attribute:
    """An ``@attribute`` without a meaning to OpenInfer, which is kept."""

    name: str
    arguments: tuple[tuple[str | None, AttrValue], ...] = ()


@dataclass(frozen=True)
class VarDecl:
    """A declared variable."""

    name: str
    kind: MemoryKind
    dtype: DType
    dims: tuple[Expr, ...] = ()
    init: InitValue | None = None
    ref_name: str | None = None
    pattern: str | None = None
    table_indices: tuple[str, ...] = ()
    table: bool = False
    auto_dim: tuple[str, ...] = ()
    fixed: tuple[tuple[str, Expr], ...] = ()
    attrs: tuple[Attribute, ...] = ()
    span: GraphPlace | None = field(default=None, compare=False, repr=False)

    @property
    def is_indexed(self) -> bool:
        """Whether the variable is declared with indices: a prefix table, a cache table or an auto-dim matrix."""
        return bool(self.table_indices)


# --- node kinds -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Assign:
    """Declares a temporary. For ``t = op``, dtype and dims are None until a model is bound."""

    name: str
    dtype: DType | None
    dims: tuple[Expr, ...] | None


@dataclass(frozen=True)
class Input:
    """An operand of an op, given by position or by the name of the op's input."""

    operand: Operand
    name: str | None = None

    def __str__(self) -> str:
        return str(self.operand) if self.name is None else f"{self.name}={self.operand}"


@dataclass(frozen=True)
class Op:
    """A computation."""

    op: str
    inputs: tuple[Input, ...]
    attrs: tuple[tuple[str, AttrValue], ...]
    outputs: tuple[Access, ...]


@dataclass(frozen=True)
class Transfer:
    """Copies a value."""

    src: Operand
    dst: Access


@dataclass(frozen=True)
class Loop:
    """Repeats its body for each index from start to end, excluding end."""

    name: str
    index: str
    start: Expr
    end: Expr
    body: tuple["Node", ...]


@dataclass(frozen=True)
class Scope:
    """A named region."""

    name: str
    body: tuple["Node", ...]


@dataclass(frozen=True)
class Branch:
    """Runs another block, or one of two if there is a condition, then continues."""

    cond: str | None
    then_block: str
    else_block: str | None = None


CallArgument = Operand | Expr
"""An argument of a call: an operand or, for an index, an expression that is not an operand."""


@dataclass(frozen=True)
class BlockCall:
    """Runs a block with arguments, and writes what it returns to the outputs."""

    block: str
    args: tuple[CallArgument, ...]
    outputs: tuple[Access, ...] = ()


@dataclass(frozen=True)
class Return:
    """Ends a block; in entry it names the graph's outputs."""

    vars: tuple[str, ...] = ()


@dataclass(frozen=True)
class Barrier:
    """No node may move across it."""


@dataclass(frozen=True)
class Dep:
    """Keeps the nearest earlier node called ``after`` before the nearest later one called ``before``."""

    after: str
    before: str


@dataclass(frozen=True)
class CacheRead:
    """Reads persistent memory."""

    src: Access
    dst: Access


@dataclass(frozen=True)
class CacheWrite:
    """Writes persistent memory."""

    src: Operand
    dst: Access


@dataclass(frozen=True)
class CacheIncrement:
    """Adds to a persistent integer."""

    target: str
    amount: Expr = ONE


@dataclass(frozen=True)
class CacheDecrement:
    """Subtracts from a persistent integer."""

    target: str
    amount: Expr = ONE


@dataclass(frozen=True)
class CacheReset:
    """Resets persistent memory to its initial value."""

    target: Access


@dataclass(frozen=True)
class Yield:
    """Hands variables over to the blocks that await them."""

    vars: tuple[str, ...]


@dataclass(frozen=True)
class Await:
    """Waits for variables that were yielded."""

    vars: tuple[str, ...]


NodeKind = (
    Assign
    | Op
    | Transfer
    | Loop
    | Scope
    | Branch
    | BlockCall
    | Return
    | Barrier
    | Dep
    | CacheRead
    | CacheWrite
    | CacheIncrement
    | CacheDecrement
    | CacheReset
    | Yield
    | Await
)


@dataclass(frozen=True)
class Node:
    """A node of a block: one statement. ``index`` numbers nodes in source order, heads before bodies."""

    kind: NodeKind
    constraints: Constraints = field(default_factory=lambda: NO_CONSTRAINTS, hash=False)
    span: GraphPlace | None = field(default=None, compare=False, repr=False)
    given_uuid: UUID | None = field(default=None, compare=False, repr=False)
    index: int = field(default=-1, compare=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and _are_equal(self, other)

    def __hash__(self) -> int:
        return hash(self.kind)

    @cached_property
    def uuid(self) -> UUID:
        """The uuid given by another tool, or one derived from the node's content and position."""
        if self.given_uuid is not None:
            return self.given_uuid
        from openinfer.ir.text import node_head

        return uuid5(UUID_SPACE, f"{self.index} {node_head(self)}")

    @property
    def body(self) -> tuple["Node", ...]:
        """The nodes inside a loop or scope."""
        return self.kind.body if isinstance(self.kind, Loop | Scope) else ()


class BlockParamKind(StrEnum):
    """The kind of a block parameter."""

    TENSOR = "tensor"
    """A value; what the block writes to it stays in the block."""
    INDEX = "index"
    """An integer, used like the index of a loop."""
    PREFIX = "prefix"
    """A prefix table of the graph."""


@dataclass(frozen=True)
class BlockParam:
    """A parameter of a block; tensors have a type."""

    name: str
    kind: BlockParamKind
    dtype: DType | None = None
    dims: tuple[Expr, ...] = ()
    span: GraphPlace | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Block:
    """A named sequence of nodes. ``call`` runs a block that has parameters, or empty parentheses."""

    name: str
    nodes: tuple[Node, ...]
    constraints: Constraints = field(default_factory=lambda: NO_CONSTRAINTS, hash=False)
    span: GraphPlace | None = field(default=None, compare=False, repr=False)
    end: GraphPlace | None = field(default=None, compare=False, repr=False)
    """Where the block ends in its source."""
    params: tuple[BlockParam, ...] | None = None
    """The parameters that ``call`` fills; None for a block that ``branch`` runs."""

    @cached_property
    def locals(self) -> frozenset[str]:
        """The variables private to this block: parameters that are tensors, and assigned temporaries."""
        if self.params is None:
            return frozenset()
        given = (param.name for param in self.params if param.kind is BlockParamKind.TENSOR)
        assigned = (node.kind.name for node in walk(self.nodes) if isinstance(node.kind, Assign))
        return frozenset((*given, *assigned))

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """The names of its index parameters."""
        return tuple(param.name for param in self.params or () if param.kind is BlockParamKind.INDEX)


@dataclass(frozen=True)
class Graph:
    """A complete graph, as made by ``graph(text)``, ``Graph.from_json`` or ``GraphBuilder``, which number its nodes."""

    sizes: Mapping[str, SizeDecl]
    vars: Mapping[str, VarDecl]
    blocks: Mapping[str, Block]

    @classmethod
    def of(cls, sizes: Iterable[SizeDecl], variables: Iterable[VarDecl], blocks: Iterable[Block]) -> "Graph":
        """Build a graph from declarations and blocks, and number its nodes in the given order."""
        counter = count()
        return cls(
            {size.name: size for size in sizes},
            {variable.name: variable for variable in variables},
            {block.name: replace(block, nodes=_numbered(block.nodes, counter)) for block in blocks},
        )

    def __repr__(self) -> str:
        inputs = ", ".join(name for name, variable in self.vars.items() if variable.kind is MemoryKind.DYNAMIC)
        variables, blocks = counted(len(self.vars), "variable"), counted(len(self.blocks), "block")
        return f"<Graph: inputs {inputs or 'none'}; {variables}, {blocks}, {counted(self.node_count, 'node')}>"

    def _repr_html_(self) -> str:
        """The representation in notebooks."""
        from openinfer.ir.html import graph_html

        return graph_html(self)

    @property
    def node_count(self) -> int:
        """The number of nodes, nested ones included."""
        return sum(1 for _ in self.walk())

    def walk(self) -> Iterator[Node]:
        """All nodes, in the order of their indices."""
        for block in self.blocks.values():
            yield from walk(block.nodes)

    def to_text(self) -> str:
        """The graph as canonical source text."""
        from openinfer.ir.text import graph_text

        return graph_text(self)

    def to_json(self, *, spans: bool = False) -> dict[str, Any]:
        """The graph as plain JSON values; ``json.dumps(..., sort_keys=True)`` of them is byte-stable."""
        from openinfer.ir.to_json import graph_json

        return graph_json(self, spans=spans)

    @classmethod
    def from_json(
        cls, document: "dict[str, Any] | str | bytes", *, name: str = "<json>", strict: bool = False
    ) -> "Graph":
        """Read a graph from a JSON document, ours or another tool's; ``name`` identifies it in errors."""
        from openinfer.ir.from_json import read_graph

        return read_graph(document, name, strict=strict)


def walk(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes and those inside them, in preorder."""
    todo = [iter(nodes)]
    while todo:
        for node in todo[-1]:
            yield node
            if node.body:
                todo.append(iter(node.body))
                break
        else:
            todo.pop()


def _are_equal(first: Node, second: Node) -> bool:
    """Whether two nodes are equal, nested ones included. Not recursive: nesting may exceed Python's limit."""
    stack = [(first, second)]
    while stack:
        one, other = stack.pop()
        if one.constraints != other.constraints or len(one.body) != len(other.body):
            return False
        heads = [replace(kind, body=()) if isinstance(kind, Loop | Scope) else kind for kind in (one.kind, other.kind)]
        if heads[0] != heads[1]:
            return False
        stack.extend(zip(one.body, other.body, strict=True))
    return True


def _numbered(nodes: tuple[Node, ...], counter: Iterator[int]) -> tuple[Node, ...]:
    found = []
    for node in nodes:
        index = next(counter)
        kind = node.kind
        if isinstance(kind, Loop | Scope):
            kind = replace(kind, body=_numbered(kind.body, counter))
        found.append(Node(kind, node.constraints, node.span, node.given_uuid, index))
    return tuple(found)
