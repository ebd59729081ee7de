"""Translates the nodes of an exported program to a draft, one by one; problems are reported together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from openinfer.errors import Code, Diagnostic, ImportingError, counted, nearest, printable
from openinfer.importing.aten import TABLE, AtenContext
from openinfer.importing.aten.complex_numbers import ComplexOperand, complex_results, is_complex
from openinfer.importing.aten.context import OPERANDS
from openinfer.importing.draft import Draft, DraftOperand, DraftValue, KnownTensor, NodeOrigin, Port, extent, known
from openinfer.importing.emitter import Emitter
from openinfer.importing.problems import Unsupported, bad_model
from openinfer.importing.states import StatePair
from openinfer.importing.torch_model import AtenGraph, AtenInput, AtenNode, AtenProgram, InputRole, ValueRef
from openinfer.loops.dim import Dim
from openinfer.ops import OpError

_MOST_REPORTED = 100
_UNEXPECTED = (ArithmeticError, LookupError, TypeError, ValueError)
"""What a translator raises when an op is called in a way that it does not know."""


class _SkippedError(Exception):
    """A node whose operands are missing because of a problem already reported."""


class _Missing:
    """The value of a node that failed."""


def translated_program(program: AtenProgram) -> tuple[Draft, tuple[StatePair, ...]]:
    """The draft of a program and the buffers that it writes; raises all problems together."""
    return _ProgramTranslation(program).draft()


class _ProgramTranslation:
    """The walk over the nodes of one program."""

    def __init__(self, program: AtenProgram) -> None:
        self._program = program
        self._emitter = Emitter(program.sizes)
        self._values: dict[str, Any] = {}
        self._read = _read_results(program.nodes, [output.value for output in program.outputs])
        self._problems: list[Diagnostic] = []

    def draft(self) -> tuple[Draft, tuple[StatePair, ...]]:
        inputs, states = self._inputs()
        for node in _needed(self._program.nodes, [output.value for output in self._program.outputs]):
            self._node(node)
        if self._problems:
            raise ImportingError(*self._problems)
        outputs, pairs = [], []
        for output in self._program.outputs:
            try:
                operand = self._operand(output.value)
            except Unsupported as error:
                raise bad_model(self._program.name, f"{output.label!r}: {error.reason}", error.advice) from error
            if output.state is None:
                outputs.append(Port(output.label, operand))
            else:
                given, initial = states[output.state]
                pairs.append(StatePair(Port(output.label, operand), Port(output.state, given), given, initial))
        comment = f"Imported from PyTorch: {self._program.name}, {counted(len(self._program.nodes), 'node')} of ATen."
        bounds = tuple((name, int(dim)) for name, dim in self._program.sizes.items())
        steps = self._emitter.bodies.steps
        draft = Draft(self._program.name, tuple(inputs), steps, tuple(outputs), bounds, comment=comment)
        return draft, tuple(pairs)

    def _inputs(self) -> tuple[list[Port], dict[str, tuple[DraftValue, KnownTensor]]]:
        ports, states = [], {}
        for one in self._program.inputs:
            if one.role is InputRole.KNOWN:
                assert one.array is not None
                self._values[one.name] = _known(one)
                continue
            value = DraftValue(one.dtype, one.shape, one.label)
            self._values[one.name] = value
            if one.role is InputRole.GIVEN:
                ports.append(Port(one.label, value))
            else:
                assert one.array is not None
                states[one.label] = (value, KnownTensor(one.dtype, one.array, one.label))
        return ports, states

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _node(self, node: AtenNode) -> None:
        self._emitter.origin = NodeOrigin(node.place, node.kind)
        mark = self._emitter.bodies.mark()
        try:
            self._values[node.name] = _named(self._results(node), node)
        except (_SkippedError, Unsupported, OpError, *_UNEXPECTED) as error:
            self._emitter.bodies.rollback(mark)
            if not isinstance(error, _SkippedError):
                self._report(node, error if isinstance(error, Unsupported) else _reason(error))
            self._values[node.name] = _Missing()

    def _results(self, node: AtenNode) -> Any:
        values = {name: self._value(one) for name, one in node.arguments.items()}
        context = AtenContext(node, values, self._emitter, frozenset(self._read[node.name]), self._inline)
        if is_complex(context):
            return complex_results(context)
        translator = TABLE.get(node.op)
        if translator is None and node.op.startswith("torch.ops.higher_order."):
            raise Unsupported("there is no translation of this kind of control flow", "choose with torch.where")
        if translator is None:
            raise Unsupported("there is no translation of this op", nearest(node.op, TABLE))
        return translator(context)

    def _inline(self, graph: AtenGraph, given: Sequence[Any]) -> tuple[DraftOperand, ...]:
        """Translate a nested graph in place of its node."""
        around, origin, before = (self._values, self._read), self._emitter.origin, len(self._problems)
        self._values = dict(zip(graph.inputs, given, strict=True))
        self._read = _read_results(graph.nodes, graph.outputs)
        try:
            for node in _needed(graph.nodes, graph.outputs):
                self._node(node)
            if len(self._problems) > before:
                raise _SkippedError
            return tuple(self._operand(one) for one in graph.outputs)
        finally:
            self._values, self._read = around
            self._emitter.origin = origin

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._value, value))
        if not isinstance(value, ValueRef):
            return value
        if value.name not in self._values:
            raise Unsupported(f"it reads {value.name!r}, which is not a tensor", "make it a tensor, or a constant")
        found = self._values[value.name]
        if isinstance(found, _Missing):
            raise _SkippedError
        return found

    def _operand(self, value: Any) -> DraftOperand:
        found = self._value(value)
        if isinstance(found, OPERANDS):
            return found
        if isinstance(found, ComplexOperand):
            raise Unsupported("a result is complex", "give torch.view_as_real of it")
        return extent(found) if isinstance(found, Dim) else known(found)

    def _report(self, node: AtenNode, error: Unsupported) -> None:
        if len(self._problems) >= _MOST_REPORTED:
            return
        around = f" in {printable('.'.join(node.modules))}" if node.modules else ""
        line = f" ({printable(node.line)})" if node.line else ""
        message = f"cannot import {node.kind} node {node.name!r}{around}{line}: {error.reason}"
        self._problems.append(Diagnostic(Code.UNSUPPORTED_NODE, message, help=error.advice))


def _reason(error: Exception) -> Unsupported:
    """A refusal for an exception that a translator did not intend."""
    return Unsupported(error.message if isinstance(error, OpError) else f"it is called in an unsupported way: {error}")


def _named(results: Any, node: AtenNode) -> Any:
    """The results, named after the place of the node if they have no name yet."""
    if isinstance(results, tuple):
        return tuple(_named(one, node) for one in results)
    if node.modules and isinstance(results, KnownTensor) and not results.hint:
        return replace(results, hint=node.place)
    if node.modules and isinstance(results, DraftValue) and not results.hint:
        results.hint = node.place
    return results


def _references(value: Any) -> list[str]:
    if isinstance(value, ValueRef):
        return [value.name]
    return [name for one in value for name in _references(one)] if isinstance(value, tuple) else []


def _known(one: AtenInput) -> "KnownTensor | ComplexOperand":
    assert one.array is not None
    real = KnownTensor(one.dtype, one.array, one.label)
    if one.imaginary is None:
        return real
    return ComplexOperand(
        replace(real, hint=f"{one.label}.real"), KnownTensor(one.dtype, one.imaginary, f"{one.label}.imag")
    )


def _needed(nodes: Sequence[AtenNode], results: Sequence[Any]) -> list[AtenNode]:
    """The nodes that results depend on, in order."""
    wanted = {name for one in results for name in _references(one)}
    kept = []
    for node in reversed(nodes):
        if node.name in wanted:
            kept.append(node)
            wanted.update(name for value in node.arguments.values() for name in _references(value))
    return kept[::-1]


def _read_results(nodes: Sequence[AtenNode], results: Sequence[Any]) -> dict[str, set[int]]:
    """The positions of the results of each node that are read: those that ``getitem`` takes, else the first."""
    found: dict[str, set[int]] = {node.name: set() for node in nodes}
    for node in _needed(nodes, results):
        for value in node.arguments.values():
            for name in _references(value):
                place = node.arguments.get("1") if node.op == "_operator.getitem" else 0
                found.setdefault(name, set()).add(place if isinstance(place, int) else 0)
    return found
