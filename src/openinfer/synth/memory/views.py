"""Finds slices of tables that can be read in place, without a copy.

A step that reads a slice of a table gives a value that later changes of the table do not affect. If nothing changes the
table while the value is live, the value can alias the table's memory: a decoder attends over its cache without copying
it.
"""

from collections.abc import Iterable

from openinfer.ir import Single
from openinfer.loops.used import used_buffers
from openinfer.synth.program.ir import Action, KernelStep, Program, Step, Table, TableStep, Value
from openinfer.synth.program.liveness import Lives, uses


def views_of(program: Program, lives: Lives) -> frozenset[Value]:
    """The values that can be views of tables."""
    changed: dict[int, list[int]] = {}
    for position, step in enumerate(lives.steps):
        if isinstance(step, TableStep) and step.action is not Action.READ:
            changed.setdefault(id(step.table), []).append(position)
    outputs = set(program.outputs.values())
    touched = {value for step in lives.steps for value in _touched(step)}
    return frozenset(
        step.value
        for position, step in enumerate(lives.steps)
        if isinstance(step, TableStep)
        and step.action is Action.READ
        and step.value is not None
        and step.value in lives.alive_after[position]
        and step.value in touched
        and step.value not in outputs
        and _is_contiguous(step)
        and not lives.occupied[step.value].meets(changed.get(id(step.table), []))
    )


def _touched(step: Step) -> Iterable[Value]:
    """The values that a step reads elements of; a kernel may need only the shape of an input."""
    if not isinstance(step, KernelStep):
        return uses(step)
    names = used_buffers(step.kernel)
    given = zip(step.inputs, step.kernel.inputs, strict=True)
    return (one for one, buffer in given if isinstance(one, Value) and buffer.name in names)


def _is_contiguous(step: TableStep) -> bool:
    """Whether the cells are contiguous, as the value's elements must be: only the last index is a slice."""
    table = step.table
    last = len(table.bounds) - 1
    return (
        _is_plain(table)
        and len(step.indices) == len(table.bounds)
        and all(isinstance(index, Single) for index in step.indices[:last])
    )


def _is_plain(table: Table) -> bool:
    """Whether a table is bounded, has no matrices, and stores its elements as values do."""
    return None not in table.bounds and table.keys == len(table.bounds) and not table.variable.dtype.is_packed
