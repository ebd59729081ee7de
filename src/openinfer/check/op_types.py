"""Types the ops of a graph: matches arguments with op records and infers results."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from openinfer.check.access import AccessType, cuts_channels
from openinfer.check.bound import BoundOp, BoundVar, FromInit
from openinfer.check.indices import Around
from openinfer.check.literals import with_literals
from openinfer.check.named import Named
from openinfer.check.operands import OperandTypes, index_expressions
from openinfer.check.params import parameter
from openinfer.check.problems import Problems, ReportedError
from openinfer.errors import Advice, Code, Fix, FixPlace, GraphPlace, Span
from openinfer.ir import Access, Graph, Input, Literal, MemoryKind, Node, Op, Slice
from openinfer.ir.advice import what_is_meant
from openinfer.ir.expr import names
from openinfer.ir.values import AttrValue, ExprList, ExprValue, InitValue, VarValue
from openinfer.ops import OPS, Call, OpError, OpRecord, TensorType, complete, infer, slots, with_dtypes
from openinfer.ops.arguments import unknown_parameters
from openinfer.ops.types import together


class OpTypes:
    """Types the ops of a graph one by one; inferred results become variables in ``named``."""

    def __init__(self, graph: Graph, named: Named, operands: OperandTypes, problems: Problems) -> None:
        self._graph = graph
        self._named = named
        self._operands = operands
        self._problems = problems
        self._given: Sequence[Input] = ()
        """The operands of the op being typed."""

    def bind(self, node: Node, kind: Op, loops: Around) -> BoundOp:
        """Type an op, with its operands in the order of its record; problems are raised."""
        record = OPS.get(kind.op)
        if record is None:
            advice = what_is_meant(kind, self._graph, may_search=self._problems.may_search())
            self._problems.report(Code.UNKNOWN_OP, f"there is no op {kind.op!r}", node.span, advice)
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
        return BoundOp(
            record,
            tuple(None if place is None else inputs[place].operand for place in places),
            tuple(None if own is None else own.dtype for own in ordered),
            call if is_complete else None,
            is_dynamic=not is_complete or self._varies(kind, loops),
        )

    def place(self, node: Node, error: OpError) -> GraphPlace | None:
        """The location of the operand that an error refers to, if it has its own."""
        if isinstance(node.kind, Op) and isinstance(error.at, int) and error.at < len(self._given):
            return self._given[error.at].operand.span or node.span
        return _argument(node.span, error.at) if isinstance(error.at, str) else node.span

    def _is_untyped(self, access: Access) -> bool:
        """Whether this is a temporary of ``t = op`` that is not typed yet."""
        is_inferred = access.base in self._named.temporaries and access.base not in self._named.vars
        return is_inferred and not access.bracketed

    def _is_operand(self, name: str, loops: Around) -> bool:
        return self._named.is_variable(name) or self._operands.is_index(name, loops)

    def _arguments(self, record: OpRecord, kind: Op, loops: Around) -> tuple[list[Input], dict[str, AttrValue]]:
        """Inputs and parameters; a scalar constant or a number is an input if the record has an input of that name."""
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
        """The values of parameters; those without a value, and unknown parameters, are refused together."""
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
        """Refuse slices of tensors quantized per channel that do not have all channels."""
        for position, given in enumerate(inputs):
            operand = given.operand
            quantized = self._named.vars.get(operand.base) if isinstance(operand, Access) else None
            if isinstance(operand, Access) and quantized is not None and cuts_channels(operand, quantized.quant):
                assert quantized.quant is not None
                has_groups = quantized.quant.scale.group is not None
                message = f"{operand.base!r} is quantized per channel, and {operand} leaves out channels"
                if has_groups:
                    message = f"{operand.base!r} is quantized in groups, and {operand} is a part of it"
                statement = f"t = op dequantize({operand.base});"
                whole = Fix(statement, place=FixPlace.BEFORE, more=(Fix("t", operand.base),))
                is_free = self._named.vars.get("t") is None
                advice = Advice(f"slice what it stands for: {statement}", *[whole] * is_free)
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
        """The call, and whether it is complete: if the extent of an operand is unknown, only its dtypes are."""
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
                self._named.vars[output.base] = BoundVar(
                    output.base, MemoryKind.VOLATILE, found.dtype, None, found.shape, FromInit(None)
                )
            elif not AccessType(found.dtype, found.shape).agrees_with(
                self._operands.binding(declared, output, (given.operand for given in kind.inputs), found.shape)
            ):
                message = f"'{record.name}' gives {found}, but {output} is {declared}"
                self._problems.report(Code.RESULT_TYPE, message, output.span or node.span)

    def _partial_results(
        self, node: Node, record: OpRecord, kind: Op, call: Call, wanted: list[AccessType | None]
    ) -> None:
        """Check only the dtypes of results whose shapes are known only at run time."""
        for position, (output, declared) in enumerate(zip(kind.outputs, wanted, strict=True)):
            found = call.outputs[min(position, len(call.outputs) - 1)].dtype
            if declared is None:
                message = f"the shape of {output.base!r} is known only while the graph runs"
                advice = f"give it a type: assign {output.base}: {found.name}[...];"
                self._problems.report(Code.RESULT_TYPE, message, output.span or node.span, advice)
                raise ReportedError
            if found is not declared.dtype:
                message = f"'{record.name}' gives {found.name} values, but {output} is {declared}"
                self._problems.report(Code.RESULT_TYPE, message, output.span or node.span)

    # --- what can differ from step to step ------------------------------------------------------------------------

    def _varies(self, kind: Op, loops: Around) -> bool:
        """Whether shapes or parameters can differ between runs of the node."""
        bounds = self._named.sizes.bounds
        operands = [given.operand for given in kind.inputs if isinstance(given.operand, Access)]
        if any(self._has_moving_end(operand, bounds, loops) for operand in operands):
            return True
        if not bounds:
            return False
        touched = [operand.base for operand in operands] + [output.base for output in kind.outputs]
        variables = [self._named.vars[name] for name in touched if name in self._named.vars]
        return any(variable.is_dynamic or variable.dims is None for variable in variables) or any(
            name in bounds for _, value in kind.attrs for name in _names_in(value)
        )

    def _has_moving_end(self, access: Access, bounds: Mapping[str, int], loops: Around) -> bool:
        """Whether the ends of a slice can change between runs; even a slice of constant length can wrap at zero."""
        moving = {loop.index for loop in loops} | bounds.keys()
        return any(
            name in moving or self._named.static(name) is None
            for index in access.indices
            if isinstance(index, Slice)
            for end in index_expressions(index)
            for name in names(end)
        )


def _argument(span: GraphPlace | None, name: str) -> GraphPlace | None:
    """Where the text of a node names an argument; the node itself if that is not found."""
    if not isinstance(span, Span):
        return span
    match = re.compile(rf"\b{re.escape(name)}(?=\s*=)").search(span.source.text, span.start, span.end)
    return span if match is None else Span(span.source, *match.span())


def _named_outputs(kind: Op) -> str:
    return f"{len(kind.outputs)} {'is' if len(kind.outputs) == 1 else 'are'} named"


def _literals(inputs: Sequence[Input], places: Iterable[int | None]) -> dict[int, Literal]:
    """The literals among the operands, by operand slot."""
    given = {slot: inputs[place].operand for slot, place in enumerate(places) if place is not None}
    return {slot: operand for slot, operand in given.items() if isinstance(operand, Literal)}


def _names_in(value: AttrValue) -> Iterator[str]:
    """The constants and sizes in the value of a parameter."""
    match value:
        case VarValue(name):
            yield name
        case ExprValue(expr):
            yield from names(expr)
        case ExprList(exprs):
            for expr in exprs:
                yield from names(expr)


def _at_operand(error: OpError, places: tuple[int | None, ...]) -> OpError:
    """Redirect an error from the record's input to the operand in the source."""
    if not isinstance(error.at, int):
        return error
    place = places[error.at] if error.at < len(places) else None
    return OpError(error.code, error.message, place, error.advice)
