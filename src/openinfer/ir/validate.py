"""What can be wrong with a graph before any model is known: declarations, names, control flow, tables.

Every check adds to one list, so that all problems are reported together. Types and shapes need a model's sizes and are
checked when the graph is bound.
"""

from collections.abc import Iterable, Iterator

from openinfer.errors import Code, Diagnostic, GraphPlace, nearest
from openinfer.ir.advice import how_to_declare
from openinfer.ir.block_names import BlockNames, block_names
from openinfer.ir.call_rules import call_problems
from openinfer.ir.declaration_rules import PLACEHOLDER, declaration_problems, dimension_problems
from openinfer.ir.expr import Expr, constant, names
from openinfer.ir.graph import (
    Assign,
    Await,
    Block,
    BlockCall,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Dep,
    Graph,
    Loop,
    MemoryKind,
    Node,
    Op,
    ParamKind,
    Return,
    Scope,
    Transfer,
    VarDecl,
    Yield,
    walk,
)
from openinfer.ir.operand import Access, Literal, ModelRef, Operand, Single, index_of
from openinfer.ir.rules import awaited, blocks_run, indexing_problem, is_consumer, node_name

_MOST_ADVISED = 20


def validate(graph: Graph, *, strict: bool = False, end: GraphPlace | None = None) -> list[Diagnostic]:
    """All structural problems of a graph; in strict mode, attributes we do not know are problems too.

    ``end`` is where its text or document ends: what is missing from the whole of it is missing there.
    """
    return _Validation(graph, strict=strict, end=end).run()


