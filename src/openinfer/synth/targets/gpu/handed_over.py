"""Values whose only reader is a step that writes them to a table: they may be computed in place there."""

from collections import Counter
from collections.abc import Iterator

from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import Action, KernelStep, LoopStep, Step, Steps, Storage, TableStep, Value
from openinfer.synth.program.liveness import definitions, uses


def handed_over(placed: Placed) -> frozenset[Value]:
    """The values: a kernel computes each one, earlier in the body of the step, in memory that no other value shares."""
    program, root = placed.program, placed.memory.classes.root
    steps: list[Step] = [*program.steps()]
    made = Counter(value for step in steps for value in definitions(step))
    read = Counter(value for step in steps for value in uses(step))
    shared = Counter(root(value) for value in {*made, *read, *program.outputs.values()})
    outputs = set(program.outputs.values())
    return frozenset(
        value
        for body in _bodies(tuple(program.blocks.values()))
        for value in _written(body)
        if made[value] == read[value] == shared[root(value)] == 1
        and value.storage is Storage.ARENA
        and not value.is_home
        and value not in outputs
    )


def _bodies(todo: tuple[Steps, ...]) -> Iterator[Steps]:
    for body in todo:
        yield body
        yield from _bodies(tuple(step.body for step in body if isinstance(step, LoopStep)))


def _written(body: Steps) -> Iterator[Value]:
    """The values that kernels of a body compute and a later step of it writes to a table."""
    made: set[Value] = set()
    for step in body:
        match step:
            case KernelStep(outputs=outputs):
                made.update(outputs)
            case TableStep(action=Action.WRITE, value=Value() as value) if value in made:
                yield value
