"""Validates graphs before any model is known: declarations, names, control flow, tables.

All checks add to one list, so that all problems are reported together. Types and shapes need a model's sizes; binding
checks them.
"""

from collections.abc import Iterable, Iterator

from openinfer.errors import Advice, Code, Diagnostic, Fix, GraphPlace, fixes_of, nearest
from openinfer.ir.block_names import block_names
from openinfer.ir.call_rules import call_problems
from openinfer.ir.declaration_rules import declaration_problems, dimension_problems
from openinfer.ir.graph import (
    Assign,
    Await,
    Block,
    Branch,
    Dep,
    Graph,
    Loop,
    Node,
    Return,
    Scope,
    Yield,
    walk,
)
from openinfer.ir.operand_rules import MOST_ADVISED, OperandRules
from openinfer.ir.rules import awaited, blocks_run, is_consumer, node_name


def validate(graph: Graph, *, strict: bool = False, end: GraphPlace | None = None) -> list[Diagnostic]:
    """All structural problems of a graph; in strict mode, unknown attributes are problems too.

    ``end`` is the end of its text or document, where missing parts are reported.
    """
    return _Validation(graph, strict=strict, end=end).run()


class _Validation:
    def __init__(self, graph: Graph, *, strict: bool, end: GraphPlace | None) -> None:
        self.graph = graph
        self.end = end
        self.strict = strict
        self.found: list[Diagnostic] = []
        self.scopes = block_names(graph)
        self.operands = OperandRules(graph, self.found)

    def run(self) -> list[Diagnostic]:
        self.found += declaration_problems(self.graph, strict=self.strict)
        if "entry" not in self.graph.blocks:
            first = next(iter(self.graph.blocks.values()), None)
            near = nearest("entry", self.graph.blocks)
            advice = "execution starts at 'block entry { ... }'"
            if near is not None:
                advice = Advice(near, *(Fix(fix.old, fix.new) for fix in fixes_of(near)))  # corrects the existing name
            place = self.end if first is None else first.span
            self._report(Code.NO_ENTRY, "there is no block 'entry'", place, advice)
        self.found += call_problems(self.graph)
        shared: set[str] = set()
        for block in self.graph.blocks.values():
            self.operands.names = self.scopes[block.name]
            self._block(block)
            assigned = shared if block.params is None else {param.name for param in block.params}
            self._body(block, block.nodes, block.indices, assigned)
        self._branch_cycles()
        self._hand_overs()
        return self.found

    def _report(self, code: Code, message: str, span: GraphPlace | None, advice: str | None = None) -> None:
        self.found.append(Diagnostic(code, message, span, advice))

    def _nearest(self, name: str, candidates: Iterable[str]) -> str | None:
        """Advice for the first errors only: comparing thousands of names with thousands takes minutes."""
        return nearest(name, candidates) if len(self.found) < MOST_ADVISED else None

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
            message = f"'{word}' is in {block.name!r}, which is neither entry nor a block that begins with 'await'"
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
            self.operands.node(node, indices)
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
                    self._report(Code.RETURN_IN_LOOP, "'return' is not allowed inside a loop or scope", node.span)
                case Yield() | Await() if not top:
                    message = "'yield' and 'await' are not allowed inside a loop or scope"
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
            path = {start: None}  # ordered, and fast to search
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
        """Check that what entry yields and awaits matches what consumers await and yield back."""
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


def _occurrences(block: Block) -> tuple[dict[str, int], dict[str, int]]:
    """The first and last position of each name that ``dep`` can mention."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for position, node in enumerate(walk(block.nodes)):
        name = node_name(node)
        if name is not None:
            first.setdefault(name, position)
            last[name] = position
    return first, last


def _shortened(cycle: list[str], end: str) -> str:
    """A cycle in words, with the middle of a long one left out."""
    shown = cycle if len(cycle) <= 8 else [*cycle[:4], "...", *cycle[-3:]]
    return " -> ".join([*shown, end])
