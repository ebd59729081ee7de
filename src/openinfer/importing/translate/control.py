"""Control flow: branches and loops, as such or unrolled."""

from dataclasses import replace

import numpy as np

from openinfer.importing.draft import (
    DraftBranch,
    DraftDeclare,
    DraftLoop,
    DraftOp,
    DraftOperand,
    DraftPart,
    DraftStep,
    DraftValue,
    IndexOperand,
    KnownTensor,
    known,
)
from openinfer.importing.emitter import slice_at
from openinfer.importing.onnx_model import OnnxGraph
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.ir.expr import BinaryExpr, Num, Ref
from openinfer.ir.operand import Single, Slice
from openinfer.loops.dim import is_same_shape, is_symbolic

_MOST_UNROLLED = 256
"""Iterations of a loop that are written one by one where it cannot be a loop."""


@onnx_op("If")
def _if(n: NodeContext) -> NodeResults:
    """A condition that is known leaves one branch; else both become blocks."""
    cond = n.x
    then_graph, else_graph = n.graph("then_branch"), n.graph("else_branch")
    if isinstance(cond, KnownTensor):
        if cond.array.size != 1:
            raise Unsupported("its condition is not a single value")
        return n.subgraphs.inline(then_graph if cond.array.reshape(-1)[0] else else_graph, ())
    flag = n.emit.value(n.emit.reshape(cond, ()))
    bodies = []
    for graph in (then_graph, else_graph):
        n.emit.bodies.open()
        results = n.subgraphs.inline(graph, ())
        bodies.append((n.emit.bodies.close(), results))
    (then_steps, then_results), (else_steps, else_results) = bodies
    outputs = []
    for one, other in zip(then_results, else_results, strict=True):
        if one.dtype is not other.dtype or not is_same_shape(one.shape, other.shape):
            raise Unsupported(f"its branches give {one.type} and {other.type}", "fix its condition: --fix INPUT=VALUE")
        outputs.append(n.emit.declare(one.dtype, one.shape))
    ends = [_results_into(n, results, outputs) for results in (then_results, else_results)]
    declared: list[DraftStep] = []
    own = [_hoisted((*body, *end), declared) for body, end in zip((then_steps, else_steps), ends, strict=True)]
    for step in declared:
        n.emit.bodies.add(step)
    n.emit.bodies.add(DraftBranch(flag, own[0], own[1], n.emit.origin))
    return tuple(outputs)


def _results_into(
    n: NodeContext, results: tuple[DraftOperand, ...], outputs: list[DraftValue]
) -> tuple[DraftStep, ...]:
    n.emit.bodies.open()
    for result, output in zip(results, outputs, strict=True):
        n.emit.copy(result if isinstance(result, DraftValue | DraftPart) else n.emit.value(result), output)
    return n.emit.bodies.close()


def _hoisted(steps: tuple[DraftStep, ...], declared: list[DraftStep]) -> tuple[DraftStep, ...]:
    """Steps that declare nothing: blocks may not, so that their variables are declared before."""
    found: list[DraftStep] = []
    for step in steps:
        match step:
            case DraftDeclare():
                declared.append(step)
            case DraftOp() if step.declares:
                declared.extend(DraftDeclare(one) for one in step.outputs if isinstance(one, DraftValue))
                found.append(replace(step, declares=False))
            case DraftLoop():
                found.append(replace(step, body=_hoisted(step.body, declared)))
            case _:
                found.append(step)
    return tuple(found)


@onnx_op("Loop")
def _loop(n: NodeContext) -> NodeResults:
    body = n.graph("body")
    count, cond = n.optional(0), n.optional(1)
    if count is None or not isinstance(count, KnownTensor):
        raise Unsupported("how often it runs depends on data", "fix what it depends on: --fix INPUT=VALUE")
    if cond is not None and not (isinstance(cond, KnownTensor) and np.all(cond.array)):
        raise Unsupported("whether it runs depends on data", "fix what it depends on: --fix INPUT=VALUE")
    times = count.array.reshape(-1)[0]
    times = times if is_symbolic(times) else int(times)
    carried = [one for one in n.operands[2:] if one is not None]
    mark = n.emit.bodies.mark()
    try:
        return _as_loop(n, body, times, carried)
    except Unsupported:
        if is_symbolic(times) or times > _MOST_UNROLLED:
            raise
        n.emit.bodies.rollback(mark)
    return _unrolled(n, body, times, carried)


def _goes_on() -> DraftOperand:
    """The condition of an iteration that runs."""
    return known(np.ones((), np.bool_))


