"""Translates the nodes of a model to steps of a draft, one by one. Reports every node that cannot be translated."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from openinfer.dtypes import convert
from openinfer.errors import Code, Diagnostic, FileSpan, ImportingError, TensorError, counted, nearest, printable
from openinfer.importing.counts import DataCounts
from openinfer.importing.draft import Draft, DraftOperand, DraftValue, KnownTensor, NodeOrigin, Port
from openinfer.importing.emitter import Emitter
from openinfer.importing.onnx_decided import branch_advice
from openinfer.importing.onnx_functions import function_body
from openinfer.importing.onnx_model import (
    AttributeRef,
    AttributeValue,
    OnnxFunction,
    OnnxGraph,
    OnnxModel,
    OnnxNode,
    OnnxValueInfo,
)
from openinfer.importing.options import ImportOptions
from openinfer.importing.problems import SkippedError, Unsupported, bad_file, bad_option
from openinfer.importing.sizes import ModelSizes
from openinfer.importing.translate import TABLE, NodeContext
from openinfer.importing.translate.counted import counted_places
from openinfer.importing.translate.refused import refusal
from openinfer.ops import OpError

_DEEPEST = 100
"""How deeply bodies of functions and branches may be nested."""
_MOST_NODES = 200_000
"""The most nodes of a model once functions are inlined and loops unrolled."""
_MOST_REPORTED = 100
_MOST_ELEMENTS = 1 << 24
_MALFORMED = (OpError, ArithmeticError, LookupError, MemoryError, TypeError, ValueError)
"""What a translator raises when a file gives a node inputs or attributes that it cannot have."""
_NO_SENSE = "its inputs and attributes do not fit each other"


@dataclass(frozen=True)
class _Missing:
    """A value that does not exist: its node failed, which has been reported, or has no such output."""

    reason: str | None = None


class _Names:
    """The values of names, in nested graphs."""

    def __init__(self, outer: "_Names | None" = None) -> None:
        self._own: dict[str, DraftOperand | _Missing] = {}
        self._outer = outer

    def bind(self, name: str, operand: "DraftOperand | _Missing") -> None:
        if name:
            self._own[name] = operand

    def find(self, name: str) -> "DraftOperand | _Missing | None":
        around: _Names | None = self
        while around is not None:
            if name in around._own:
                return around._own[name]
            around = around._outer
        return None


def translated(model: OnnxModel, options: ImportOptions) -> Draft:
    """The draft of a model; raises all problems together."""
    sizes = ModelSizes(options.sizes)
    names = _Names()
    inputs = _inputs(model, options, sizes, names)
    sizes.pass_over(model.graph.outputs)
    sizes.pass_over_places(counted_places(model.graph.nodes, options.sizes))
    sizes.require_all()
    counts = DataCounts(options.sizes)
    translation = _Translation(model, names, Emitter(sizes.dynamic, counts))
    outputs = translation.graph(model.graph)
    if translation.problems:
        raise ImportingError(*translation.problems)
    ports = []
    for info, output in zip(model.graph.outputs, outputs, strict=True):
        if output is None:
            raise bad_file(model.path, f"no node computes the output {printable(info.name)!r:.100}")
        placed = translation.emitter.placed(output)  # a size becomes a value of the graph
        assert placed is not None
        ports.append(Port(info.name, placed))
    name = options.name or model.graph.name
    count, opset = counted(len(model.graph.nodes), "node"), model.opsets.get("", 1)
    comment = f"Imported from {os.path.basename(model.path)}: {count} of opset {opset}."
    steps = translation.emitter.bodies.steps
    draft = Draft(name, tuple(inputs), steps, tuple(ports), sizes.bounds, comment=comment)
    return counts.resolved(draft, model.path, sizes.dynamic)


def _inputs(model: OnnxModel, options: ImportOptions, sizes: ModelSizes, names: _Names) -> list[Port]:
    """The inputs as values; fixed inputs and initializers become constants."""
    graph = model.graph
    for name, tensor in graph.tensors.items():
        names.bind(name, KnownTensor(tensor.dtype, tensor.array, name))
    own = [info for info in graph.inputs if info.name not in graph.tensors or info.name in options.fixed]
    unknown = [name for name in options.fixed if name not in {info.name for info in graph.inputs}]
    if unknown:
        advice = nearest(unknown[0], [info.name for info in graph.inputs])
        raise bad_option(f"the model has no input {unknown[0]!r:.100}", advice)
    ports, refused = [], []
    for info in own:
        if info.dtype is None or info.dims is None:
            what = info.kind if info.dtype is None else "a tensor of unknown rank"
            refused.append(_refusal(model.path, f"the input {printable(info.name)!r:.100} is {what}"))
            continue
        if info.name in options.fixed:
            sizes.pass_over((info,))
            names.bind(info.name, _fixed(info, options.fixed[info.name]))
            continue
        value = DraftValue(info.dtype, sizes.shape(info), info.name)
        names.bind(info.name, value)
        ports.append(Port(info.name, value))
    if refused:
        raise ImportingError(*refused)
    return ports


def _refusal(path: str, message: str) -> Diagnostic:
    return Diagnostic(Code.UNSUPPORTED_NODE, message, FileSpan(path), "inputs are tensors of numbers or bools")


def _fixed(info: OnnxValueInfo, value: object) -> KnownTensor:
    """A constant for an input; a single number fills a known shape."""
    assert info.dtype is not None
    array = np.asarray(value)
    try:
        array = convert(array, info.dtype)
    except (TensorError, TypeError, ValueError) as error:
        raise bad_option(f"{value!r:.60} is not {info.dtype.name}, the dtype of the input {info.name!r:.60}") from error
    dims = info.dims or ()
    if not array.ndim and dims:
        shape = [1 if dim.value is None else dim.value for dim in dims]
        if prod(shape) > _MOST_ELEMENTS:
            raise bad_option(f"the input {info.name!r:.60} is too large to be a constant")
        array = np.broadcast_to(array, shape)
    if array.ndim != len(dims):
        raise bad_option(f"the input {info.name!r:.60} has {counted(len(dims), 'dimension')}, not {array.ndim}")
    return KnownTensor(info.dtype, np.array(array), info.name)


class _Translation:
    """Walks the nodes. ``names`` and ``opsets`` are those of the current graph or function."""

    def __init__(self, model: OnnxModel, names: _Names, emitter: Emitter) -> None:
        self.emitter = emitter
        self.problems: list[Diagnostic] = []
        self._model = model
        self._names = names
        self._opsets: Mapping[str, int] = model.opsets
        self._depth = 0
        self._count = 0
        self._around: list[OnnxNode] = []

    def graph(self, graph: OnnxGraph) -> list[DraftOperand | None]:
        """Translate a graph and return its outputs; None for those that have no value."""
        for node in _needed(graph):
            self._count += 1
            if self._count > _MOST_NODES:
                raise bad_file(self._model.path, f"it has more than {_MOST_NODES:,} nodes when loops are written out")
            self._node(node)
        found = [self._names.find(info.name) for info in graph.outputs]
        return [None if one is None or isinstance(one, _Missing) else one for one in found]

    def inline(self, graph: OnnxGraph, given: Sequence[DraftOperand]) -> tuple[DraftOperand, ...]:
        """Translate a graph inside a node; it sees the names of the graph around it."""
        if len(given) != len(graph.inputs):
            raise Unsupported(f"its graph has {len(graph.inputs)} inputs, and {len(given)} are given")
        outer, before = self._names, len(self.problems)
        self._names = _Names(outer)
        try:
            for name, tensor in graph.tensors.items():
                self._names.bind(name, KnownTensor(tensor.dtype, tensor.array, name))
            for info, operand in zip(graph.inputs, given, strict=True):
                self._names.bind(info.name, operand)
            results = self._inner(graph)
            failed = any(self._names.find(info.name) == _Missing() for info in graph.outputs)
        finally:
            self._names = outer
        if failed or len(self.problems) > before:
            raise SkippedError
        found = [one for one in results if one is not None]
        if len(found) != len(results):
            raise Unsupported("an output of its graph is not computed")
        return tuple(found)

    def find(self, name: str) -> DraftOperand | None:
        """The value of a name in the current graph, or None."""
        found = self._names.find(name)
        return None if isinstance(found, _Missing) else found

    @contextmanager
    def conditional(self, node: OnnxNode) -> Iterator[None]:
        """Adds advice to problems in a branch: it can be left out if the inputs that decide it are fixed."""
        before = len(self.problems)
        try:
            yield
        finally:
            if len(self.problems) > before:
                advice = branch_advice(self._model.graph, node)
                self.problems[before:] = [
                    one if one.help or advice is None else replace(one, help=advice) for one in self.problems[before:]
                ]

    def reported(self) -> int:
        """The number of problems reported so far."""
        return len(self.problems)

    def forget(self, reported: int) -> None:
        """Drop the problems reported since then: their nodes are translated in another way."""
        del self.problems[reported:]

    def _inner(self, graph: OnnxGraph) -> list[DraftOperand | None]:
        """Translate a nested graph; the depth is restored even if that fails."""
        if self._depth == _DEEPEST:
            raise bad_file(self._model.path, f"its graphs and functions are nested more than {_DEEPEST} deep")
        self._depth += 1
        try:
            return self.graph(graph)
        finally:
            self._depth -= 1

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _node(self, node: OnnxNode) -> None:
        named = self._around[0] if self._around else node
        origin = self.emitter.origin
        self.emitter.origin = NodeOrigin(named.name or (named.outputs[0] if named.outputs else ""), named.kind)
        mark = self.emitter.bodies.mark()
        try:
            results = self._results(node)
        except (SkippedError, Unsupported, *_MALFORMED) as error:
            self.emitter.bodies.rollback(mark)
            if not isinstance(error, SkippedError):
                self._report(node, error if isinstance(error, Unsupported) else Unsupported(_NO_SENSE))
            results = [_Missing()] * len(node.outputs)
        finally:
            self.emitter.origin = origin
        for place, name in enumerate(node.outputs):
            found = results[place] if place < len(results) else None
            missing = _Missing(f"output {place} of {node.kind} node {node.title!r:.60} is not supported")
            self._names.bind(
                name, missing if found is None else found if isinstance(found, _Missing) else _named(found, name)
            )

    def _results(self, node: OnnxNode) -> "list[DraftOperand | _Missing | None]":
        operands = tuple(self._operand(name) for name in node.inputs)
        function = self._model.functions.get((node.domain, node.op, node.overload))
        if function is not None:
            return self._called(node, function, operands)
        opset = self._opsets.get("", 1)
        translator = TABLE.get(node.kind)
        if translator is None and node.domain:
            raise Unsupported(_unknown(node), _domain_advice(node))
        if translator is None:
            body = function_body(node, opset, operands)
            if body is None:
                raise Unsupported(*refusal(node.op))
            return self._called(node, body, operands)
        results = translator(NodeContext(node, opset, operands, self.emitter, self))
        return list(results) if isinstance(results, tuple) else [results]

    def _operand(self, name: str) -> DraftOperand | None:
        if not name:
            return None
        found = self._names.find(name)
        if found is None:
            raise Unsupported(f"nothing computes its input {printable(name)!r:.100}")
        if isinstance(found, _Missing):
            if found.reason is None:
                raise SkippedError
            raise Unsupported(found.reason)
        return found

    def _called(
        self, node: OnnxNode, function: OnnxFunction, operands: Sequence[DraftOperand | None]
    ) -> "list[DraftOperand | _Missing | None]":
        """Inline the body of a function in place of a node."""
        outer, opsets, before = self._names, self._opsets, len(self.problems)
        self._names, self._opsets = _Names(), {**opsets, **function.opsets}
        self._around.append(node)
        try:
            for place, name in enumerate(function.inputs):
                given = operands[place] if place < len(operands) else None
                if given is not None:
                    self._names.bind(name, given)
            nodes = tuple(_with_attributes(one, {**function.defaults, **node.attributes}) for one in function.nodes)
            missing = {
                name for place, name in enumerate(function.inputs) if place >= len(operands) or operands[place] is None
            }
            nodes = tuple(
                replace(one, inputs=tuple("" if name in missing else name for name in one.inputs)) for one in nodes
            )
            infos = tuple(OnnxValueInfo(name, None, None, "") for name in function.outputs)
            results = self._inner(OnnxGraph("", nodes, (), infos, {}))
        finally:
            self._names, self._opsets = outer, opsets
            self._around.pop()
        if len(self.problems) > before:
            raise SkippedError
        return list(results)

    def _report(self, node: OnnxNode, error: Unsupported) -> None:
        if len(self.problems) >= _MOST_REPORTED:
            return
        around = f", in {self._around[0].kind} node {self._around[0].title!r:.60}" if self._around else ""
        message = (
            f"cannot import {printable(node.kind):.80} node {printable(node.title)!r:.100}{around}: {error.reason}"
        )
        self.problems.append(Diagnostic(Code.UNSUPPORTED_NODE, message, FileSpan(self._model.path), error.advice))


def _unknown(node: OnnxNode) -> str:
    if any(key.startswith(f"{node.domain}:") for key in TABLE):
        return f"there is no translation of this op type of the domain {node.domain!r:.60}"
    return f"the operator domain {node.domain!r:.60} is not supported"


def _domain_advice(node: OnnxNode) -> str:
    if node.domain == "com.microsoft":
        return "export the model without ONNX Runtime's optimizations"
    return "replace it by operators of ONNX"


def _named(operand: DraftOperand, name: str) -> DraftOperand:
    """A result with its name in the file, if it has no name yet."""
    if isinstance(operand, KnownTensor) and not operand.hint:
        return replace(operand, hint=name)
    if isinstance(operand, DraftValue) and not operand.hint:
        operand.hint = name
    return operand


def _with_attributes(node: OnnxNode, given: Mapping[str, AttributeValue | AttributeRef]) -> OnnxNode:
    """A node of a function's body, with the attributes of its caller."""
    found: dict[str, AttributeValue | AttributeRef] = {}
    for name, value in node.attributes.items():
        own = given.get(value.name) if isinstance(value, AttributeRef) else value
        if isinstance(own, OnnxGraph):
            own = replace(own, nodes=tuple(_with_attributes(one, given) for one in own.nodes))
        if own is not None:
            found[name] = own
    return replace(node, attributes=found)


def _needed(graph: OnnxGraph) -> list[OnnxNode]:
    """The nodes that outputs depend on, in order."""
    wanted = {info.name for info in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        if any(name in wanted for name in node.outputs if name):
            # Outputs that nothing reads lose their names; the first one keeps it, since messages use it for the node.
            rest = tuple(name if name in wanted else "" for name in node.outputs[1:])
            kept.append(replace(node, outputs=(*node.outputs[:1], *rest)))
            wanted.update(_read(node))
    return kept[::-1]


def _read(node: OnnxNode) -> set[str]:
    """All names that a node reads, including those that its graphs read."""
    found = set(node.inputs)
    for value in node.attributes.values():
        if isinstance(value, OnnxGraph):
            found.update(info.name for info in value.outputs)
            for inner in value.nodes:
                found |= _read(inner)
    return found - {""}
