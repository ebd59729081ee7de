"""Finds the batch size of a program: the dynamic size that is the first extent of all inputs and outputs."""

from collections.abc import Iterable

from openinfer.ir import MemoryKind
from openinfer.ir.expr import Ref
from openinfer.loops.dim import expr_of
from openinfer.synth.program.ir import Program


def batch_bound(program: Program) -> int | None:
    """The bound of the batch size; None if inputs and outputs do not all begin with one size, or if there is state.

    Does not check whether rows depend on each other.
    """
    if any(one.kind is MemoryKind.PERSISTENT for one in program.bound.vars.values()):
        return None
    values: Iterable[tuple[int, ...]] = (
        tuple(one.shape) for side in (program.inputs, program.outputs) for one in side.values()
    )
    firsts = {expr_of(shape[0]) if shape else None for shape in values}
    first = firsts.pop() if len(firsts) == 1 else None
    return program.bound.bounds.get(first.name) if isinstance(first, Ref) else None
