"""Every node of a graph typed, at one choice of the dynamic sizes.

The walk follows program order. A variable whose own declaration is wrong has been reported already; nodes that touch
it are passed over.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import islice
from typing import Any

from openinfer.check.access import AccessType, PartialShape, cuts_channels
from openinfer.check.bound import BoundOp, BoundVar, FromInit
from openinfer.check.effects import EffectsOf
from openinfer.check.indices import Around
from openinfer.check.links import require_rank
from openinfer.check.literals import require_value, with_literals
from openinfer.check.named import Named
from openinfer.check.operands import OperandTypes, index_expressions
from openinfer.check.params import parameter
from openinfer.check.problems import Problems, ReportedError
from openinfer.check.sizes import SizeError
from openinfer.errors import Code, GraphPlace, Span
from openinfer.ir import (
    Access,
    Assign,
    Branch,
    CacheDecrement,
    CacheIncrement,
    CacheRead,
    CacheReset,
    CacheWrite,
    Graph,
    Input,
    Literal,
    Loop,
    MemoryKind,
    Node,
    Op,
    Operand,
    Scope,
    Slice,
    Transfer,
)
from openinfer.ir.expr import Expr, Ref, TooDeepError, names
from openinfer.ir.op_names import op_called
from openinfer.ir.rules import branch_targets
from openinfer.ir.values import AttrValue, ExprList, ExprValue, InitValue, VarValue
from openinfer.ops import OPS, Call, OpError, OpRecord, TensorType, complete, infer, slots, with_dtypes
from openinfer.ops.arguments import unknown_parameters
from openinfer.ops.types import together

TOO_DEEP_ADVICE = "declare the result with a size of its own as its dimension"


class Typing:
    """One walk over a graph with the dynamic sizes at given values."""

    def __init__(self, graph: Graph, named: Named, effects: EffectsOf, problems: Problems) -> None:
        self.graph = graph
        self.effects = effects
        self.vars = named.vars
        self.constants = named.constants
        self.ops: dict[int, BoundOp] = {}
        self._named = named
        self._problems = problems
        self._operands = OperandTypes(named, graph.vars, problems)
        self._unassigned = set(named.temporaries)
        self._waiting = effects.reached.bits.of(named.temporaries)
        """The same as bits."""
        self._in_entry = True
        self._given: Sequence[Input] = ()
        """The operands of the op that is being typed."""

    def run(self) -> "Typing":
        """Walk entry first, which assigns the temporaries, then the other blocks."""
        self._body(self.graph.blocks["entry"].nodes, ())
        self._in_entry = False
        for name, block in self.graph.blocks.items():
            if name != "entry":
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
                    self._report(one.code, one.message, self._place(node, one), one.advice)
                self._give_up(node)
            except SizeError as error:
                self._report(error.code, error.message, node.span, error.advice)
                self._give_up(node)
            except TooDeepError as error:
                self._report(Code.TOO_DEEP, str(error), node.span, TOO_DEEP_ADVICE)
                self._give_up(node)

    def _give_up(self, node: Node) -> None:
        """Remember the temporaries that get no type because of a problem."""
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
                self._op(node, kind, loops)
            case Transfer(src, dst) | CacheRead(src, dst) | CacheWrite(src, dst):
                self._copy(node, src, dst, loops)
            case CacheReset(target):
                self._reset(target, node, loops)
            case CacheIncrement(_, amount) | CacheDecrement(_, amount):
                self._operands.require_integers(amount, node.span, loops)
            case Branch(str(cond)):
                self._condition(node, cond)
            case Scope(_, body):
                self._body(body, loops)
            case Loop():
                self._loop(node, kind, loops)

    def _place(self, node: Node, error: OpError) -> GraphPlace | None:
        """The operand an error is about, where it has a place of its own."""
        if isinstance(node.kind, Op) and isinstance(error.at, int) and error.at < len(self._given):
            return self._given[error.at].operand.span or node.span
        return _argument(node.span, error.at) if isinstance(error.at, str) else node.span

    # --- temporaries ----------------------------------------------------------------------------------------------

    def _require_assigned(self, node: Node) -> None:
        if not self._in_entry:
            return
        effects, reached = self.effects.nodes[node.index], self.effects.reached
        through = reached.called(effects).touches & self._waiting
        self._require_all_assigned({*effects.touches, *islice(reached.bits.each(through), 1)}, node)

    def _require_all_assigned(self, touched: Set[str], node: Node) -> None:
        early = sorted(touched & self._unassigned)
        if early:
            message = f"{early[0]!r} is used{self._by_blocks(early[0], node)} before it is assigned"
            self._report(Code.USED_BEFORE_ASSIGN, message, node.span, f"move 'assign {early[0]}: ...' up")
            raise ReportedError

    def _by_blocks(self, name: str, node: Node) -> str:
        """Through which blocks a branch uses a variable."""
        targets = dict.fromkeys(branch_targets(node)) if isinstance(node.kind, Branch) else {}
        reached = self.effects.reached
        blocks = [repr(target) for target in targets if reached.bits.has(reached.blocks[target].touches, name)]
        return f" by the block {' and the block '.join(blocks)}" if blocks else ""

    def _assign(self, kind: Assign) -> None:
        self._unassigned.discard(kind.name)
        self._waiting &= ~self.effects.reached.bits.of((kind.name,))
        if kind.dtype is None or kind.dims is None:
            return  # ``t = op``: the op gives the type
        require_rank(kind.name, len(kind.dims))
        shape = tuple(self._named.dimension(dim) for dim in kind.dims)
        is_dynamic = any(self._named.sizes.is_dynamic(dim) for dim in kind.dims)
        self.vars[kind.name] = BoundVar(
            kind.name, MemoryKind.VOLATILE, kind.dtype, kind.dims, shape, FromInit(None), is_dynamic=is_dynamic
        )

    def _require_types(self) -> None:
        """Refuse temporaries that no op has given a type, which documents of other tools can contain."""
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
            pass  # what is wrong inside is worth knowing all the same
        self._body(kind.body, (*loops, kind))

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
        if not source.agrees_with(self._binding(target, dst, (src,), source.shape)):
            message = f"{src} is {source}, but {dst} is {target}"
            self._report(Code.RESULT_TYPE, message, dst.span or node.span)

    def _set(self, node: Node, src: Literal, dst: Access, target: AccessType) -> None:
        """A literal becomes the value of a scalar."""
        span = src.span or node.span
        if target.shape:
            advice = f"op fill({dst.base}, value={src}) >> {dst};"
            self._report(Code.RESULT_TYPE, f"{src} is a scalar, but {dst} is {target}", span, advice)
            return
        try:
            require_value(src, target.dtype)
        except OpError as error:
            self._report(error.code, error.message, span, error.advice)

    def _binding(self, target: AccessType, dst: Access, sources: Iterable[Operand], found: PartialShape) -> AccessType:
        """What a value made of slices may be: their lengths bind the dynamic sizes of the variable that takes it."""
        variable = self.vars[dst.base]
        is_slice = any(
            isinstance(index, Slice) for source in sources if isinstance(source, Access) for index in source.indices
        )
        if not is_slice or dst.bracketed or not variable.is_dynamic or len(found) != len(target.shape):
            return target
        assert variable.dims is not None
        shape = tuple(
            None if self._can_bind(dim, extent) else own
            for dim, extent, own in zip(variable.dims, found, target.shape, strict=True)
        )
        return replace(target, shape=shape)

    def _can_bind(self, dim: Expr, extent: int | None) -> bool:
        """Whether a size in this dimension can be such that it has the extent, as far as that is easily told."""
        sizes = self._named.sizes
        return sizes.is_dynamic(dim) and (extent is None or not isinstance(dim, Ref) or extent <= sizes.at_most(dim))

    def _reset(self, target: Access, node: Node, loops: Around) -> None:
        span = target.span or node.span
        self._operands.require_indices(target, self._operands.variable(target.base, span), span, loops)

    def _is_untyped(self, access: Access) -> bool:
        """Whether this is a temporary of ``t = op`` that has no type yet."""
        is_inferred = access.base in self._named.temporaries and access.base not in self.vars
        return is_inferred and not access.bracketed

    # --- ops ------------------------------------------------------------------------------------------------------

    def _op(self, node: Node, kind: Op, loops: Around) -> None:
        record = OPS.get(kind.op)
        if record is None:
            advice = op_called(kind.op) if self._problems.may_search() else "'openinfer ops' lists them"
            self._report(Code.UNKNOWN_OP, f"there is no op {kind.op!r}", node.span, advice)
            raise ReportedError
        inputs, attrs = self._arguments(record, kind, loops)
        values = self._values(record, attrs)
        types = [
            None if isinstance(given.operand, Literal) else self._operands.type(given.operand, node, loops)
            for given in inputs
        ]
        self._require_channels(inputs)
        wanted = [
            None if self._is_untyped(output) else self._operands.type(output, node, loops) for output in kind.outputs
        ]
        places = slots(record, [given.name for given in inputs])
        self._require_outputs(record, kind)
        ordered = [None if place is None else types[place] for place in places]
        literals = _literals(inputs, places)
        try:
            params = complete(record, values)
            if literals:
                ordered = with_literals(record, ordered, literals, params, wanted)
            call, is_complete = self._call(record, ordered, params, wanted)
        except OpError as error:
            raise _at_operand(error, places) from error
        (self._results if is_complete else self._partial_results)(node, record, kind, call, wanted)
        self.ops[node.index] = BoundOp(
            record,
            tuple(None if place is None else inputs[place].operand for place in places),
            tuple(None if own is None else own.dtype for own in ordered),
            call if is_complete else None,
            is_dynamic=not is_complete or self._varies(kind, loops),
        )

    def _is_operand(self, name: str, loops: Around) -> bool:
        return self._named.is_variable(name) or self._operands.is_index(name, loops)

    def _arguments(self, record: OpRecord, kind: Op, loops: Around) -> tuple[list[Input], dict[str, AttrValue]]:
        """Inputs and parameters; a scalar constant or a number is an input where the record has one of its name."""
        inputs, attrs = list(kind.inputs), dict(kind.attrs)
        self._given = inputs
        own = [spec.name for spec in record.signature.inputs]
        for name in own:
            value = attrs.get(name)
            if record.param(name) is not None:
                continue
            if isinstance(value, VarValue) and self._is_operand(value.name, loops):
                inputs.append(Input(Access(value.name), name))
                del attrs[name]
            elif isinstance(value, InitValue):
                inputs.append(Input(Literal(value, value.span), name))
                del attrs[name]
        for position, given in enumerate(inputs):
            if given.name is not None and given.name not in own and record.param(given.name):
                message = f"the parameter {given.name!r} of '{record.name}' takes a number or a scalar constant"
                raise OpError(Code.BAD_PARAMETER, f"{message}, not the variable {given.operand}", position)
        return inputs, attrs

    def _values(self, record: OpRecord, attrs: Mapping[str, AttrValue]) -> dict[str, Any]:
        """The values of parameters; those that have none, or are no parameters, are refused together."""
        values: dict[str, Any] = {}
        errors = unknown_parameters(record, attrs)
        for name, value in attrs.items():
            try:
                values[name] = parameter(name, value, self._named.parameter, self._named.size)
            except OpError as error:
                errors += [error] if record.param(name) is not None else []
        if errors:
            raise together(errors)
        return values

    def _require_channels(self, inputs: Iterable[Input]) -> None:
        """Refuse parts of tensors that are quantized per channel, where not all channels are in the part."""
        for position, given in enumerate(inputs):
            operand = given.operand
            quantized = self.vars.get(operand.base) if isinstance(operand, Access) else None
            if isinstance(operand, Access) and quantized is not None and cuts_channels(operand, quantized.quant):
                message = f"{operand.base!r} is quantized per channel, and {operand} leaves out channels"
                advice = f"slice what it stands for: t = op dequantize({operand.base});"
                raise OpError(Code.BAD_INDEXING, message, position, advice)

    def _require_outputs(self, record: OpRecord, kind: Op) -> None:
        specs = record.signature.outputs
        if len(kind.outputs) != len(specs) and not specs[-1].variadic:
            listed = ", ".join(spec.name for spec in specs)
            message = f"'{record.name}' has {len(specs)} output{'s' * (len(specs) != 1)} ({listed})"
            raise OpError(Code.WRONG_OPERANDS, f"{message}, but {_named_outputs(kind)}")

    def _call(
        self,
        record: OpRecord,
        ordered: list[AccessType | None],
        params: Mapping[str, Any],
        wanted: list[AccessType | None],
    ) -> tuple[Call, bool]:
        """The call, and whether it is complete: where an operand's extent is not known yet, only its dtypes are."""
        known = [None if kind is None else kind.known for kind in ordered]
        hints = tuple(None if kind is None else kind.known for kind in wanted)
        if all((kind is None) == (own is None) for kind, own in zip(ordered, known, strict=True)):
            return infer(record, Call(tuple(known), params, hints)), True
        guesses = tuple(
            None if kind is None else kind.known or TensorType(kind.dtype, (), kind.quant) for kind in ordered
        )
        return with_dtypes(record, Call(guesses, params, hints)), False

    def _results(self, node: Node, record: OpRecord, kind: Op, call: Call, wanted: list[AccessType | None]) -> None:
        if len(call.outputs) != len(kind.outputs):
            message = f"'{record.name}' gives {len(call.outputs)} results here, but {_named_outputs(kind)}"
            raise OpError(Code.WRONG_OPERANDS, message)
        for output, found, declared in zip(kind.outputs, call.outputs, wanted, strict=True):
            if declared is None:
                self.vars[output.base] = BoundVar(
                    output.base, MemoryKind.VOLATILE, found.dtype, None, found.shape, FromInit(None)
                )
            elif not AccessType(found.dtype, found.shape).agrees_with(
                self._binding(declared, output, (given.operand for given in kind.inputs), found.shape)
            ):
                message = f"'{record.name}' gives {found}, but {output} is {declared}"
                self._report(Code.RESULT_TYPE, message, output.span or node.span)

    def _partial_results(
        self, node: Node, record: OpRecord, kind: Op, call: Call, wanted: list[AccessType | None]
    ) -> None:
        """Results whose shapes are known only while the graph runs: their dtypes are judged."""
        for position, (output, declared) in enumerate(zip(kind.outputs, wanted, strict=True)):
            found = call.outputs[min(position, len(call.outputs) - 1)].dtype
            if declared is None:
                message = f"the shape of {output.base!r} is known only while the graph runs"
                advice = f"give it a type: assign {output.base}: {found.name}[...];"
                self._report(Code.RESULT_TYPE, message, output.span or node.span, advice)
                raise ReportedError
            if found is not declared.dtype:
                message = f"'{record.name}' gives {found.name} values, but {output} is {declared}"
                self._report(Code.RESULT_TYPE, message, output.span or node.span)

    # --- what can differ from step to step ------------------------------------------------------------------------

    def _varies(self, kind: Op, loops: Around) -> bool:
        """Whether shapes or parameters can differ from one run of the node to the next."""
        bounds = self._named.sizes.bounds
        operands = [given.operand for given in kind.inputs if isinstance(given.operand, Access)]
        if any(self._has_moving_end(operand, bounds, loops) for operand in operands):
            return True
        if not bounds:
            return False
        touched = [operand.base for operand in operands] + [output.base for output in kind.outputs]
        variables = [self.vars[name] for name in touched if name in self.vars]
        return any(variable.is_dynamic or variable.dims is None for variable in variables) or any(
            name in bounds for _, value in kind.attrs for name in _names_in(value)
        )

    def _has_moving_end(self, access: Access, bounds: Mapping[str, int], loops: Around) -> bool:
        """Whether a slice ends somewhere else from time to time; even one of constant length can wrap at zero."""
        moving = {loop.index for loop in loops} | bounds.keys()
        return any(
            name in moving or self._named.static(name) is None
            for index in access.indices
            if isinstance(index, Slice)
            for end in index_expressions(index)
            for name in names(end)
        )