class _Validation:
    def __init__(self, graph: Graph, *, strict: bool, end: GraphPlace | None) -> None:
        self.graph = graph
        self.end = end
        self.strict = strict
        self.found: list[Diagnostic] = []
        self.undeclared: set[tuple[str | None, str]] = set()
        """Results that are declared nowhere, with the blocks that have names of their own."""
        self.scopes = block_names(graph)
        self.names = BlockNames()
        """What the block that is judged declares itself."""

    def run(self) -> list[Diagnostic]:
        self.found += declaration_problems(self.graph, strict=self.strict)
        if "entry" not in self.graph.blocks:
            first = next(iter(self.graph.blocks.values()), None)
            advice = nearest("entry", self.graph.blocks) or "execution starts at 'block entry { ... }'"
            place = self.end if first is None else first.span
            self._report(Code.NO_ENTRY, "there is no block 'entry'", place, advice)
        self.found += call_problems(self.graph)
        shared: set[str] = set()
        for block in self.graph.blocks.values():
            self.names = self.scopes[block.name]
            self._block(block)
            assigned = shared if block.params is None else {param.name for param in block.params}
            self._body(block, block.nodes, block.indices, assigned)
        self._branch_cycles()
        self._hand_overs()
        return self.found

    def _report(self, code: Code, message: str, span: GraphPlace | None, advice: str | None = None) -> None:
        self.found.append(Diagnostic(code, message, span, advice))

    def _nearest(self, name: str, candidates: Iterable[str]) -> str | None:
        """Advice for the first errors; comparing thousands of names with thousands takes minutes."""
        return nearest(name, candidates) if len(self.found) < _MOST_ADVISED else None

    # --- blocks ---------------------------------------------------------------------------------------------------

    def _block(self, block: Block) -> None:
        consumer = is_consumer(block)
        terminators = (Return, Yield) if consumer else (Return,)
        last = block.nodes[-1] if block.nodes else None
        if not any(isinstance(node.kind, terminators) for node in block.nodes):
            words = "'return;' or 'yield ...;'" if consumer else "'return;'"
            span = block.end or (last.span if last is not None else block.span)
            self._report(Code.NO_TERMINATOR, f"the block {block.name!r} does not end with {words}", span)
        for node in block.nodes[:-1]:
            if isinstance(node.kind, terminators):
                message = f"the block {block.name!r} ends here, but there are nodes after this one"
                self._report(Code.AFTER_TERMINATOR, message, node.span)
        earliest, latest = _occurrences(block)
        for position, node in enumerate(walk(block.nodes)):
            if isinstance(node.kind, Dep):
                earlier = [name for name, at in earliest.items() if at < position]
                later = [name for name, at in latest.items() if at > position]
                self._dep(block, node, earlier, later)
            if isinstance(node.kind, Yield | Await) and block.name != "entry":
                self._hand_over(block, node)

    def _hand_over(self, block: Block, node: Node) -> None:
        word = "yield" if isinstance(node.kind, Yield) else "await"
        if not is_consumer(block):
            message = f"'{word}' stands in {block.name!r}, which is neither entry nor a block that begins with 'await'"
            self._report(Code.BAD_YIELD, message, node.span)
        elif word == "await" and node is not block.nodes[0]:
            self._report(Code.BAD_YIELD, "a consumer awaits once, at its beginning", node.span)

    def _dep(self, block: Block, node: Node, earlier: list[str], later: list[str]) -> None:
        assert isinstance(node.kind, Dep)
        for name, present, where in ((node.kind.after, earlier, "before"), (node.kind.before, later, "after")):
            if name not in present:
                advice = self._nearest(name, present)
                message = f"there is no {name!r} {where} this dep in the block {block.name!r}"
                self._report(Code.UNMATCHED_DEP, message, node.span, advice)

    def _body(self, block: Block, nodes: Iterable[Node], indices: tuple[str, ...], assigned: set[str]) -> None:
        top = nodes is block.nodes
        for node in nodes:
            kind = node.kind
            self._operands(node, indices)
            match kind:
                case Assign():
                    self._assign(block, node, kind, assigned)
                case Loop():
                    if kind.index in indices:
                        message = f"an outer loop already uses the index {kind.index!r}"
                        self._report(Code.DUPLICATE_DECLARATION, message, node.span)
                    self._body(block, kind.body, (*indices, kind.index), assigned)
                case Scope():
                    self._body(block, kind.body, indices, assigned)
                case Return() if not top:
                    self._report(Code.RETURN_IN_LOOP, "'return' cannot stand inside a loop or scope", node.span)
                case Yield() | Await() if not top:
                    message = "'yield' and 'await' cannot stand inside a loop or scope"
                    self._report(Code.BAD_YIELD, message, node.span)
                case Branch():
                    self._branch(node, kind)

    def _assign(self, block: Block, node: Node, kind: Assign, assigned: set[str]) -> None:
        for dim in kind.dims or ():
            self.found += dimension_problems(dim, node.span)
        if block.name != "entry" and block.params is None:
            message = f"'assign' belongs to entry, not to {block.name!r}"
            self._report(Code.ASSIGN_OUTSIDE_ENTRY, message, node.span, "declare the variable in entry: all are global")
        if kind.name in self.graph.vars or kind.name in assigned:
            self._report(Code.DUPLICATE_DECLARATION, f"the variable {kind.name!r} is declared twice", node.span)
        assigned.add(kind.name)

    # --- control flow between blocks ------------------------------------------------------------------------------

    def _branch(self, node: Node, kind: Branch) -> None:
        for name in (kind.then_block, kind.else_block):
            if name is None:
                continue
            target = self.graph.blocks.get(name)
            if target is None:
                advice = nearest(name, self.graph.blocks)
                self._report(Code.UNKNOWN_BLOCK, f"there is no block {name!r}", node.span, advice)
            elif target.params is not None:
                message, advice = f"{name!r} has parameters: it is called, not branched to", f"call {name}(...);"
                self._report(Code.BAD_BRANCH_TARGET, message, node.span, advice)
            elif name == "entry" or is_consumer(target):
                reason = (
                    "where execution starts" if name == "entry" else "a consumer, which runs when its input is yielded"
                )
                message = f"{name!r} is {reason}, and cannot be the target of a branch"
                self._report(Code.BAD_BRANCH_TARGET, message, node.span)

    def _branch_cycles(self) -> None:
        """Report each block that can reach itself, once per cycle."""
        targets: dict[str, list[tuple[str, Node]]] = {}
        for block in self.graph.blocks.values():
            targets[block.name] = [
                (name, node)
                for node in walk(block.nodes)
                for name in blocks_run(node)
                if name in self.graph.blocks and name != "entry"
            ]
        done: set[str] = set()
        for start, jumps in targets.items():
            stack: list[tuple[str, Iterator[tuple[str, Node]]]] = [(start, iter(jumps))] if start not in done else []
            path = {start: None}  # in order, and quick to search
            while stack:
                name, rest = stack[-1]
                following = next(rest, None)
                if following is None:
                    done.add(name)
                    stack.pop()
                    del path[name]
                elif following[0] in path:
                    cycle = _shortened([*path][[*path].index(following[0]) :], following[0])
                    self._report(Code.BRANCH_CYCLE, f"blocks call each other in a cycle: {cycle}", following[1].span)
                elif following[0] not in done:
                    stack.append((following[0], iter(targets[following[0]])))
                    path[following[0]] = None

    def _hand_overs(self) -> None:
        """What entry yields and awaits, and what consumers await and give back, must fit together."""
        entry = self.graph.blocks.get("entry")
        if entry is None:
            return
        consumers = [block for block in self.graph.blocks.values() if is_consumer(block)]
        takers: dict[str, list[Block]] = {}
        for block in consumers:
            for name in dict.fromkeys(awaited(block)):
                takers.setdefault(name, []).append(block)
        away: set[str] = set()
        yielded: set[str] = set()
        for node in entry.nodes:
            if isinstance(node.kind, Yield):
                for name in node.kind.vars:
                    if name in away:
                        message = f"{name!r} is yielded again before it has been awaited"
                        self._report(Code.BAD_YIELD, message, node.span)
                    elif name not in takers:
                        self._report(Code.UNCONSUMED_YIELD, f"no block awaits {name!r}", node.span)
                    away.add(name)
                yielded |= away
            elif isinstance(node.kind, Await):
                for name in node.kind.vars:
                    self._await(node, name, away, takers.get(name, []))
                    away.discard(name)
        for block in consumers:
            for name in awaited(block):
                if name not in yielded:
                    message = f"the block {block.name!r} awaits {name!r}, which entry never yields"
                    self._report(Code.BAD_YIELD, message, block.nodes[0].span)

    def _await(self, node: Node, name: str, away: set[str], consumers: list[Block]) -> None:
        if name not in away:
            self._report(Code.BAD_YIELD, f"{name!r} is awaited, but it has not been yielded", node.span)
            return
        for block in consumers:
            last = block.nodes[-1].kind
            if not isinstance(last, Yield) or name not in last.vars:
                message = f"entry awaits {name!r}, but the block {block.name!r} never yields it back"
                self._report(Code.BAD_YIELD, message, node.span)

    # --- operands -------------------------------------------------------------------------------------------------

    def _operands(self, node: Node, indices: tuple[str, ...]) -> None:
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

        A result that is declared nowhere is reported where it is written, not where it is read afterwards.
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
                advice = f"{advice} or " * (advice is not None) + how_to_declare(name, writer, self.graph)
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
        """An entry of a parameter that is a prefix table; how many indices that has, its calls say."""
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
            elif wants is ParamKind.INDEX and (expr := index_of(given)) is not None:
                self._index_expr(expr, given.span or node.span, indices)
            elif wants is not ParamKind.PREFIX:
                self._read(given, node, indices)
        for output in kind.outputs:
            self._write(output, node, indices)

    def _returned(self, name: str, node: Node) -> None:
        """What a node hands on as a whole."""
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
        """Whether an operand is the index of a loop around it; a variable of that name comes first."""
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
        """How many dimensions a variable has; that of ``t = op`` is not known yet."""
        if name in self.graph.vars:
            return len(self.graph.vars[name].dims)
        temporary = self.names.temporaries.get(name)
        return None if temporary is None or temporary.dims is None else len(temporary.dims)

    def _index_expr(self, expr: Expr, span: GraphPlace | None, indices: tuple[str, ...]) -> None:
        """Names in an index are loop indices, scalar integers or sizes; only what is declared can be judged."""
        for name in names(expr):
            if name in self.names.hidden and name not in indices and name not in self.graph.vars:
                self._variable(name, span)
            elif name not in indices and not self._may_be_index(name):
                message = f"{name!r} is used in an index, but is not an integer scalar"
                self._report(Code.BAD_INDEXING, message, span)

    def _may_be_index(self, name: str) -> bool:
        """Whether a name can be an integer scalar; that of ``t = op`` is not known yet, a size always is."""
        if name in self.graph.vars:
            variable = self.graph.vars[name]
            return not variable.dims and not variable.is_indexed and variable.dtype.kind in ("int", "uint")
        temporary = self.names.temporaries.get(name)
        if temporary is None or temporary.dtype is None:
            return name not in self.names.prefixes
        return not temporary.dims and temporary.dtype.kind in ("int", "uint")


def _occurrences(block: Block) -> tuple[dict[str, int], dict[str, int]]:
    """Where each name that ``dep`` can mention occurs first and last."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for position, node in enumerate(walk(block.nodes)):
        name = node_name(node)
        if name is not None:
            first.setdefault(name, position)
            last[name] = position
    return first, last


def _shortened(cycle: list[str], end: str) -> str:
    """A cycle in words; the middle of a long one is left out."""
    shown = cycle if len(cycle) <= 8 else [*cycle[:4], "...", *cycle[-3:]]
    return " -> ".join([*shown, end])
