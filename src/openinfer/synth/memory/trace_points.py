"""What a trace shows at a mark: the values that the node has written, unless their memory has been overwritten.

Tracing changes neither kernels nor their order nor memory.
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
    """One trace line: a result of a node, or a node without results to show."""

    node: int
    output: int
    name: str
    """What is written, in source notation."""
    value: StepOperand | None
    indices: tuple[str, ...]
    is_return: bool = False
    """Whether it reports what a call has returned."""
    strides: tuple[int, ...] | None = None
    """The value's strides in memory, in elements; None means row-major."""

    @property
    def rank(self) -> int:
        """The number of extents in the line."""
        return 0 if self.value is None else len(self.value.shape)


class TracePoints:
    """Follows the steps of blocks in order and determines what can be shown at marks."""

    def __init__(self, placed: Placed) -> None:
        self.reported: list[Reported] = []
        """Everything shown so far."""
        self._placed = placed
        self._plan = placed.memory
        self._strides = _strides(placed.program)
        self._nodes = {node.index: node for node in placed.program.bound.graph.walk()}
        self._alive = lives_of(placed.program).at_marks
        self._fresh = FreshValues(placed.memory)

    def begin(self, block: str) -> None:
        """Begin a block: only entry finds valid values, those of the state."""
        self._fresh = FreshValues(self._plan, self._placed.state.homes if block == "entry" else ())

    def follow(self, step: Step) -> None:
        """Record a step: what it writes is valid, what it overwrites no longer is."""
        if isinstance(step, BranchStep | CallStep | LoopStep):
            self._fresh = FreshValues(self._plan, definitions(step))
            return
        # A slice of a table that is read in place has no memory of its own, and is valid as long as it is live.
        written = set(definitions(step)) - self._plan.views
        if isinstance(step, PartStep) and step.action.is_change and isinstance(step.whole, Value):
            written.add(step.whole)
        self._fresh.write(written)

    def shown(self, mark: Mark, indices: tuple[str, ...]) -> list[Reported]:
        """What is shown at a mark inside loops over these indices; also recorded in ``reported``."""
        is_return = mark.is_return
        names = [str(access) for access in node_writes(self._nodes[mark.node], is_return=is_return)]
        rows = [
            Reported(mark.node, place, names[place], value, indices, is_return, self._strides.get(value))
            for place, value in enumerate(mark.values)
            if self._is_available(mark, value)
        ] or [Reported(mark.node, 0, "", None, indices, is_return)]
        self.reported += rows
        return rows

    def _is_available(self, mark: Mark, operand: StepOperand) -> bool:
        """Whether the value is in memory at the mark. Weights count, though only Python has them in one piece."""
        if not isinstance(operand, Value):
            return True
        is_given = self._plan.classes.root(operand).storage in (Storage.INPUT, Storage.ARGUMENT)
        return is_given or operand in self._alive.get(id(mark), ()) or operand in self._fresh


def _strides(program: Program) -> dict[StepOperand, tuple[int, ...]]:
    """The strides of values that are not row-major; only the kernels that write them know these."""
    kernels = [step for step in program.steps() if isinstance(step, KernelStep)]
    pairs = [pair for step in kernels for pair in zip(step.outputs, step.kernel.outputs, strict=True)]
    return {value: buffer.strides for value, buffer in pairs if buffer.strides is not None}
