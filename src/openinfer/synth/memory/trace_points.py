"""What traces show at a mark: the values that its node has written, if nothing has overwritten their memory yet.

Kernels, their order and all memory are the same with and without traces.
"""

from dataclasses import dataclass

from openinfer.check.events import node_writes
from openinfer.synth.memory.fresh import FreshValues
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.ir import (
    BranchStep,
    CallStep,
    KernelStep,
    LoopStep,
    Mark,
    PartStep,
    Program,
    Step,
    StepOperand,
    Storage,
    Value,
)
from openinfer.synth.program.liveness import definitions, lives_of


@dataclass(frozen=True)
class Reported:
    """What a line that traces says: one result of a node, or a node without any that could be shown."""

    node: int
    output: int
    name: str
    """What is written, as the source writes it."""
    value: StepOperand | None
    indices: tuple[str, ...]
    is_return: bool = False
    """Whether it is about what a call has returned."""
    strides: tuple[int, ...] | None = None
    """Those of the value in memory, in elements; None means row-major."""

    @property
    def rank(self) -> int:
        """How many extents the line gives."""
        return 0 if self.value is None else len(self.value.shape)


class TracePoints:
    """Follows the steps of blocks, in their order, and says what can be shown at marks."""

    def __init__(self, placed: Placed) -> None:
        self.reported: list[Reported] = []
        """All that has been shown so far."""
        self._placed = placed
        self._plan = placed.memory
        self._strides = _strides(placed.program)
        self._nodes = {node.index: node for node in placed.program.bound.graph.walk()}
        self._alive = lives_of(placed.program).at_marks
        self._fresh = FreshValues(placed.memory)

    def begin(self, block: str) -> None:
        """A block begins: what outlives steps is there, if nothing has run yet."""
        self._fresh = FreshValues(self._plan, self._placed.state.homes if block == "entry" else ())

    def follow(self, step: Step) -> None:
        """A step is done: what it writes is in memory, and what it overwrites is not any more."""
        if isinstance(step, BranchStep | CallStep | LoopStep):
            self._fresh = FreshValues(self._plan, definitions(step))
            return
        # A slice of a table that is read in place has no memory of its own, and exists as long as it is needed.
        written = set(definitions(step)) - self._plan.views
        if isinstance(step, PartStep) and step.action.is_change and isinstance(step.whole, Value):
            written.add(step.whole)
        self._fresh.write(written)

    def shown(self, mark: Mark, indices: tuple[str, ...]) -> list[Reported]:
        """What is shown at a mark inside loops over these indices; it is noted as reported."""
        is_return = mark.is_return
        names = [str(access) for access in node_writes(self._nodes[mark.node], is_return=is_return)]
        rows = [
            Reported(mark.node, place, names[place], value, indices, is_return, self._strides.get(value))
            for place, value in enumerate(mark.values)
            if self._is_there(mark, value)
        ] or [Reported(mark.node, 0, "", None, indices, is_return)]
        self.reported += rows
        return rows

    def _is_there(self, mark: Mark, operand: StepOperand) -> bool:
        """Whether the value is in memory where the mark stands; of weights, only Python has them in one piece."""
        if not isinstance(operand, Value):
            return True
        is_given = self._plan.classes.root(operand).storage in (Storage.INPUT, Storage.ARGUMENT)
        return is_given or operand in self._alive.get(id(mark), ()) or operand in self._fresh


def _strides(program: Program) -> dict[StepOperand, tuple[int, ...]]:
    """The strides of values that are not row-major, which the kernels know that write them."""
    kernels = [step for step in program.steps() if isinstance(step, KernelStep)]
    pairs = [pair for step in kernels for pair in zip(step.outputs, step.kernel.outputs, strict=True)]
    return {value: buffer.strides for value, buffer in pairs if buffer.strides is not None}
