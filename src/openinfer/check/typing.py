"""Types every node of a graph, for one choice of the dynamic sizes.

The walk follows program order. A variable with a wrong declaration has already been reported; nodes that use it are
skipped.
"""

from collections.abc import Callable, Iterable, Set
from dataclasses import replace
from itertools import islice

from openinfer.check.access import AccessType
from openinfer.check.bound import BoundOp, BoundVar, FromInit
from openinfer.check.call_types import CallTypes
from openinfer.check.effects import EffectsOf
from openinfer.check.indices import Around, around
from openinfer.check.links import require_rank
from openinfer.check.literals import require_value
from openinfer.check.named import Named
from openinfer.check.op_types import OpTypes
from openinfer.check.operands import OperandTypes
from openinfer.check.problems import Problems, ReportedError
from openinfer.check.sizes import SizeError
from openinfer.errors import Advice, Code, Fix, FixPlace, GraphPlace
from openinfer.ir import (
    Access,
    Assign,
    Block,
    BlockCall,
    BlockParam,
    BlockParamKind,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Graph,
    Literal,
    Loop,
    MemoryKind,
    Node,
    Op,
    Operand,
    Scope,
    Transfer,
)
from openinfer.ir.call_rules import own_name, place_words
from openinfer.ir.expr import TooDeepError, names
from openinfer.ir.rules import blocks_run
from openinfer.ops import OpError

ResolveCall = Callable[[Node, BlockCall, OperandTypes, Around], None]
TOO_DEEP_ADVICE = "declare the result with a size of its own as its dimension"


