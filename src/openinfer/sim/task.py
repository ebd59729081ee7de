"""Tasks: entry is one, and so is every consumer that has received what it awaits."""

from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING

from openinfer.check.sizes import SizeError
from openinfer.errors import Code, Diagnostic, ExecutionError, OpenInferError
from openinfer.ir import Loop, Node, Op
from openinfer.ops import Array, OpError
from openinfer.sim.program import Instruction

if TYPE_CHECKING:
    from openinfer.sim.memory import Overlay, Values
    from openinfer.sim.step import RunningStep


@dataclass(frozen=True)
class Frame:
    """A node that is running or comes next, with the loops and scopes around it in its block."""

    block: str
    node: Node
    indices: dict[str, int]
    ends: tuple[int, ...]
    """The end values of the loops, in the order of the indices."""
    scopes: tuple[str, ...]


class Task:
    """A position in the program with its state: variables, loop indices, the blocks to return to."""

    def __init__(self, step: "RunningStep", block: str, values: "Values | Overlay") -> None:
        self.step = step
        self.block = block
        self.values = values
        self.sizes = values.sizes
        self.tables = step.tables
        self.code = step.program[block]
        self.position = 0
        self.indices: dict[str, int] = {}
        self.ends: list[int] = []
        self.waiting: tuple[str, ...] = ()
        """What entry is waiting for; empty if it is not waiting."""
        self.is_done = False
        self._callers: list[tuple[list[Instruction], int, dict[str, int], list[int]]] = []

    # --- running --------------------------------------------------------------------------------------------------

    @property
    def following(self) -> Instruction | None:
        """The next node."""
        return None if self.is_done else self.upcoming()[0]

    @property
    def depth(self) -> int:
        """The number of active branches and calls."""
        return len(self._callers)

    @property
    def frames(self) -> tuple[Frame, ...]:
        """The active branches and calls, outermost first, followed by the next node."""
        if self.is_done:
            return ()
        found = [
            (code[position - 1], dict(indices), tuple(ends)) for code, position, indices, ends in self._callers
        ] + [self.upcoming()]
        return tuple(Frame(one.block, one.node, indices, ends, one.scopes) for one, indices, ends in found)

    def upcoming(self) -> tuple[Instruction, dict[str, int], tuple[int, ...]]:
        """The next node and its loop state, after taking any jumps back that come before it."""
        position, indices, ends = self.position, dict(self.indices), list(self.ends)
        while not (instruction := self.code[position]).is_event:
            loop = instruction.node.kind
            assert isinstance(loop, Loop)
            if indices[loop.index] + 1 < ends[-1] and instruction.body != position:
                indices[loop.index] += 1
                position = instruction.body
            else:
                del indices[loop.index]
                ends.pop()
                position += 1
        return self.code[position], indices, tuple(ends)

    def advance(self) -> None:
        """Run until one node has been executed, or the task waits or is done."""
        while True:
            instruction = self.code[self.position]
            self.position += 1
            self._execute(instruction)
            if instruction.is_event or self.waiting or self.is_done:
                return

    def run(self) -> None:
        """Run until the task waits or is done."""
        while not self.is_done and not self.waiting:
            instruction = self.code[self.position]
            self.position += 1
            self._execute(instruction)

    def _execute(self, instruction: Instruction) -> None:
        recorder = self.step.recorder
        try:
            self.step.count(instruction.nodes)
            if recorder is None or not instruction.is_event:
                instruction.act(self)
                return
            indices = dict(self.indices) if self.indices else {}
            start = perf_counter_ns() if recorder.timing else 0
            instruction.act(self)
            end = perf_counter_ns() if recorder.timing else 0
            if not self.waiting:
                recorder.record(self, instruction, indices, start, end)
        except (OpError, SizeError, MemoryError, OpenInferError) as error:
            raise located(self, instruction, error) from error

    def call(self, block: str, indices: dict[str, int] | None = None) -> None:
        """Run another block, then return. It has its own indices: those it is called with, and those of its loops."""
        self._callers.append((self.code, self.position, self.indices, self.ends))
        self.code, self.position = self.step.program[block], 0
        self.indices, self.ends = indices or {}, []

    def leave(self) -> None:
        """Leave a block."""
        if not self._callers:
            self.is_done = True
            return
        self.code, self.position, self.indices, self.ends = self._callers.pop()

    # --- yield and await ------------------------------------------------------------------------------------------

    def hand_over(self, variables: tuple[str, ...]) -> None:
        """``yield``: entry hands variables to consumers; a consumer hands them back and ends."""
        if self.block == "entry":
            self.step.hand_over(variables)
        else:
            self.step.take_back(self, variables)
            self.is_done = True

    def wait_for(self, variables: tuple[str, ...]) -> None:
        """``await``: entry stops until consumers are done; a consumer only starts once everything is available."""
        if self.block != "entry":
            return
        if self.step.is_ready(variables):
            self.step.publish(variables)
            self.waiting = ()
        else:
            self.position -= 1
            self.waiting = variables
            self.step.uncount_node()

    def original(self, name: str) -> Array:
        """The value of a persistent variable that has never been written."""
        return self.step.memory.original(name, self.sizes)


def located(task: Task, instruction: Instruction, error: Exception) -> ExecutionError:
    """The error of a node, with its location and operands."""
    node = instruction.node
    name = f"'{node.kind.op}'" if isinstance(node.kind, Op) else instruction.kind
    where = f"in node {node.index} ({name}) of block {instruction.block!r}"
    if task.indices:
        where += f", at {', '.join(f'{index}={value}' for index, value in task.indices.items())}"
    notes = (where, *_operands(task, instruction))
    match error:
        case ExecutionError() if error.diagnostics[0].notes:
            return error
        case OpError() | SizeError():
            found = [Diagnostic(error.code, error.message, node.span, error.advice, notes)]
        case OpenInferError():
            found = [
                Diagnostic(one.code, one.message, node.span, one.help, (*one.notes, *notes))
                for one in error.diagnostics
            ]
        case _:
            found = [Diagnostic(Code.OUT_OF_MEMORY, "there is not enough memory for this node", node.span, None, notes)]
    return ExecutionError(*found)


def _operands(task: Task, instruction: Instruction) -> tuple[str, ...]:
    """The shapes of a node's plain operands."""
    variables = task.step.bound.vars
    shown = []
    for text in instruction.params:
        known = dict.get(task.values, text)
        if text in variables and known is not None:
            shown.append(f"{text} is {variables[text].dtype.name}{list(known.shape)}")
        elif text in variables and not variables[text].is_table:
            shown.append(f"{text} is {variables[text].type}")
    return (f"operands: {', '.join(shown)}",) if shown else ()
