"""Specializes blocks with parameters: one copy for each combination of prefix tables and of sizes private to the block.

In the result every parameter is a tensor or an index, and the variables of a block have unique names such as
``layer.h``. The first copy keeps the name of its block and the indices of its nodes; further ones are called
``layer.2`` and so on, with indices after all others.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from openinfer.check.effects import EffectsOf
from openinfer.check.indices import Around
from openinfer.check.named import Named
from openinfer.check.operands import OperandTypes
from openinfer.check.problems import Problems, ReportedError
from openinfer.check.typing import Typing
from openinfer.errors import Code, Diagnostic
from openinfer.ir import (
    Access,
    Assign,
    Block,
    BlockCall,
    BlockParam,
    BlockParamKind,
    CallArgument,
    Graph,
    Literal,
    Loop,
    ModelRef,
    Node,
    NodeKind,
    Scope,
    walk,
)
from openinfer.ir.call_rules import declared_at
from openinfer.ir.expr import Expr, Ref, names
from openinfer.ir.operand import index_of
from openinfer.ir.renaming import Renaming
from openinfer.ir.rules import blocks_run
from openinfer.loops.dim import Dim, expr_of

MOST_COPIES = 10_000
"""The maximum number of copies of all blocks together."""
MOST_DEEP = 200
"""The maximum depth of calls among blocks whose types depend on their calls."""


@dataclass(frozen=True)
class Specialised:
    """A graph without generic blocks."""

    graph: Graph
    origins: Mapping[int, int]
    """For nodes of further copies, the original node; both by index."""


def specialised(graph: Graph, named: Named, problems: Problems) -> Specialised | None:
    """Specialize every block with parameters for the types it is called with; None if that fails."""
    if all(block.params is None for block in graph.blocks.values()):
        return Specialised(graph, {})
    found = _Specialising(graph, named, problems).run()
    return None if problems.has_errors else found


@dataclass(frozen=True)
class _Choice:
    """What a copy is specialized for: the tables of its parameters, and the values of its private sizes."""

    tables: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, Expr] = field(default_factory=dict)

    def key(self, block: str) -> tuple[object, ...]:
        """The key that identifies equal copies."""
        return (block, tuple(self.tables.items()), tuple((name, str(size)) for name, size in self.sizes.items()))


class _Specialising:
    """Copies blocks as calls are found: first in blocks without parameters, then in the copies."""

    def __init__(self, graph: Graph, named: Named, problems: Problems) -> None:
        self._graph = graph
        self._named = named
        self._problems = problems
        self._copies: dict[tuple[object, ...], Block] = {}
        self._counts: dict[str, int] = {}
        self._targets: dict[int, BlockCall] = {}
        """For each call, by node index, the call of a copy that replaces it."""
        self._numbers = count(graph.node_count)
        self._origins: dict[int, int] = {}
        self._callers = {name: node for node in reversed([*graph.walk()]) for name in blocks_run(node)}
        """For each block and copy, the first node that runs it."""
        self._waiting: list[Block] = []

    def run(self) -> Specialised:
        """Specialize until no calls are left."""
        plain = [block for block in self._graph.blocks.values() if block.params is None]
        self._add_closed()
        self._waiting += plain
        waves = 0
        while self._waiting and not self._problems.has_errors:
            waiting, self._waiting = self._waiting, []
            self._type(waiting)
            waves += 1
            if waves > MOST_DEEP:
                message = f"blocks with sizes or tables of their own call each other more than {MOST_DEEP} deep"
                self._problems.report(Code.TOO_DEEP, message, waiting[0].span)
        made = sorted((*plain, *self._copies.values()), key=lambda block: block.nodes[0].index)
        targeted = (replace(block, nodes=self._targeted(block.nodes)) for block in made)
        found = Graph(self._graph.sizes, self._graph.vars, {block.name: block for block in targeted})
        return Specialised(found, self._origins)

    def _add_closed(self) -> None:
        """Copy, once, the blocks whose types do not depend on their callers, whether they are called or not."""
        for block in self._graph.blocks.values():
            kinds = {param.kind for param in block.params or ()}
            is_open = block.params is None or BlockParamKind.PREFIX in kinds or any(self._own_sizes(block))
            if not is_open:
                self._copy(block, _Choice())

    def _targeted(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        found = []
        for node in nodes:
            kind: NodeKind = self._targets.get(node.index, node.kind)
            if isinstance(kind, Loop | Scope):
                kind = replace(kind, body=self._targeted(kind.body))
            found.append(node if kind is node.kind else replace(node, kind=kind))
        return tuple(found)

    # --- types ----------------------------------------------------------------------------------------------------

    def _type(self, blocks: list[Block]) -> None:
        """Type blocks with symbolic dynamic sizes; calls are resolved along the way."""
        # Branch targets must exist; their contents have been checked before.
        others = {name: Block(name, ()) for name, block in self._graph.blocks.items() if block.params is None}
        graph = Graph(self._graph.sizes, self._graph.vars, others | {block.name: block for block in blocks})
        temporaries = {node.kind.name for node in graph.walk() if isinstance(node.kind, Assign)}
        temporaries |= {name for block in blocks for name in block.locals}
        symbols = {name: Dim(bound, Ref(name)) for name, bound in self._named.sizes.bounds.items()}
        named = Named.of(self._named, temporaries, symbols)
        effects = EffectsOf(graph, graph.vars.keys() | temporaries, follows_calls=False)
        effects.callers |= self._callers
        Typing(graph, named, effects, self._problems, self._resolve).run()

    def _resolve(self, node: Node, kind: BlockCall, operands: OperandTypes, loops: Around) -> None:
        """Redirect the call of a block to a copy."""
        block = self._graph.blocks[kind.block]
        assert block.params is not None
        given = dict(zip((param.name for param in block.params), kind.args, strict=True))
        tables = {param.name: str(given[param.name]) for param in block.params if param.kind is BlockParamKind.PREFIX}
        sizes = self._sizes_of(block, given, node, operands, loops)
        copy = self._copy(block, _Choice(tables, sizes), node)
        kept = [param for param in block.params if param.kind is not BlockParamKind.PREFIX]
        args = tuple(
            _as_index(given[param.name]) if param.kind is BlockParamKind.INDEX else given[param.name] for param in kept
        )
        self._targets[node.index] = BlockCall(copy.name, args, kind.outputs)

    def _own_sizes(self, block: Block) -> Iterator[str]:
        """The sizes that a block's arguments determine: those in its parameter types that the graph does not define."""
        dims = (dim for param in block.params or () for dim in param.dims)
        found = dict.fromkeys(name for dim in dims for name in names(dim))
        return (name for name in found if self._named.sizes.get(name) is None)

    def _sizes_of(
        self, block: Block, given: Mapping[str, CallArgument], node: Node, operands: OperandTypes, loops: Around
    ) -> dict[str, Expr]:
        """The values of a block's private sizes: extents of arguments whose dimension is just that size."""
        own = set(self._own_sizes(block))
        found: dict[str, Expr] = {}
        for param in block.params or () if own else ():
            operand = given[param.name]
            if param.kind is not BlockParamKind.TENSOR or not isinstance(operand, Access | ModelRef):
                continue
            shape = operands.type(operand, node, loops).shape
            for dim, extent in zip(param.dims, shape, strict=False):
                if not isinstance(dim, Ref) or dim.name not in own or dim.name in found:
                    continue
                if extent is None:
                    message = f"the length of {operand} is known only at run time, and {block.name!r} needs {dim.name}"
                    raise self._refused(message, node, block, "declare its type: assign t: f32[...]; then transfer it")
                found[dim.name] = expr_of(extent)
        self._require_visible(block, found, node)
        return found

    def _require_visible(self, block: Block, sizes: Mapping[str, Expr], node: Node) -> None:
        """Refuse a dynamic size that a name in the block would shadow."""
        hiding = {one.kind.index for one in walk(block.nodes) if isinstance(one.kind, Loop)}
        hiding |= {*block.indices, *self._graph.vars}
        for name, size in sizes.items():
            for used in names(size):
                if used in hiding:
                    message = f"the size {name!r} of {block.name!r} is {size} here, but {used!r} is another name in it"
                    raise self._refused(message, node, block, f"give the size {used!r} another name")

    def _refused(self, message: str, node: Node, block: Block, advice: str) -> ReportedError:
        self._problems.found.append(Diagnostic(Code.BAD_CALL, message, node.span, advice, (declared_at(block),)))
        return ReportedError()

    # --- copies ---------------------------------------------------------------------------------------------------

    def _copy(self, block: Block, choice: _Choice, node: Node | None = None) -> Block:
        key = choice.key(block.name)
        if key not in self._copies:
            if len(self._copies) == MOST_COPIES:
                message = f"blocks are called with more than {MOST_COPIES:,} different types"
                self._problems.report(Code.OUT_OF_MEMORY, message, None if node is None else node.span)
                raise ReportedError
            self._copies[key] = self._made(block, choice)
            if node is not None:
                self._callers[self._copies[key].name] = node
            self._waiting.append(self._copies[key])
        return self._copies[key]

    def _made(self, block: Block, choice: _Choice) -> Block:
        number = self._counts[block.name] = self._counts.get(block.name, 0) + 1
        name = block.name if number == 1 else f"{block.name}.{number}"
        variables = {one: f"{name}.{one}" for one in block.locals} | dict(choice.tables)
        renaming = Renaming(variables, choice.sizes, frozenset(block.indices))
        nodes = renaming.nodes(block.nodes, self._renamed_call)
        params = tuple(
            _renamed(param, renaming) for param in block.params or () if param.kind is not BlockParamKind.PREFIX
        )
        numbered = self._numbered(nodes, block.nodes, is_first=number == 1)
        return replace(block, name=name, nodes=numbered, params=params)

    def _renamed_call(self, renaming: Renaming, kind: BlockCall) -> BlockCall:
        params = self._graph.blocks[kind.block].params or ()
        args = tuple(
            renaming.expr(_as_index(given)) if param.kind is BlockParamKind.INDEX else renaming.argument(given)
            for param, given in zip(params, kind.args, strict=True)
        )
        return BlockCall(kind.block, args, tuple(map(renaming.access, kind.outputs)))

    def _numbered(self, nodes: tuple[Node, ...], originals: tuple[Node, ...], *, is_first: bool) -> tuple[Node, ...]:
        """The nodes of a copy; each keeps the uuid of its original."""
        found = []
        for node, original in zip(nodes, originals, strict=True):
            index = original.index if is_first else next(self._numbers)
            if not is_first:
                self._origins[index] = original.index
            kind = node.kind
            if isinstance(kind, Loop | Scope):
                kind = replace(kind, body=self._numbered(kind.body, original.body, is_first=is_first))
            found.append(Node(kind, node.constraints, node.span, original.uuid, index))
        return tuple(found)


def _renamed(param: BlockParam, renaming: Renaming) -> BlockParam:
    if param.kind is BlockParamKind.INDEX:
        return param
    return replace(param, name=renaming.name(param.name), dims=tuple(map(renaming.dimension, param.dims)))


def _as_index(given: CallArgument) -> Expr:
    found = index_of(given) if isinstance(given, Access | ModelRef | Literal) else given
    assert found is not None, "what is no index is refused before"
    return found