class Typing:
    """One walk over a graph, with given values of the dynamic sizes."""

    def __init__(
        self, graph: Graph, named: Named, effects: EffectsOf, problems: Problems, resolve: ResolveCall | None = None
    ) -> None:
        self.graph = graph
        self.effects = effects
        self.vars = named.vars
        self.constants = named.constants
        self.ops: dict[int, BoundOp] = {}
        self._named = named
        self._problems = problems
        self._resolve = resolve
        """Handles calls before their blocks are typed; None to type the calls themselves."""
        self._operands = OperandTypes(named, graph.vars, problems)
        self._op_types = OpTypes(graph, named, self._operands, problems)
        self._calls = CallTypes(named, self._operands, problems)
        self._unassigned = set(named.temporaries)
        self._waiting = effects.reached.bits.of(named.temporaries)
        """The same as a bit set."""
        self._in_entry = True
        self._own: frozenset[str] | None = None
        """The variables of the current block, if it is one that is called."""

    def run(self) -> "Typing":
        """Type called blocks, callees before callers; then entry, which assigns the temporaries; then the others."""
        for name in self.effects.callees_first:
            if self.graph.blocks[name].params is not None:
                self._called(self.graph.blocks[name])
        self._body(self.graph.blocks["entry"].nodes, ())
        self._in_entry = False
        for name, block in self.graph.blocks.items():
            if name != "entry" and block.params is None:
                self._body(block.nodes, ())
        self._require_types()
        return self

    def _report(self, code: Code, message: str, span: GraphPlace | None, advice: str | None = None) -> None:
        self._problems.report(code, message, span, advice)

    # --- the walk -------------------------------------------------------------------------------------------------

    def _body(self, nodes: Iterable[Node], loops: Around) -> None:
        for node in nodes:
            try:
                self._node(node, loops)
            except ReportedError:
                self._give_up(node)
            except OpError as error:
                for one in (error, *error.others):
                    self._report(one.code, one.message, self._op_types.place(node, one), one.advice)
                self._give_up(node)
            except SizeError as error:
                self._report(error.code, error.message, node.span, error.advice)
                self._give_up(node)
            except TooDeepError as error:
                self._report(Code.TOO_DEEP, str(error), node.span, TOO_DEEP_ADVICE)
                self._give_up(node)

    def _called(self, block: Block) -> None:
        """Type a block that is called. Like entry, it assigns its variables before it uses them."""
        start, self._own = len(self._problems.found), block.locals
        for param in block.params or ():
            if param.kind is BlockParamKind.TENSOR:
                self._assigned(param.name)
                self._declare(param, block)
        self._body(block.nodes, around(block.indices))
        self._own = None
        caller = self.effects.callers.get(block.name)
        if caller is not None:
            where = f"in the block {block.name!r}, called{place_words(caller.span)}"
            found = self._problems.found
            found[start:] = [replace(one, notes=(*one.notes, where)) for one in found[start:]]

    def _declare(self, param: BlockParam, block: Block) -> None:
        try:
            self._calls.declare(param)
        except ReportedError:
            self._operands.broken.add(param.name)
        except (SizeError, OpError) as error:
            self._report(error.code, error.message, param.span or block.span, error.advice)
            self._operands.broken.add(param.name)

    def _give_up(self, node: Node) -> None:
        """Record the temporaries that stay untyped because of a problem."""
        if isinstance(node.kind, Assign):
            self._operands.broken.add(node.kind.name)
        elif isinstance(node.kind, Op):
            self._operands.broken |= {output.base for output in node.kind.outputs if output.base not in self.vars}

    def _node(self, node: Node, loops: Around) -> None:
        kind = node.kind
        if not isinstance(kind, Assign | Loop | Scope):
            self._require_assigned(node)
        match kind:
            case Assign():
                self._assign(kind)
            case Op():
                self.ops[node.index] = self._op_types.bind(node, kind, loops)
            case Transfer(src, dst) | CacheRead(src, dst) | CacheWrite(src, dst):
                self._copy(node, src, dst, loops)
            case CacheReset(target):
                self._reset(target, node, loops)
            case CacheIncrement(_, amount) | CacheDecrement(_, amount):
                self._operands.require_integers(amount, node.span, loops)
            case BlockCall():
                self._call(node, kind, loops)
            case Branch(str(cond)):
                self._condition(node, cond)
            case Scope(_, body):
                self._body(body, loops)
            case Loop():
                self._loop(node, kind, loops)

    # --- temporaries ----------------------------------------------------------------------------------------------

    def _require_assigned(self, node: Node) -> None:
        if not self._in_entry:
            return
        effects, reached = self.effects.nodes[node.index], self.effects.reached
        if self._own is not None:
            self._require_all_assigned(effects.touches & self._own, node)
            return
        through = reached.called(effects).touches & self._waiting
        self._require_all_assigned({*effects.touches, *islice(reached.bits.each(through), 1)}, node)

    def _require_all_assigned(self, touched: Set[str], node: Node) -> None:
        early = sorted(touched & self._unassigned & (self._unassigned if self._own is None else self._own))
        if early:
            name = own_name(early[0])
            message = f"{name!r} is used{self._by_blocks(early[0], node)} before it is assigned"
            moved = Fix("", f"assign {name}", FixPlace.MOVED)
            self._report(Code.USED_BEFORE_ASSIGN, message, node.span, Advice(f"move 'assign {name}: ...' up", moved))
            raise ReportedError

    def _by_blocks(self, name: str, node: Node) -> str:
        """The blocks through which a node uses a variable, in words."""
        targets = dict.fromkeys(blocks_run(node))
        reached = self.effects.reached
        blocks = [repr(target) for target in targets if reached.bits.has(reached.blocks[target].touches, name)]
        return f" by the block {' and the block '.join(blocks)}" if blocks else ""

    def _assign(self, kind: Assign) -> None:
        self._assigned(kind.name)
        if kind.dtype is None or kind.dims is None:
            return  # ``t = op``: the op determines the type
        require_rank(kind.name, len(kind.dims))
        shape = tuple(self._named.dimension(dim) for dim in kind.dims)
        is_dynamic = any(self._named.sizes.is_dynamic(dim) for dim in kind.dims)
        self.vars[kind.name] = BoundVar(
            kind.name, MemoryKind.VOLATILE, kind.dtype, kind.dims, shape, FromInit(None), is_dynamic=is_dynamic
        )

    def _assigned(self, name: str) -> None:
        self._unassigned.discard(name)
        self._waiting &= ~self.effects.reached.bits.of((name,))

    def _require_types(self) -> None:
        """Refuse temporaries that no op types; documents of other tools may contain them."""
        for node in self.graph.walk():
            if isinstance(node.kind, Assign) and node.kind.name not in self.vars:
                name = node.kind.name
                if name not in self._operands.broken:
                    message = f"nothing gives {name!r} a type"
                    self._report(Code.RESULT_TYPE, message, node.span, f"assign {name}: f32[...];")

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _loop(self, node: Node, kind: Loop, loops: Around) -> None:
        try:
            for bound in (kind.start, kind.end):
                if self._in_entry:
                    self._require_all_assigned(set(names(bound)) - {loop.index for loop in loops}, node)
                self._operands.require_integers(bound, node.span, loops)
        except ReportedError:
            pass  # the body may have problems worth reporting too
        self._body(kind.body, (*loops, kind))

    def _call(self, node: Node, kind: BlockCall, loops: Around) -> None:
        if self._resolve is not None:
            self._resolve(node, kind, self._operands, loops)
        else:
            self._calls.call(node, kind, self.graph.blocks[kind.block], loops)

    def _condition(self, node: Node, cond: str) -> None:
        found = self._operands.variable(cond, node.span)
        if found.decl is not None and found.decl.is_indexed:
            self._report(Code.BAD_INDEXING, f"the condition {cond!r} is a table, not a scalar bool", node.span)
        elif found.dtype.kind != "bool" or found.shape:
            message = f"the condition {cond!r} is {found.type}, not a scalar bool"
            self._report(Code.WRONG_DTYPE, message, node.span, "compare first: op gt(x, y) >> cond")

    def _copy(self, node: Node, src: Operand, dst: Access, loops: Around) -> None:
        target = self._operands.type(dst, node, loops)
        if isinstance(src, Literal):
            self._set(node, src, dst, target)
            return
        source = self._operands.type(src, node, loops)
        if not source.agrees_with(self._operands.binding(target, dst, (src,), source.shape)):
            message = f"{src} is {source}, but {dst} is {target}"
            self._report(Code.RESULT_TYPE, message, dst.span or node.span)

    def _set(self, node: Node, src: Literal, dst: Access, target: AccessType) -> None:
        """Check a literal that becomes the value of a scalar."""
        span = src.span or node.span
        if target.shape:
            fill = f"op fill({dst}, value={src}) >> {dst};"
            advice = Advice(fill, Fix(fill, place=FixPlace.STATEMENT))
            self._report(Code.RESULT_TYPE, f"{src} is a scalar, but {dst} is {target}", span, advice)
            return
        try:
            require_value(src, target.dtype)
        except OpError as error:
            self._report(error.code, error.message, span, error.advice)

    def _reset(self, target: Access, node: Node, loops: Around) -> None:
        span = target.span or node.span
        self._operands.require_indices(target, self._operands.variable(target.base, span), span, loops)
