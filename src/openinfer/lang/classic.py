"""Translates the effects of the classic dialect to reads and writes of persistent memory."""

from collections.abc import Iterator

from lark import Tree

from openinfer.errors import Advice, Code, Fix, FixPlace
from openinfer.ir.expr import Expr
from openinfer.ir.graph import NO_CONSTRAINTS, Assign, CacheRead, CacheWrite, Node, NodeKind, VarDecl
from openinfer.ir.operand import Access, Single, Slice
from openinfer.ir.values import IntValue, as_expr
from openinfer.lang.declarations import Declarations
from openinfer.lang.literals import Syntax
from openinfer.lang.names import Names
from openinfer.lang.tokens import SourceToken
from openinfer.lang.trees import STree, is_operand, parts_of, word


class ClassicEffects:
    """Translates ``effect read`` and ``effect write`` of one source."""

    def __init__(self, text: Declarations, names: Names) -> None:
        self._text = text
        self._names = names

    def write(self, tree: STree) -> Iterator[Node]:
        """Write a slice of a buffer: an ``effect write`` with an index and a value."""
        call = self._effect(tree, "write", ("index", "value", "axis"))
        if call is None:
            return
        buffer, arguments = call
        if "value" not in arguments or not is_operand(arguments["value"]):
            self._text.report(Code.SYNTAX, "'effect write' needs value=, a variable", self._text.span(tree))
            return
        value = self._text.operand(arguments["value"])
        shape = self._names.dims_of(value.base) if isinstance(value, Access) and not value.bracketed else None
        target = self._slice(tree, buffer, arguments, shape)
        if target is not None:
            yield self._node(CacheWrite(value, target[0]), tree)

    def read(self, tree: STree) -> Iterator[Node]:
        """Read a slice of a buffer into a variable: an ``effect read`` with an index."""
        call = self._effect(tree, "read", ("index", "axis"))
        if call is None:
            return
        buffer, arguments = call
        names = tree.children[0]
        assert isinstance(names, Tree)
        name = word(names.children[0])
        if len(names.children) > 1:
            self._text.report(Code.SYNTAX, "'effect read' gives one value", names)
            return
        target = self._slice(tree, buffer, arguments, self._names.dims_of(name))
        if target is None:
            return
        if self._names.is_new(name):
            dims = tuple(dim for axis, dim in enumerate(buffer.dims) if axis != target[1])
            self._names.types[name] = (buffer.dtype, dims)
            yield self._node(Assign(name, buffer.dtype, dims), tree)
        yield self._node(CacheRead(target[0], Access(name, span=self._text.span(tree.children[0]))), tree)

    def _effect(self, tree: STree, verb: str, known: tuple[str, ...]) -> tuple[VarDecl, dict[str, Syntax]] | None:
        """The buffer and the named arguments of an effect."""
        words = [child for child in tree.children if isinstance(child, SourceToken)]
        if words[-1].value != verb:
            self._text.report(
                Code.SYNTAX, f"expected 'effect {verb}' here, found 'effect {words[-1].value}'", words[-1]
            )
            return None
        named: dict[str, Syntax] = {}
        buffer: VarDecl | None = None
        for position, argument in enumerate(parts_of(tree)["arguments"][0].children):
            assert isinstance(argument, Tree)
            *label, value = argument.children
            if position == 0 and not label and isinstance(value, SourceToken):
                buffer = self._text.vars.get(value.value)
                if buffer is None:
                    self._text.report(Code.UNKNOWN_VARIABLE, f"there is no state buffer {value.value!r}", value)
                    return None
            elif label and word(label[0]) in known and word(label[0]) not in named:
                named[word(label[0])] = value
            else:
                self._text.report(
                    Code.SYNTAX, f"'effect {verb}' takes a buffer, then {', '.join(known)} by name", argument
                )
                return None
        if buffer is None or "index" not in named:
            self._text.report(Code.SYNTAX, f"'effect {verb}' needs a buffer and index=", self._text.span(tree))
            return None
        return buffer, named

    def _slice(
        self, tree: STree, buffer: VarDecl, arguments: dict[str, Syntax], shape: tuple[Expr, ...] | None
    ) -> tuple[Access, int] | None:
        """The slice of a buffer with this shape, and the axis that the index selects from."""
        rank = len(buffer.dims)
        if "axis" in arguments:
            given = self._text.value(arguments["axis"])
            axis = given.value if isinstance(given, IntValue) else rank
            axes = [axis % rank] if rank and -rank <= axis < rank else []
        else:
            axes = [axis for axis in range(rank) if shape == buffer.dims[:axis] + buffer.dims[axis + 1 :]]
        if len(axes) != 1:
            message = f"the shapes do not tell which axis of {buffer.name!r} the index selects"
            named = [Fix(f"axis={axis}", place=FixPlace.ARGUMENT) for axis in range(rank)]
            advice = Advice(f"name it: axis=0 to axis={max(rank - 1, 0)}", *named)
            self._text.report(Code.UNKNOWN_AXIS, message, self._text.span(tree), advice)
            return None
        index = as_expr(self._text.value(arguments["index"]))
        if index is None:
            self._text.report(Code.BAD_INDEXING, "the index of an effect is an integer expression", arguments["index"])
            return None
        indices = tuple(Single(index) if axis == axes[0] else Slice() for axis in range(rank))
        return Access(buffer.name, indices, bracketed=True, span=self._text.span(tree)), axes[0]

    def _node(self, kind: NodeKind, tree: STree) -> Node:
        return Node(kind, NO_CONSTRAINTS, self._text.span(tree))
