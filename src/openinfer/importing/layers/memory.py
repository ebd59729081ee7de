"""Merges the states of all layers into one persistent variable with a layer index."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from openinfer.importing.cleanup import with_operands
from openinfer.importing.draft import (
    Draft,
    DraftCopy,
    DraftDeclare,
    DraftLoop,
    DraftOp,
    DraftOperand,
    DraftPart,
    DraftState,
    DraftStep,
    DraftStore,
    DraftValue,
    KnownTensor,
    base_of,
    operands,
    walk,
)
from openinfer.importing.names import common_name
from openinfer.ir.expr import Num, Ref
from openinfer.ir.operand import Single


@dataclass(frozen=True)
class _Merge:
    """States that are stacked before a loop and whose next values the loop collects."""

    stack: DraftOp
    loop: DraftLoop
    states: tuple[DraftState, ...]
    collected: DraftValue

    @property
    def stacked(self) -> DraftValue:
        found = self.stack.outputs[0]
        assert isinstance(found, DraftValue)
        return found


def with_layered_states(draft: Draft) -> Draft:
    """The draft in which loops read and write the states of their layers in place."""
    merges = _merges(draft)
    for merge in merges:
        draft = _merged(draft, merge)
    return draft


def _merges(draft: Draft) -> list[_Merge]:
    by_memory = {id(state.memory): state for state in draft.states}
    loops = [step for step in draft.steps if isinstance(step, DraftLoop)]
    found = []
    for step in draft.steps:
        if not isinstance(step, DraftOp) or step.op != "stack":
            continue
        states = tuple(by_memory[id(one)] for one in step.inputs if id(one) in by_memory)
        if len(states) == len(step.inputs) and (merge := _merge(draft, step, states, loops)) is not None:
            found.append(merge)
    taken = {id(base_of(one)) for merge in found for one in (merge.stacked,)}
    return [merge for merge in found if not _reads_another(merge, taken)]


def _merge(draft: Draft, stack: DraftOp, states: tuple[DraftState, ...], loops: Sequence[DraftLoop]) -> _Merge | None:
    """The loop that is the only reader of a stack of states and collects their next values, if there is one."""
    collected = _next_values(draft, states)
    if collected is None:
        return None
    for loop in loops:
        copies = [step for step in loop.body if isinstance(step, DraftCopy) and base_of(step.dst) is collected]
        if len(copies) != 1 or loop.count != len(states):
            continue
        merge = _Merge(stack, loop, states, collected)
        if _is_of_layer(copies[0].dst, loop.index) and _is_alone(draft, merge):
            return merge
    return None


def _next_values(draft: Draft, states: Sequence[DraftState]) -> DraftValue | None:
    """The value that holds the next values of all states in order, else None."""
    stores = {id(step.state): step.src for step in draft.steps if isinstance(step, DraftStore)}
    sources = [stores.get(id(state.memory)) for state in states]
    bases = {id(one.base) for one in sources if isinstance(one, DraftPart)}
    for number, one in enumerate(sources):
        if not isinstance(one, DraftPart) or one.indices[0] != Single(Num(number)) or len(bases) != 1:
            return None
    first = sources[0]
    return first.base if isinstance(first, DraftPart) else None


def _is_of_layer(operand: DraftOperand, index: str) -> bool:
    return isinstance(operand, DraftPart) and operand.indices[0] == Single(Ref(index))


def _is_alone(draft: Draft, merge: _Merge) -> bool:
    """Whether only the stack reads the states, only the loop the stack, and only the stores the collected values."""
    reads = Counter(id(base_of(one)) for step in walk(draft.steps) for one in operands(step))
    reads.update(id(base_of(port.operand)) for port in draft.outputs)
    inside = [one for step in walk(merge.loop.body) for one in operands(step) if base_of(one) is merge.stacked]
    return (
        all(reads[id(state.memory)] == 1 for state in merge.states)
        and len(inside) == reads[id(merge.stacked)]
        and all(_is_of_layer(one, merge.loop.index) for one in inside)
        and reads[id(merge.collected)] == len(merge.states)
    )


def _reads_another(merge: _Merge, taken: set[int]) -> bool:
    """Whether a next value is the old value of a state, which an earlier write may have changed."""
    copies = (step for step in merge.loop.body if isinstance(step, DraftCopy) and base_of(step.dst) is merge.collected)
    return any(id(base_of(copy.src)) in taken for copy in copies)


def _merged(draft: Draft, merge: _Merge) -> Draft:
    hint = common_name([state.given for state in merge.states])
    memory = DraftValue(merge.stacked.dtype, merge.stacked.shape, hint)
    steps: list[DraftStep] = []
    for step in draft.steps:
        match step:
            case DraftOp() if step.outputs[0] is merge.stacked:
                continue
            case DraftDeclare(value) if value is merge.collected:
                continue
            case DraftStore(src, _) if base_of(src) is merge.collected:
                continue
            case DraftLoop():
                steps.append(replace(step, body=tuple(_in_place(one, merge, memory) for one in step.body)))
            case _:
                steps.append(step)
    initial = _initial(merge, hint)
    own = {id(state) for state in merge.states}
    states = tuple(
        replace(state, memory=memory, initial=initial) if id(state) in own else state for state in draft.states
    )
    return replace(draft, steps=tuple(steps), states=states)


def _in_place(step: DraftStep, merge: _Merge, memory: DraftValue) -> DraftStep:
    changed = with_operands(step, {id(merge.stacked): memory})
    if isinstance(changed, DraftCopy) and isinstance(changed.dst, DraftPart) and changed.dst.base is merge.collected:
        return DraftStore(changed.src, replace(changed.dst, base=memory))
    return changed


def _initial(merge: _Merge, hint: str) -> KnownTensor | None:
    """The initial values of all layers, or None if all are zero."""
    first = merge.states[0].memory
    assert isinstance(first, DraftValue)
    if all(state.initial is None or not np.any(state.initial.array) for state in merge.states):
        return None
    arrays = [
        np.zeros(first.shape, first.dtype.array) if state.initial is None else state.initial.array
        for state in merge.states
    ]
    return KnownTensor(first.dtype, np.stack(arrays), hint)