def _as_loop(n: NodeContext, body: OnnxGraph, times: int, carried: list[DraftOperand]) -> NodeResults:
    """A loop with a variable for each value that is carried; what is collected goes into a tensor."""
    variables = [n.emit.variable(one) for one in carried]
    before = n.emit.bodies.mark()
    index = n.emit.open_loop("iterations")
    results = n.subgraphs.inline(body, [index, _goes_on(), *variables])
    if not (isinstance(results[0], KnownTensor) and np.all(results[0].array)):
        raise Unsupported("whether it goes on depends on data")
    own, collected = results[1 : 1 + len(carried)], results[1 + len(carried) :]
    for new, variable in zip(own, variables, strict=True):
        if new.dtype is not variable.dtype or not is_same_shape(new.shape, variable.shape):
            raise Unsupported(f"what it carries changes from {variable.type} to {new.type}")
    rows = [(one, DraftValue(one.dtype, (times, *one.shape))) for one in collected]
    for one, tensor in rows:  # first: what is collected may be what was carried into this iteration
        n.emit.copy(one if isinstance(one, DraftValue | DraftPart) else n.emit.value(one), slice_at(tensor, index))
    _carry(n, own, variables)
    n.emit.close_loop("iterations", index, times)
    n.emit.bodies.insert(before, [DraftDeclare(tensor) for _, tensor in rows])
    return (*variables, *(tensor for _, tensor in rows))


def _carry(n: NodeContext, new: tuple[DraftOperand, ...], variables: list[DraftValue]) -> None:
    """All variables at once: one that another needs is kept first."""
    kept = [
        n.emit.variable(one) if one in variables and one is not own else one
        for one, own in zip(new, variables, strict=True)
    ]
    for one, variable in zip(kept, variables, strict=True):
        if one is not variable:
            n.emit.copy(one if isinstance(one, DraftValue | DraftPart) else n.emit.value(one), variable)


def _unrolled(n: NodeContext, body: OnnxGraph, times: int, carried: list[DraftOperand]) -> NodeResults:
    collected: list[list[DraftOperand]] = []
    for iteration in range(times):
        results = n.subgraphs.inline(body, [known(np.int64(iteration)), _goes_on(), *carried])
        go_on, rest = results[0], results[1:]
        carried, rows = list(rest[: len(carried)]), rest[len(carried) :]
        collected = collected or [[] for _ in rows]
        for own, one in zip(collected, rows, strict=True):
            own.append(one)
        if not isinstance(go_on, KnownTensor):
            raise Unsupported("whether it goes on depends on data", "fix what it depends on: --fix INPUT=VALUE")
        if not np.all(go_on.array):
            break
    if not collected and len(n.node.outputs) > len(carried):
        raise Unsupported("it collects values and never runs")
    return (*carried, *(n.emit.op("stack", *own, axis=0) for own in collected))


@onnx_op("Scan")
def _scan(n: NodeContext) -> NodeResults:
    """Over slices of its inputs, forwards or backwards."""
    body, count = n.graph("body"), n.integer("num_scan_inputs", 0)
    given = [one for one in n.operands if one is not None]
    if n.opset < 9 or not 1 <= count <= len(given):
        raise Unsupported("this form of Scan is not known")
    carried, scanned = given[: len(given) - count], [n.emit.value(one) for one in given[len(given) - count :]]
    axes = [
        n.axis(one, len(own.shape)) for one, own in zip(n.ints("scan_input_axes") or (0,) * count, scanned, strict=True)
    ]
    backwards = n.ints("scan_input_directions") or (0,) * count
    times = scanned[0].shape[axes[0]]
    variables = [n.emit.variable(one) for one in carried]
    before = n.emit.bodies.mark()
    index = n.emit.open_loop("scan")
    slices = [
        _slice(own, axis, index, times, backwards=bool(back))
        for own, axis, back in zip(scanned, axes, backwards, strict=True)
    ]
    results = n.subgraphs.inline(body, [*variables, *slices])
    own, collected = results[: len(carried)], results[len(carried) :]
    rows = [(one, DraftValue(one.dtype, (times, *one.shape))) for one in collected]
    directions = n.ints("scan_output_directions") or (0,) * len(rows)
    for (one, tensor), back in zip(rows, directions, strict=True):
        target = _slice(tensor, 0, index, times, backwards=bool(back))
        n.emit.copy(one if isinstance(one, DraftValue | DraftPart) else n.emit.value(one), target)
    _carry(n, own, variables)
    n.emit.close_loop("scan", index, times)
    n.emit.bodies.insert(before, [DraftDeclare(tensor) for _, tensor in rows])
    places = n.ints("scan_output_axes") or (0,) * len(rows)
    moved = [_moved(n, tensor, axis) for (_, tensor), axis in zip(rows, places, strict=True)]
    return (*variables, *moved)


def _moved(n: NodeContext, tensor: DraftValue, axis: int) -> DraftOperand:
    """A tensor with its first axis somewhere else."""
    place = n.axis(axis, len(tensor.shape))
    rest = list(range(1, len(tensor.shape)))
    return n.emit.transpose(tensor, [*rest[:place], 0, *rest[place:]])


def _slice(tensor: DraftValue, axis: int, index: IndexOperand, times: int, *, backwards: bool) -> DraftPart:
    at = Ref(index.name) if not backwards else BinaryExpr("-", Num(int(times) - 1), Ref(index.name))
    if backwards and is_symbolic(times):
        raise Unsupported("it goes backwards over a dynamic size")
    indices = tuple(Single(at) if one == axis else Slice() for one in range(len(tensor.shape)))
    return DraftPart(tensor, indices, (*tensor.shape[:axis], *tensor.shape[axis + 1 :]))
