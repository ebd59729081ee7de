"""From the syntax tree to the graph; the classic dialect becomes the current one on the way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from lark import Tree

from openinfer.dtypes import DType, dtype_of
from openinfer.errors import Code, Diagnostic, Source
from openinfer.ir.expr import ONE, Expr
from openinfer.ir.graph import (
    NO_CONSTRAINTS,
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
    Constraints,
    Dep,
    Graph,
    Input,
    Loop,
    MemoryKind,
    Node,
    NodeKind,
    Op,
    Return,
    Scope,
    Transfer,
    VarDecl,
    Yield,
)
from openinfer.ir.operand import Access, Literal, Single, Slice
from openinfer.ir.values import AttrValue, InitValue, IntValue, as_expr
from openinfer.lang.declarations import Declarations
from openinfer.lang.literals import Syntax
from openinfer.lang.tokens import SourceToken

STree = Tree[SourceToken]


@dataclass(frozen=True)
class Parsed:
    """A graph, the places of its elements, and what the parser has to say about the text."""

    graph: Graph
    problems: list[Diagnostic]


def lower(source: Source, tree: STree) -> Parsed:
    """The graph of a syntax tree. Where ``problems`` holds errors, the graph is only a sketch."""
    lowering = _Lowering(source)
    content = tree.children[0]
    graph = lowering.graph(content.children[-1] if content.data == "wrapped" else content)  # type: ignore[union-attr, arg-type]
    return Parsed(graph, lowering.problems)


class _Lowering(Declarations):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.temporaries: set[str] = set()
        self.types: dict[str, tuple[DType, tuple[Expr, ...]]] = {}
        self.declared: set[str] = set()

    def graph(self, tree: STree) -> Graph:
        parts = [child for child in tree.children if isinstance(child, Tree)]
        for part in parts:
            if part.data != "block":
                self.section(part)
        self.temporaries = {name for part in parts if part.data == "block" for name in _temporaries(part)}
        blocks: dict[str, Block] = {}
        for part in parts:
            if part.data == "block":
                block = self._block(part)
                if block.name in blocks:
                    self.report(
                        Code.DUPLICATE_DECLARATION, f"the block {block.name!r} is defined twice", part.children[1]
                    )
                blocks.setdefault(block.name, block)
        return Graph.of(self.sizes.values(), self.vars.values(), blocks.values())

    def _block(self, tree: STree) -> Block:
        head, name, *inner, end = tree.children
        assert isinstance(name, SourceToken)
        rest = [child for child in inner if isinstance(child, Tree)]
        constraints = NO_CONSTRAINTS
        if rest and rest[0].data == "constraints":
            constraints = self._constraints([rest.pop(0)])
        nodes = tuple(self._nodes(rest))
        return Block(name.value, nodes, constraints, self.span(head, name), self.span(end))

    def _nodes(self, statements: Sequence[Syntax]) -> Iterator[Node]:
        for statement in statements:
            assert isinstance(statement, Tree)
            yield from _STATEMENTS[statement.data](self, statement)

    def _node(
        self, kind: NodeKind, tree: STree, last: Syntax | None = None, constraints: Constraints | None = None
    ) -> Node:
        return Node(kind, constraints or NO_CONSTRAINTS, self.span(tree, last))

    # --- ops ------------------------------------------------------------------------------------------------------

    def op(self, tree: STree) -> Iterator[Node]:
        name = _token(tree.children[1])
        parts = _parts(tree)
        inputs, attrs = self._call(parts.get("arguments", []))
        outputs = tuple(self.access(child) for child in parts["accesses"][0].children)
        constraints = self._constraints(parts.get("constraints", []))
        yield self._node(Op(name, inputs, attrs, outputs), tree, parts["accesses"][0], constraints)

    def inferred_op(self, tree: STree) -> Iterator[Node]:
        targets, _, op = tree.children[:3]
        assert isinstance(targets, Tree)
        parts = _parts(tree)
        inputs, attrs = self._call(parts.get("arguments", []))
        for name in map(_token, targets.children):
            if self._is_new(name):
                self.declared.add(name)
                yield self._node(Assign(name, None, None), tree)
        outputs = tuple(self.access(target) for target in targets.children)
        constraints = self._constraints(parts.get("constraints", []))
        yield self._node(Op(_token(op), inputs, attrs, outputs), tree, None, constraints)

    def _is_new(self, name: str) -> bool:
        return name not in self.vars and name not in self.types and name not in self.declared

    def _call(self, trees: list[STree]) -> tuple[tuple[Input, ...], tuple[tuple[str, AttrValue], ...]]:
        inputs: list[Input] = []
        attrs: list[tuple[str, AttrValue]] = []
        seen: set[str] = set()
        for argument in trees[0].children if trees else []:
            assert isinstance(argument, Tree)
            *label, value = argument.children
            if not label:
                if seen:
                    message = "inputs by position come before arguments with a name"
                    self.report(Code.POSITIONAL_AFTER_NAMED, message, argument)
                else:
                    inputs += self._by_position(value)
                continue
            name = _token(label[0])
            if name in seen:
                self.report(Code.REPEATED, f"the argument {name!r} is given twice", argument)
            seen.add(name)
            if self._is_input(value):
                inputs.append(Input(self.operand(value), name))
            else:
                found = self.value(value)
                attrs.append((name, replace(found, span=self.span(value)) if isinstance(found, InitValue) else found))
        return tuple(inputs), tuple(attrs)

    def _by_position(self, value: Syntax) -> Iterator[Input]:
        """An argument without a name: an operand, or nothing where it is wrong."""
        if _is_operand(value):
            yield Input(self.operand(value))
            return
        literal = self.value(value)
        if isinstance(literal, InitValue):
            yield Input(Literal(literal, self.span(value)))
            return
        if isinstance(value, SourceToken) and value.type == "DTYPE":
            message = f"'{value.value}' is a dtype and cannot be a variable"
            return self.report(Code.RESERVED_WORD, message, value, "a parameter is given by name: to=f32")
        if isinstance(value, Tree) and value.data == "operation":
            message, advice = (
                "an input is a variable or a number, not an expression",
                "compute it first: t = op add(a, b);",
            )
            return self.report(Code.SYNTAX, message, value, advice)
        message = "an input is a variable or a number; a parameter is given by name"
        return self.report(Code.SYNTAX, message, value, "write name=value")

    def _is_input(self, value: Syntax) -> bool:
        """Whether a named argument can only be an operand: parameters take constants, and scalars at that."""
        if isinstance(value, Tree):
            return value.data in ("indexed", "model")
        if value.type != "IDENT":
            return False
        declared = self.vars.get(value.value)
        if declared is None:
            return value.value in self.temporaries
        return declared.kind is not MemoryKind.CONSTANT or bool(declared.dims)

    def _constraints(self, trees: list[STree]) -> Constraints:
        found: dict[str, AttrValue] = {}
        for tree in trees:
            for item in tree.children:
                assert isinstance(item, Tree)
                key, value = item.children
                if _token(key) in found:
                    self.report(Code.REPEATED, f"the constraint {_token(key)!r} is given twice", item)
                found[_token(key)] = self.value(value)
        return MappingProxyType(found) if found else NO_CONSTRAINTS

    # --- other statements -----------------------------------------------------------------------------------------

    def assign(self, tree: STree) -> Iterator[Node]:
        _, name, dtype, *dims = tree.children
        shape = self.dims(dims[0] if dims and isinstance(dims[0], Tree) else None)
        kind = Assign(_token(name), dtype_of(_token(dtype)), shape)
        self.types[kind.name] = (dtype_of(_token(dtype)), shape)
        yield self._node(kind, tree, dims[0] if dims and dims[0].children else dtype)  # type: ignore[union-attr]

    def transfer(self, tree: STree) -> Iterator[Node]:
        _, src, dst = tree.children
        yield self._node(Transfer(self.operand(src), self.access(dst)), tree)

    def loop(self, tree: STree) -> Iterator[Node]:
        _, name, index, start, _, end, body = tree.children
        assert isinstance(body, Tree)
        nodes = tuple(self._nodes([child for child in body.children if isinstance(child, Tree)]))
        kind = Loop(_token(name), _token(index), self.expr(start), self.expr(end), nodes)
        yield self._node(kind, tree, end)

    def scope(self, tree: STree) -> Iterator[Node]:
        _, name, *body = tree.children
        assert isinstance(name, SourceToken)
        yield self._node(Scope(self.string(name), tuple(self._nodes(body))), tree, name)

    def branch(self, tree: STree) -> Iterator[Node]:
        names = [_token(child) for child in tree.children[1:]]
        if len(names) == 1:
            yield self._node(Branch(None, names[0]), tree)
        elif len(names) == 3:
            yield self._node(Branch(*names), tree)
        else:
            message = "branch takes a block, or a condition and two blocks"
            self.report(
                Code.SYNTAX, message, self.span(tree), "branch block;  or  branch condition then_block else_block;"
            )

    def return_(self, tree: STree) -> Iterator[Node]:
        yield self._node(Return(_names(tree)), tree)

    def barrier(self, tree: STree) -> Iterator[Node]:
        yield self._node(Barrier(), tree)

    def dep(self, tree: STree) -> Iterator[Node]:
        after, before = ("".join(_token(_only(child)).split()) for child in tree.children[1:])
        yield self._node(Dep(after, before), tree)

    def cache_read(self, tree: STree) -> Iterator[Node]:
        yield self._node(CacheRead(self.access(tree.children[1]), self.access(tree.children[2])), tree)

    def cache_write(self, tree: STree) -> Iterator[Node]:
        yield self._node(CacheWrite(self.operand(tree.children[1]), self.access(tree.children[2])), tree)

    def cache_increment(self, tree: STree) -> Iterator[Node]:
        yield self._node(CacheIncrement(_token(tree.children[-1]), self._amount(tree)), tree)

    def cache_decrement(self, tree: STree) -> Iterator[Node]:
        yield self._node(CacheDecrement(_token(tree.children[-1]), self._amount(tree)), tree)

    def _amount(self, tree: STree) -> Expr:
        return self.expr(tree.children[1]) if len(tree.children) == 3 else ONE

    def cache_reset(self, tree: STree) -> Iterator[Node]:
        yield self._node(CacheReset(self.access(tree.children[1])), tree)

    def yield_(self, tree: STree) -> Iterator[Node]:
        yield self._node(Yield(_names(tree)), tree)

    def await_(self, tree: STree) -> Iterator[Node]:
        yield self._node(Await(_names(tree)), tree)

    # --- classic effects ------------------------------------------------------------------------------------------

    def effect_write(self, tree: STree) -> Iterator[Node]:
        call = self._effect(tree, "write", ("index", "value", "axis"))
        if call is None:
            return
        buffer, arguments = call
        if "value" not in arguments or not _is_operand(arguments["value"]):
            self.report(Code.SYNTAX, "'effect write' needs value=, a variable", self.span(tree))
            return
        value = self.operand(arguments["value"])
        shape = self._dims_of(value.base) if isinstance(value, Access) and not value.bracketed else None
        target = self._slice(tree, buffer, arguments, shape)
        if target is not None:
            yield self._node(CacheWrite(value, target[0]), tree)

    def effect_read(self, tree: STree) -> Iterator[Node]:
        call = self._effect(tree, "read", ("index", "axis"))
        if call is None:
            return
        buffer, arguments = call
        names = tree.children[0]
        assert isinstance(names, Tree)
        name = _token(names.children[0])
        if len(names.children) > 1:
            self.report(Code.SYNTAX, "'effect read' gives one value", names)
            return
        target = self._slice(tree, buffer, arguments, self._dims_of(name))
        if target is None:
            return
        if self._is_new(name):
            dims = tuple(dim for axis, dim in enumerate(buffer.dims) if axis != target[1])
            self.types[name] = (buffer.dtype, dims)
            yield self._node(Assign(name, buffer.dtype, dims), tree)
        yield self._node(CacheRead(target[0], Access(name, span=self.span(tree.children[0]))), tree)

    def _effect(self, tree: STree, verb: str, known: tuple[str, ...]) -> tuple[VarDecl, dict[str, Syntax]] | None:
        """The buffer an effect is about and its named arguments."""
        words = [child for child in tree.children if isinstance(child, SourceToken)]
        if words[-1].value != verb:
            self.report(Code.SYNTAX, f"expected 'effect {verb}' here, found 'effect {words[-1].value}'", words[-1])
            return None
        named: dict[str, Syntax] = {}
        buffer: VarDecl | None = None
        for position, argument in enumerate(_parts(tree)["arguments"][0].children):
            assert isinstance(argument, Tree)
            *label, value = argument.children
            if position == 0 and not label and isinstance(value, SourceToken):
                buffer = self.vars.get(value.value)
                if buffer is None:
                    self.report(Code.UNKNOWN_VARIABLE, f"there is no state buffer {value.value!r}", value)
                    return None
            elif label and _token(label[0]) in known and _token(label[0]) not in named:
                named[_token(label[0])] = value
            else:
                self.report(Code.SYNTAX, f"'effect {verb}' takes a buffer, then {', '.join(known)} by name", argument)
                return None
        if buffer is None or "index" not in named:
            self.report(Code.SYNTAX, f"'effect {verb}' needs a buffer and index=", self.span(tree))
            return None
        return buffer, named

    def _slice(
        self, tree: STree, buffer: VarDecl, arguments: dict[str, Syntax], shape: tuple[Expr, ...] | None
    ) -> tuple[Access, int] | None:
        """The slice of a buffer that has this shape, and the axis the index chooses from."""
        rank = len(buffer.dims)
        if "axis" in arguments:
            given = self.value(arguments["axis"])
            axis = given.value if isinstance(given, IntValue) else rank
            axes = [axis % rank] if rank and -rank <= axis < rank else []
        else:
            axes = [axis for axis in range(rank) if shape == buffer.dims[:axis] + buffer.dims[axis + 1 :]]
        if len(axes) != 1:
            message = f"which axis of {buffer.name!r} the index chooses from cannot be told from the shapes"
            self.report(Code.UNKNOWN_AXIS, message, self.span(tree), f"name it: axis=0 to axis={max(rank - 1, 0)}")
            return None
        index = as_expr(self.value(arguments["index"]))
        if index is None:
            self.report(Code.BAD_INDEXING, "the index of an effect is an integer expression", arguments["index"])
            return None
        indices = tuple(Single(index) if axis == axes[0] else Slice() for axis in range(rank))
        return Access(buffer.name, indices, bracketed=True, span=self.span(tree)), axes[0]

    def _dims_of(self, name: str) -> tuple[Expr, ...] | None:
        if name in self.vars:
            return self.vars[name].dims
        return self.types[name][1] if name in self.types else None


_STATEMENTS: dict[str, Callable[[_Lowering, STree], Iterator[Node]]] = {
    name: getattr(_Lowering, name)
    for name in (
        *(
            "op",
            "inferred_op",
            "effect_read",
            "effect_write",
            "assign",
            "transfer",
            "loop",
            "scope",
            "branch",
            "return_",
        ),
        *("barrier", "dep", "yield_", "await_"),
        *("cache_read", "cache_write", "cache_increment", "cache_decrement", "cache_reset"),
    )
}


def _temporaries(tree: STree) -> Iterator[str]:
    """The names that assignments in a block declare."""
    for statement in tree.children:
        if not isinstance(statement, Tree):
            continue
        if statement.data == "assign":
            yield _token(statement.children[1])
        elif statement.data in ("inferred_op", "effect_read"):
            yield from _names(statement)
        elif statement.data in ("loop", "loop_body", "scope"):
            yield from _temporaries(statement)


def _token(syntax: Syntax) -> str:
    assert isinstance(syntax, SourceToken), syntax
    return syntax.value


def _only(syntax: Syntax) -> Syntax:
    return syntax.children[0] if isinstance(syntax, Tree) else syntax


def _parts(tree: STree) -> dict[str, list[STree]]:
    found: dict[str, list[STree]] = {}
    for child in tree.children:
        if isinstance(child, Tree):
            found.setdefault(str(child.data), []).append(child)
    return found


def _names(tree: STree) -> tuple[str, ...]:
    trees = [child for child in tree.children if isinstance(child, Tree) and child.data == "names"]
    return tuple(_token(token) for child in trees for token in child.children)


def _is_operand(syntax: Syntax) -> bool:
    return syntax.type == "IDENT" if isinstance(syntax, SourceToken) else syntax.data in ("indexed", "model")
