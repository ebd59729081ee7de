"""Validates operands and results of nodes before any model is known: names, indices, memory."""

from collections.abc import Iterable

from openinfer.errors import Advice, Code, Diagnostic, GraphPlace, fixes_of, nearest
from openinfer.ir.advice import how_to_declare
from openinfer.ir.block_names import BlockNames
from openinfer.ir.declaration_rules import PLACEHOLDER
from openinfer.ir.expr import Expr, constant, names
from openinfer.ir.graph import (
    Await,
    BlockCall,
    BlockParamKind,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Graph,
    Loop,
    MemoryKind,
    Node,
    Op,
    Return,
    Transfer,
    VarDecl,
    Yield,
)
from openinfer.ir.operand import Access, Literal, ModelRef, Operand, Single, index_of
from openinfer.ir.rules import indexing_problem

MOST_ADVISED = 20
"""The number of errors that get advice based on a search through all names."""


class OperandRules:
    """Checks what nodes access; ``names`` are those of the current block, and all problems go to one list."""

    def __init__(self, graph: Graph, found: list[Diagnostic]) -> None:
        self.graph = graph
        self.found = found
        self.names = BlockNames()
        self.undeclared: set[tuple[str | None, str]] = set()
        """Undeclared results, with the block if it has its own names."""

    def _report(self, code: Code, message: str, span: GraphPlace | None, advice: str | None = None) -> None:
        self.found.append(Diagnostic(code, message, span, advice))

    def _nearest(self, name: str, candidates: Iterable[str]) -> str | None:
        """Advice for the first errors only: comparing thousands of names with thousands takes minutes."""
        return nearest(name, candidates) if len(self.found) < MOST_ADVISED else None

    def node(self, node: Node, indices: tuple[str, ...]) -> None:
        """Check everything that a node itself reads, writes and evaluates, inside loops with these indices."""
        match node.kind:
            case Op(_, inputs, _, outputs):
                for given in inputs:
                    self._read(given.operand, node, indices)
                for output in outputs:
                    self._write(output, node, indices)
                if len(set(outputs)) < len(outputs):
                    self._report(Code.REPEATED, "an op writes the same output twice", node.span)
            case Transfer(src, dst):
                self._read(src, node, indices)
                self._write(dst, node, indices)
            case CacheRead(src, dst):
                self._cache(src, node, indices)
                self._write(dst, node, indices)
            case CacheWrite(source, dst):
                self._read(source, node, indices)
                self._cache(dst, node, indices)
            case CacheReset(target):
                self._cache(target, node, indices, whole=True)
            case CacheIncrement(name, amount) | CacheDecrement(name, amount):
                self._counter(name, node)
                self._index_expr(amount, node.span, indices)
            case Yield(variables) | Await(variables) | Return(variables):
                for name in variables:
                    self._returned(name, node)
            case Branch(str(cond)):
                self._variable(cond, node.span)
            case BlockCall():
                self._call(node, node.kind, indices)
            case Loop(_, _, start, end):
                for bound in (start, end):
                    self._index_expr(bound, node.span, indices)

    def _variable(self, name: str, span: GraphPlace | None, writer: Node | None = None) -> VarDecl | None:
        """The declaration of a variable; None for a temporary, and for an unknown name, which is reported.

        An undeclared result is reported where it is written, not where it is read afterwards.
        """
        if name in self.graph.vars:
            return self.graph.vars[name]
        if name in self.names.prefixes:
            message = f"{name!r} is a prefix table; choose from it, as in {name}[i]"
            self._report(Code.BAD_INDEXING, message, span)
        elif name not in self.names.temporaries and (self.names.block, name) not in self.undeclared:
            advice = self._nearest(name, [*self.graph.vars, *self.names.temporaries])
            if name in self.names.hidden:
                advice = f"{name!r} belongs to entry: make it a parameter of {self.names.block!r}"
            elif writer is not None:
                self.undeclared.add((self.names.block, name))
                declared = how_to_declare(name, writer, self.graph)
                near = f"{advice} or " * (advice is not None)
                advice = Advice(f"{near}{declared}", *fixes_of(advice), *declared.fixes)
            self._report(Code.UNKNOWN_VARIABLE, f"there is no variable {name!r}", span, advice)
        return None

    def _read(self, operand: Operand, node: Node, indices: tuple[str, ...]) -> None:
        if isinstance(operand, Literal):
            return
        if isinstance(operand, ModelRef):
            self._model_ref(operand, node, indices)
            return
        span = operand.span or node.span
        if self._is_loop_index(operand.base, indices):
            if operand.bracketed:
                message = f"{operand.base!r} is the index of a loop, a scalar, and has nothing to choose from"
                self._report(Code.BAD_INDEXING, message, span)
            return
        if operand.base in self.names.prefixes and operand.bracketed:
            self._prefix(operand, span, indices)
            return
        self._indexing(operand, self._variable(operand.base, span), span, indices)

    def _prefix(self, access: Access, span: GraphPlace | None, indices: tuple[str, ...]) -> None:
        """Check an entry of a prefix-table parameter; its number of indices is known only at the calls."""
        if not access.indices or not all(isinstance(index, Single) for index in access.indices):
            message = f"{access.base!r} names one tensor at a time, as in {access.base}[i]"
            self._report(Code.BAD_INDEXING, message, span)
        self._index_exprs(access, span, indices)

    def _call(self, node: Node, kind: BlockCall, indices: tuple[str, ...]) -> None:
        target = self.graph.blocks.get(kind.block)
        params = target.params or () if target is not None else ()
        for position, given in enumerate(kind.args):
            wants = params[position].kind if position < len(params) else None
            if not isinstance(given, Access | ModelRef | Literal):
                self._index_expr(given, node.span, indices)
            elif wants is BlockParamKind.INDEX and (expr := index_of(given)) is not None:
                self._index_expr(expr, given.span or node.span, indices)
            elif wants is not BlockParamKind.PREFIX:
                self._read(given, node, indices)
        for output in kind.outputs:
            self._write(output, node, indices)

    def _returned(self, name: str, node: Node) -> None:
        """Check a variable that a node hands on as a whole."""
        if name in self.names.indices:
            message = f"{name!r} is an index, and a block returns tensors"
            self._report(Code.BAD_CALL, message, node.span, f"give it a tensor: transfer {name} >> t;")
            return
        variable = self._variable(name, node.span)
        if variable is not None and variable.is_indexed and self.names.block is not None:
            self._report(Code.BAD_CALL, f"{name!r} is a table, and a block returns tensors", node.span)

    def _model_ref(self, operand: ModelRef, node: Node, indices: tuple[str, ...]) -> None:
        for index in PLACEHOLDER.findall(operand.name) if operand.formatted else ():
            if index not in indices:
                message = f"{index!r} is not the index of a loop around this node"
                self._report(Code.UNKNOWN_INDEX, message, operand.span or node.span, nearest(index, indices))

    def _is_loop_index(self, name: str, indices: tuple[str, ...]) -> bool:
        """Whether an operand is the index of an enclosing loop; a variable of that name takes precedence."""
        return name in indices and name not in self.graph.vars and name not in self.names.temporaries

    def _write(self, access: Access, node: Node, indices: tuple[str, ...]) -> None:
        span = access.span or node.span
        if self._is_loop_index(access.base, indices):
            message = f"{access.base!r} is the index of a loop and cannot be written"
            if access.base in self.names.indices:
                message = f"{access.base!r} is an index, which cannot be written"
            self._report(Code.CONSTANT_WRITTEN, message, span)
            return
        if access.base in self.names.prefixes:
            message = f"{access.base!r} is a parameter that is a prefix table, which the block cannot write"
            self._report(Code.CONSTANT_WRITTEN, message, span)
            return
        variable = self._variable(access.base, span, node)
        if variable is not None and variable.kind is MemoryKind.CONSTANT:
            self._report(Code.CONSTANT_WRITTEN, f"{access.base!r} is constant and cannot be written", span)
        self._indexing(access, variable, span, indices)

    def _cache(self, access: Access, node: Node, indices: tuple[str, ...], *, whole: bool = False) -> None:
        span = access.span or node.span
        variable = self._variable(access.base, span)
        if access.base in self.names.temporaries or (
            variable is not None and variable.kind is not MemoryKind.PERSISTENT
        ):
            kind = variable.kind.value if variable is not None else "temporary"
            message = f"{access.base!r} is {kind}; cache operations work on persistent memory"
            self._report(Code.BAD_CACHE_TARGET, message, span)
            return
        self._indexing(access, variable, span, indices, prefix=whole)

    def _counter(self, name: str, node: Node) -> None:
        variable = self._variable(name, node.span)
        is_temporary = name in self.names.temporaries
        if variable is None and not is_temporary:
            return
        if (
            variable is None
            or variable.kind is not MemoryKind.PERSISTENT
            or variable.dims
            or variable.is_indexed
            or variable.dtype.kind not in ("int", "uint")
        ):
            message = f"{name!r} is not a persistent integer scalar, which is what can be counted"
            self._report(Code.BAD_CACHE_TARGET, message, node.span)

    def _indexing(
        self,
        access: Access,
        variable: VarDecl | None,
        span: GraphPlace | None,
        indices: tuple[str, ...],
        *,
        prefix: bool = False,
    ) -> None:
        self._index_exprs(access, span, indices)
        problem = indexing_problem(access, variable, self._rank(access.base), prefix=prefix)
        if problem is not None:
            self._report(Code.BAD_INDEXING, problem, span)

    def _index_exprs(self, access: Access, span: GraphPlace | None, indices: tuple[str, ...]) -> None:
        for index in access.indices:
            for expr in (index.value,) if isinstance(index, Single) else (index.start, index.end):
                if expr is not None:
                    self._index_expr(expr, span, indices)
            if isinstance(index, Single) and (constant(index.value) or 0) < 0:
                message = f"the index {index} is negative"
                self._report(Code.NEGATIVE_INDEX, message, span, "only the ends of slices count from the end")

    def _rank(self, name: str) -> int | None:
        """The rank of a variable; None for ``t = op``, where it is not known yet."""
        if name in self.graph.vars:
            return len(self.graph.vars[name].dims)
        temporary = self.names.temporaries.get(name)
        return None if temporary is None or temporary.dims is None else len(temporary.dims)

    def _index_expr(self, expr: Expr, span: GraphPlace | None, indices: tuple[str, ...]) -> None:
        """Check the names in an index: loop indices, integer scalars or sizes; undeclared names may be sizes."""
        for name in names(expr):
            if name in self.names.hidden and name not in indices and name not in self.graph.vars:
                self._variable(name, span)
            elif name not in indices and not self._may_be_index(name):
                message = f"{name!r} is used in an index, but is not an integer scalar"
                self._report(Code.BAD_INDEXING, message, span)

    def _may_be_index(self, name: str) -> bool:
        """Whether a name may be an integer scalar: sizes always are, and for ``t = op`` it is not known yet."""
        if name in self.graph.vars:
            variable = self.graph.vars[name]
            return not variable.dims and not variable.is_indexed and variable.dtype.kind in ("int", "uint")
        temporary = self.names.temporaries.get(name)
        if temporary is None or temporary.dtype is None:
            return name not in self.names.prefixes
        return not temporary.dims and temporary.dtype.kind in ("int", "uint")
