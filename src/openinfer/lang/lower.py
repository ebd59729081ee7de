"""Lowers the syntax tree to a graph; the classic dialect is translated to the current one along the way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from lark import Tree

from openinfer.dtypes import dtype_of
from openinfer.errors import Code, Diagnostic, Source
from openinfer.ir.expr import ONE, Expr
from openinfer.ir.graph import (
    NO_CONSTRAINTS,
    Assign,
    Await,
    Barrier,
    Block,
    BlockCall,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Constraints,
    Dep,
    Graph,
    Loop,
    Node,
    NodeKind,
    Op,
    Return,
    Scope,
    Transfer,
    Yield,
)
from openinfer.lang.blocks import params_of
from openinfer.lang.calls import Calls
from openinfer.lang.classic import ClassicEffects
from openinfer.lang.declarations import Declarations
from openinfer.lang.literals import Syntax
from openinfer.lang.names import Names
from openinfer.lang.tokens import SourceToken
from openinfer.lang.trees import STree, names_of, parts_of, word


@dataclass(frozen=True)
class Parsed:
    """A graph, with the problems of its text."""

    graph: Graph
    problems: list[Diagnostic]


def lower(source: Source, tree: STree) -> Parsed:
    """Lower a syntax tree to a graph. If ``problems`` contains errors, the graph is incomplete."""
    text = Declarations(source)
    content = tree.children[0]
    if isinstance(content, Tree) and content.data == "wrapped":
        content = content.children[-1]
    assert isinstance(content, Tree)
    graph = _Lowering(text).graph(content)
    return Parsed(graph, text.problems)


class _Lowering:
    def __init__(self, text: Declarations) -> None:
        self._text = text
        self._temporaries: set[str] = set()
        self._names = Names(self._text.vars)
        self._calls = Calls(self._text, self._temporaries)
        self.effects = ClassicEffects(self._text, self._names)

    def graph(self, tree: STree) -> Graph:
        parts = [child for child in tree.children if isinstance(child, Tree)]
        for part in parts:
            if part.data != "block":
                self._text.section(part)
        self._temporaries.update(name for part in parts if part.data == "block" for name in _temporaries(part))
        blocks: dict[str, Block] = {}
        for part in parts:
            if part.data == "block":
                block = self._block(part)
                if block.name in blocks:
                    self._text.report(
                        Code.DUPLICATE_DECLARATION, f"the block {block.name!r} is defined twice", part.children[1]
                    )
                blocks.setdefault(block.name, block)
        return Graph.of(self._text.sizes.values(), self._text.vars.values(), blocks.values())

    def _block(self, tree: STree) -> Block:
        head, name, *inner, end = tree.children
        assert isinstance(name, SourceToken)
        rest = [child for child in inner if isinstance(child, Tree)]
        params = params_of(self._text, rest.pop(0)) if rest and rest[0].data == "params" else None
        constraints = NO_CONSTRAINTS
        if rest and rest[0].data == "constraints":
            constraints = self._calls.constraints([rest.pop(0)])
        typed = None if params is None else {one.name: (one.dtype, one.dims) for one in params if one.dtype is not None}
        with self._names.block(typed):
            nodes = tuple(self._nodes(rest))
        return Block(name.value, nodes, constraints, self._text.span(head, name), self._text.span(end), params)

    def _nodes(self, statements: Sequence[Syntax]) -> Iterator[Node]:
        for statement in statements:
            assert isinstance(statement, Tree)
            yield from _STATEMENTS[statement.data](self, statement)

    def _node(
        self, kind: NodeKind, tree: STree, last: Syntax | None = None, constraints: Constraints | None = None
    ) -> Node:
        return Node(kind, constraints or NO_CONSTRAINTS, self._text.span(tree, last))

    # --- ops ------------------------------------------------------------------------------------------------------

    def op(self, tree: STree) -> Iterator[Node]:
        name = word(tree.children[1])
        parts = parts_of(tree)
        inputs, attrs = self._calls.arguments(parts.get("arguments", []))
        outputs = tuple(self._text.access(child) for child in parts["accesses"][0].children)
        constraints = self._calls.constraints(parts.get("constraints", []))
        yield self._node(Op(name, inputs, attrs, outputs), tree, parts["accesses"][0], constraints)

    def inferred_op(self, tree: STree) -> Iterator[Node]:
        targets, _, op = tree.children[:3]
        assert isinstance(targets, Tree)
        parts = parts_of(tree)
        inputs, attrs = self._calls.arguments(parts.get("arguments", []))
        for name in map(word, targets.children):
            if self._names.is_new(name):
                self._names.inferred.add(name)
                yield self._node(Assign(name, None, None), tree)
        outputs = tuple(self._text.access(target) for target in targets.children)
        constraints = self._calls.constraints(parts.get("constraints", []))
        yield self._node(Op(word(op), inputs, attrs, outputs), tree, None, constraints)

    # --- other statements -----------------------------------------------------------------------------------------

    def assign(self, tree: STree) -> Iterator[Node]:
        _, name, dtype, *dims = tree.children
        extents = dims[0] if dims and isinstance(dims[0], Tree) else None
        shape = self._text.dims(extents)
        kind = Assign(word(name), dtype_of(word(dtype)), shape)
        self._names.types[kind.name] = (dtype_of(word(dtype)), shape)
        yield self._node(kind, tree, extents if extents is not None and extents.children else dtype)

    def transfer(self, tree: STree) -> Iterator[Node]:
        _, src, dst = tree.children
        yield self._node(Transfer(self._text.operand(src), self._text.access(dst)), tree)

    def loop(self, tree: STree) -> Iterator[Node]:
        _, name, index, start, _, end, body = tree.children
        assert isinstance(body, Tree)
        nodes = tuple(self._nodes([child for child in body.children if isinstance(child, Tree)]))
        kind = Loop(word(name), word(index), self._text.expr(start), self._text.expr(end), nodes)
        yield self._node(kind, tree, end)

    def scope(self, tree: STree) -> Iterator[Node]:
        _, name, *body = tree.children
        assert isinstance(name, SourceToken)
        yield self._node(Scope(self._text.string(name), tuple(self._nodes(body))), tree, name)

    def branch(self, tree: STree) -> Iterator[Node]:
        names = [word(child) for child in tree.children[1:]]
        if len(names) == 1:
            yield self._node(Branch(None, names[0]), tree)
        elif len(names) == 3:
            yield self._node(Branch(*names), tree)
        else:
            message = "branch takes a block, or a condition and two blocks"
            self._text.report(
                Code.SYNTAX,
                message,
                self._text.span(tree),
                "branch block;  or  branch condition then_block else_block;",
            )

    def call(self, tree: STree) -> Iterator[Node]:
        parts = parts_of(tree)
        given = parts["call_arguments"][0].children if "call_arguments" in parts else []
        args = tuple(self._calls.call_argument(one) for one in given)
        outputs = tuple(self._text.access(child) for tree in parts.get("accesses", []) for child in tree.children)
        yield self._node(BlockCall(word(tree.children[1]), args, outputs), tree)

    def return_(self, tree: STree) -> Iterator[Node]:
        yield self._node(Return(names_of(tree)), tree)

    def barrier(self, tree: STree) -> Iterator[Node]:
        yield self._node(Barrier(), tree)

    def dep(self, tree: STree) -> Iterator[Node]:
        after, before = ("".join(word(_only(child)).split()) for child in tree.children[1:])
        yield self._node(Dep(after, before), tree)

    def cache_read(self, tree: STree) -> Iterator[Node]:
        yield self._node(CacheRead(self._text.access(tree.children[1]), self._text.access(tree.children[2])), tree)

    def cache_write(self, tree: STree) -> Iterator[Node]:
        yield self._node(CacheWrite(self._text.operand(tree.children[1]), self._text.access(tree.children[2])), tree)

    def cache_increment(self, tree: STree) -> Iterator[Node]:
        yield self._node(CacheIncrement(word(tree.children[-1]), self._amount(tree)), tree)

    def cache_decrement(self, tree: STree) -> Iterator[Node]:
        yield self._node(CacheDecrement(word(tree.children[-1]), self._amount(tree)), tree)

    def cache_reset(self, tree: STree) -> Iterator[Node]:
        yield self._node(CacheReset(self._text.access(tree.children[1])), tree)

    def yield_(self, tree: STree) -> Iterator[Node]:
        yield self._node(Yield(names_of(tree)), tree)

    def await_(self, tree: STree) -> Iterator[Node]:
        yield self._node(Await(names_of(tree)), tree)

    def _amount(self, tree: STree) -> Expr:
        return self._text.expr(tree.children[1]) if len(tree.children) == 3 else ONE


_STATEMENTS: dict[str, Callable[[_Lowering, STree], Iterator[Node]]] = {
    **{
        name: getattr(_Lowering, name)
        for name in (
            *("op", "inferred_op", "assign", "transfer", "loop", "scope", "branch", "call", "return_"),
            *("barrier", "dep", "yield_", "await_"),
            *("cache_read", "cache_write", "cache_increment", "cache_decrement", "cache_reset"),
        )
    },
    "effect_read": lambda lowering, tree: lowering.effects.read(tree),
    "effect_write": lambda lowering, tree: lowering.effects.write(tree),
}


def _temporaries(tree: STree) -> Iterator[str]:
    """The names declared by parameters and assignments of a block."""
    for statement in tree.children:
        if not isinstance(statement, Tree):
            continue
        if statement.data == "assign":
            yield word(statement.children[1])
        elif statement.data == "params":
            yield from (word(param.children[0]) for param in statement.children if isinstance(param, Tree))
        elif statement.data in ("inferred_op", "effect_read"):
            yield from names_of(statement)
        elif statement.data in ("loop", "loop_body", "scope"):
            yield from _temporaries(statement)


def _only(syntax: Syntax) -> Syntax:
    return syntax.children[0] if isinstance(syntax, Tree) else syntax