def _argument(span: GraphPlace | None, name: str) -> GraphPlace | None:
    """Where a node names an argument, as far as its text shows."""
    if not isinstance(span, Span):
        return span
    match = re.compile(rf"\b{re.escape(name)}(?=\s*=)").search(span.source.text, span.start, span.end)
    return span if match is None else Span(span.source, *match.span())


def _named_outputs(kind: Op) -> str:
    return f"{len(kind.outputs)} {'is' if len(kind.outputs) == 1 else 'are'} named"


def _literals(inputs: Sequence[Input], places: Iterable[int | None]) -> dict[int, Literal]:
    """The literals among the operands, by the slots they stand in."""
    given = {slot: inputs[place].operand for slot, place in enumerate(places) if place is not None}
    return {slot: operand for slot, operand in given.items() if isinstance(operand, Literal)}


def _names_in(value: AttrValue) -> Iterator[str]:
    """The constants and sizes that a parameter is computed from."""
    match value:
        case VarValue(name):
            yield name
        case ExprValue(expr):
            yield from names(expr)
        case ExprList(exprs):
            for expr in exprs:
                yield from names(expr)


def _at_operand(error: OpError, places: tuple[int | None, ...]) -> OpError:
    """The same error, pointing at the operand as it is written instead of the record's input."""
    if not isinstance(error.at, int):
        return error
    place = places[error.at] if error.at < len(places) else None
    return OpError(error.code, error.message, place, error.advice)
