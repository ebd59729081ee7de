"""Branches and loop-carried values as steps of a draft, shared by every format that has them."""

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
from openinfer.importing.emitter import Emitter
from openinfer.importing.problems import Unsupported
from openinfer.loops.dim import is_same, is_same_shape
from openinfer.ops.types import Shape

MOST_UNROLLED = 256
"""The most iterations that are unrolled when a loop cannot be kept."""
Arm = tuple[tuple[DraftStep, ...], tuple[DraftOperand, ...]]
"""The steps of a branch and its results."""


def branched(emit: Emitter, flag: DraftValue, then: Arm, other: Arm, advice: str) -> tuple[DraftOperand, ...]:
    """Both bodies as blocks; a flag selects one."""
    outputs = [emit.declare(*_common_type(*pair, advice)) for pair in zip(then[1], other[1], strict=True)]
    ends = [_results_into(emit, results, outputs) for _, results in (then, other)]
    declared: list[DraftStep] = []
    own = [hoisted((*body, *end), declared, again=False) for (body, _), end in zip((then, other), ends, strict=True)]
    for step in declared:
        emit.bodies.add(step)
    emit.bodies.add(DraftBranch(flag, own[0], own[1], emit.origin))
    return tuple(outputs)


def _common_type(one: DraftOperand, other: DraftOperand, advice: str) -> tuple[DType, Shape]:
    """The common type of a result of both branches. A single number may have a different rank in each."""
    if one.dtype is other.dtype and is_same_shape(one.shape, other.shape):
        return one.dtype, one.shape
    if one.dtype is other.dtype and is_number(one) and is_number(other):
        return one.dtype, min(one.shape, other.shape, key=len)
    raise Unsupported(f"its branches give {one.type} and {other.type}", advice)


def require_bool(cond: DraftOperand) -> None:
    """Reject a condition that is not a single bool."""
    if cond.dtype.kind != "bool" or not is_number(cond):
        raise Unsupported(f"its condition is {cond.type}, not a single bool")


def is_number(operand: DraftOperand) -> bool:
    """Whether an operand has exactly one element."""
    return all(is_same(extent, 1) for extent in operand.shape)


def _results_into(emit: Emitter, results: tuple[DraftOperand, ...], outputs: list[DraftValue]) -> tuple[DraftStep, ...]:
    emit.bodies.open()
    for result, output in zip(results, outputs, strict=True):
        store(emit, emit.reshape(result, output.shape), output)
    return emit.bodies.close()


def store(emit: Emitter, result: DraftOperand, target: DraftValue | DraftPart) -> None:
    """Copy a result into a variable; a known tensor becomes a value first."""
    plain = isinstance(result, DraftValue | DraftPart | IndexOperand)
    emit.copy(result if plain else emit.value(result), target)


def carry(emit: Emitter, new: tuple[DraftOperand, ...], variables: list[DraftValue]) -> None:
    """Update all carried variables at once: a value that another update overwrites is saved first."""
    kept = [
        emit.variable(one) if one is not own and base_of(one) in variables else one
        for one, own in zip(new, variables, strict=True)
    ]
    for one, variable in zip(kept, variables, strict=True):
        if one is not variable:
            store(emit, emit.reshape(one, variable.shape), variable)


def require_same_types(new: tuple[DraftOperand, ...], variables: list[DraftValue]) -> None:
    """Reject carried values whose type changes from one iteration to the next."""
    for one, variable in zip(new, variables, strict=True):
        is_same_size = is_same_shape(one.shape, variable.shape) or (is_number(one) and is_number(variable))
        if one.dtype is not variable.dtype or not is_same_size:
            raise Unsupported(
                f"a value it carries changes from {variable.type} to {one.type}",
                f"give it a constant trip count of at most {MOST_UNROLLED}, or carry a tensor "
                "that is large enough from the start",
            )


def hoisted(steps: tuple[DraftStep, ...], declared: list[DraftStep], *, again: bool) -> tuple[DraftStep, ...]:
    """Steps without declarations, which move to ``declared``: blocks may not declare variables.

    A declaration zeroes its variable. With ``again`` the steps run more than once, so a variable that relies on being
    zero gets a step that zeroes it.
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
