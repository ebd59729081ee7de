"""Branches by a condition, as such or decided while importing."""

from dataclasses import replace

import numpy as np

from openinfer.dtypes import DType
from openinfer.importing.draft import (
    DraftBranch,
    DraftCopy,
    DraftDeclare,
    DraftLoop,
    DraftOp,
    DraftOperand,
    DraftPart,
    DraftStep,
    DraftValue,
    IndexOperand,
    KnownTensor,
    base_of,
    operands,
    walk,
)
from openinfer.importing.problems import Unsupported
from openinfer.importing.translate.context import NodeContext, NodeResults, onnx_op
from openinfer.loops.dim import is_same, is_same_shape
from openinfer.ops.types import Shape


@onnx_op("If")
def _if(n: NodeContext) -> NodeResults:
    """A condition that is known leaves one branch; else both become blocks."""
    cond = n.x
    then_graph, else_graph = n.graph("then_branch"), n.graph("else_branch")
    if isinstance(cond, KnownTensor):
        if cond.array.size != 1:
            raise Unsupported("its condition is not a single value")
        return n.subgraphs.inline(then_graph if cond.array.reshape(-1)[0] else else_graph, ())
    require_bool(cond)
    flag = n.emit.value(n.emit.reshape(cond, ()))
    bodies = []
    with n.subgraphs.conditional(n.node):
        for graph in (then_graph, else_graph):
            n.emit.bodies.open()
            results = n.subgraphs.inline(graph, ())
            bodies.append((n.emit.bodies.close(), results))
    (then_steps, then_results), (else_steps, else_results) = bodies
    outputs = [n.emit.declare(*_common_type(*pair)) for pair in zip(then_results, else_results, strict=True)]
    ends = [_results_into(n, results, outputs) for results in (then_results, else_results)]
    declared: list[DraftStep] = []
    own = [
        hoisted((*body, *end), declared, again=False) for body, end in zip((then_steps, else_steps), ends, strict=True)
    ]
    for step in declared:
        n.emit.bodies.add(step)
    n.emit.bodies.add(DraftBranch(flag, own[0], own[1], n.emit.origin))
    return tuple(outputs)


def _common_type(one: DraftOperand, other: DraftOperand) -> tuple[DType, Shape]:
    """The type of a result of both branches. A single number may have more dimensions in one than in the other."""
    if one.dtype is other.dtype and is_same_shape(one.shape, other.shape):
        return one.dtype, one.shape
    if one.dtype is other.dtype and is_number(one) and is_number(other):
        return one.dtype, min(one.shape, other.shape, key=len)
    raise Unsupported(f"its branches give {one.type} and {other.type}", "fix its condition: --fix INPUT=VALUE")


def require_bool(cond: DraftOperand) -> None:
    """Refuse a condition that is not one, or several."""
    if cond.dtype.kind != "bool" or not is_number(cond):
        raise Unsupported(f"its condition is {cond.type}, not a single bool")


def is_number(operand: DraftOperand) -> bool:
    """Whether an operand has one element."""
    return all(is_same(extent, 1) for extent in operand.shape)


def _results_into(
    n: NodeContext, results: tuple[DraftOperand, ...], outputs: list[DraftValue]
) -> tuple[DraftStep, ...]:
    n.emit.bodies.open()
    for result, output in zip(results, outputs, strict=True):
        store(n, n.emit.reshape(result, output.shape), output)
    return n.emit.bodies.close()


def store(n: NodeContext, result: DraftOperand, target: DraftValue | DraftPart) -> None:
    """Copy a result into a variable; one that is known becomes a value first."""
    plain = isinstance(result, DraftValue | DraftPart | IndexOperand)
    n.emit.copy(result if plain else n.emit.value(result), target)


def hoisted(steps: tuple[DraftStep, ...], declared: list[DraftStep], *, again: bool) -> tuple[DraftStep, ...]:
    """Steps that declare nothing: blocks may not, so that their variables are declared before.

    Declaring a variable makes it zero. ``again`` says that the steps run more than once, so that one which relies on
    that is made zero by a step.
    """
    found: list[DraftStep] = []
    for place, step in enumerate(steps):
        match step:
            case DraftDeclare(value):
                declared.append(step)
                if again and not _is_overwritten(value, steps[place + 1 :]):
                    found.append(_zeroed(value))
            case DraftOp() if step.declares:
                declared.extend(DraftDeclare(one) for one in step.outputs if isinstance(one, DraftValue))
                found.append(replace(step, declares=False))
            case DraftLoop():
                found.append(replace(step, body=hoisted(step.body, declared, again=True)))
            case _:
                found.append(step)
    return tuple(found)


def _is_overwritten(value: DraftValue, steps: tuple[DraftStep, ...]) -> bool:
    """Whether the first step that touches a value writes all of it."""
    for step in steps:
        reads = any(base_of(one) is value for inner in walk((step,)) for one in operands(inner))
        if reads or isinstance(step, DraftLoop | DraftBranch):
            return False
        if (isinstance(step, DraftCopy) and step.dst is value) or (isinstance(step, DraftOp) and value in step.outputs):
            return True
    return True


def _zeroed(value: DraftValue) -> DraftOp:
    zero = KnownTensor(value.dtype, np.zeros((), value.dtype.array))
    op = "expand" if value.shape else "reshape"
    return DraftOp(op, (zero,), (("shape", value.shape),), (value,), declares=False)
