"""Draft cleanup: merge equal ops and remove ops whose results are unused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from openinfer.importing.draft import (
    Draft,
    DraftBranch,
    DraftCopy,
    DraftDeclare,
    DraftLoop,
    DraftOp,
    DraftOperand,
    DraftPart,
    DraftStep,
    DraftStore,
    DraftValue,
    DraftWrite,
    KnownTensor,
    base_of,
    operands,
    walk,
)
from openinfer.loops.dim import form

OperandChange = Callable[[DraftOperand, dict[int, DraftOperand]], DraftOperand]


def cleaned(draft: Draft) -> Draft:
    """The draft with equal ops merged and unused ops removed."""
    return without_dead(shared(draft))


# --- unused ops -------------------------------------------------------------------------------------------------------


def without_dead(draft: Draft) -> Draft:
    """The draft without ops whose results are unused, found in a backward walk."""
    read = {id(base_of(port.operand)) for port in draft.outputs}
    return replace(draft, steps=_live(draft.steps, read))


def _live(steps: tuple[DraftStep, ...], read: set[int]) -> tuple[DraftStep, ...]:
    """The steps that later steps need; what they read themselves is added to ``read``."""
    kept: list[DraftStep] = []
    for step in reversed(steps):
        if isinstance(step, DraftOp) and step.declares and not any(id(one) in read for one in step.outputs):
            continue
        if isinstance(step, DraftLoop):
            # An iteration may read what the previous one wrote.
            read.update(id(base_of(one)) for inner in walk(step.body) for one in operands(inner))
            read.update(id(one) for one in operands(step))
            kept.append(replace(step, body=_live(step.body, read)))
            continue
        read.update(id(base_of(one)) for inner in walk((step,)) for one in operands(inner))
        kept.append(step)
    return tuple(reversed(kept))


# --- equal ops --------------------------------------------------------------------------------------------------------


def shared(draft: Draft) -> Draft:
    """The draft with ops of equal inputs and parameters merged, except ops that read variables that change."""
    written = changing_values(draft)
    renamed: dict[int, DraftOperand] = {}
    known: dict[Any, tuple[DraftValue | DraftPart, ...]] = {}
    steps: list[DraftStep] = []
    for step in draft.steps:
        changed = with_operands(step, renamed)
        if isinstance(changed, DraftOp) and changed.declares and not _reads_variable(changed, written):
            inputs = tuple(_key(one, changed) for one in changed.inputs)
            key = (changed.op, inputs, tuple((name, _param(v)) for name, v in changed.params))
            first = known.setdefault(key, changed.outputs)
            if first is not changed.outputs:
                renamed |= {
                    id(own): one for own, one in zip(changed.outputs, first, strict=True) if isinstance(one, DraftValue)
                }
                continue
        steps.append(changed)
    outputs = tuple(replace(port, operand=_renamed(port.operand, renamed)) for port in draft.outputs)
    return replace(draft, steps=tuple(steps), outputs=outputs)


def changing_values(draft: Draft) -> set[int]:
    """The ids of values that are not single-assignment: declared variables and whatever steps write in place."""
    found = {id(step.value) for step in walk(draft.steps) if isinstance(step, DraftDeclare)}
    for step in walk(draft.steps):
        if isinstance(step, DraftOp) and not step.declares:
            found.update(id(base_of(one)) for one in step.outputs)
        elif isinstance(step, DraftCopy):
            found.add(id(base_of(step.dst)))
    return found


def _reads_variable(step: DraftOp, written: set[int]) -> bool:
    return any(one is not None and id(base_of(one)) in written for one in step.inputs)


def _key(operand: DraftOperand | None, step: DraftOp) -> Any:
    # Zero points may be equal by chance in one layer and not in another; both layers should get the same ops.
    is_by_chance = step.op == "mul" and step.outputs[0].dtype.name == "i32"
    if isinstance(operand, KnownTensor) and operand.array.size == 1 and not is_by_chance:
        return (operand.dtype.name, operand.shape, operand.array.tobytes())
    return id(operand)


def _param(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_param, value))
    return form(value) if isinstance(value, int) and not isinstance(value, bool) else (type(value).__name__, value)


def with_operands(step: DraftStep, renamed: dict[int, DraftOperand], change: OperandChange | None = None) -> DraftStep:
    """A step with some of its operands replaced."""
    if not renamed:
        return step
    other = change or _renamed
    match step:
        case DraftOp():
            return replace(step, inputs=tuple(None if one is None else other(one, renamed) for one in step.inputs))
        case DraftLoop():
            count = other(step.count, renamed) if isinstance(step.count, DraftValue) else step.count
            assert isinstance(count, int | DraftValue)
            return replace(step, count=count, body=tuple(with_operands(one, renamed, change) for one in step.body))
        case DraftBranch():
            bodies = (
                tuple(with_operands(one, renamed, change) for one in body) for body in (step.then_body, step.else_body)
            )
            then_body, else_body = bodies
            cond = other(step.cond, renamed)
            assert isinstance(cond, DraftValue)
            return replace(step, cond=cond, then_body=then_body, else_body=else_body)
        case DraftCopy() | DraftStore() | DraftWrite():
            return replace(step, src=other(step.src, renamed))
    return step


def _renamed(operand: DraftOperand, renamed: dict[int, DraftOperand]) -> DraftOperand:
    found = renamed.get(id(base_of(operand)))
    if found is None:
        return operand
    if isinstance(operand, DraftPart):
        assert isinstance(found, DraftValue)
        return replace(operand, base=found)
    return found
