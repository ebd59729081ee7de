"""Which values are alive where, and what nobody needs.

Positions number the steps of a program; a block that is called in several places has its positions once. A value
occupies memory at every position where it is read, written, or still needed afterwards.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from openinfer.loops.ir import Fail, Kernel, walk
from openinfer.synth.program import (
    BranchStep,
    CallStep,
    EntryStep,
    KernelStep,
    LoopStep,
    Mark,
    Move,
    Operand,
    PartStep,
    Program,
    Step,
    Store,
    TableStep,
    Value,
    Weight,
)

Values = set[Value]
_PARTS = TableStep | PartStep | EntryStep


def uses(step: Step) -> list[Value]:
    """The values a step reads."""
    match step:
        case KernelStep():
            return [*(operand for operand in step.inputs if isinstance(operand, Value)), *step.scalars]
        case Move(src=src):
            return [src, *step.scalars] if isinstance(src, Value) else step.scalars
        case BranchStep(cond=cond):
            return [] if cond is None else [cond]
        case TableStep(action="write", value=Value() as value):
            return [value, *step.scalars]
        case TableStep() | LoopStep():
            return step.scalars
        case EntryStep(action="check"):
            return step.scalars
        case EntryStep(action=action, value=value, family=family):
            # A write leaves the other entries as they are, so it needs them too.
            return [family.own, family.written, *([value] if action == "write" else []), *step.scalars]
        case PartStep(action="check"):
            return step.scalars
        case PartStep():
            parts = (step.whole,) if step.action == "read" else (step.whole, step.value)
            return [*(one for one in parts if isinstance(one, Value)), *step.scalars]
        case _:
            return []


def definitions(step: Step) -> list[Value]:
    """The values a step writes."""
    match step:
        case KernelStep():
            return [*step.outputs, *step.scratch]
        case Move(dst=dst):
            return [dst]
        case TableStep(action="read", value=Value() as value) | PartStep(action="read", value=Value() as value):
            return [value]
        case EntryStep(action="read", value=value):
            return [value]
        case _:
            return []


@dataclass
class Lives:
    """For every value the positions it occupies, as the bits of an integer; and the steps by position."""

    occupied: dict[Value, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    alive_after: dict[int, frozenset[Value]] = field(default_factory=dict)
    at_marks: dict[int, frozenset[Value]] = field(default_factory=dict)
    """By the identity of a mark, which has no position: what is alive there."""


class _Analysis:
    """One walk backwards over the program, following calls."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lives = Lives()
        self.position: dict[int, int] = {}

    def at(self, step: Step) -> int:
        if id(step) not in self.position:
            self.position[id(step)] = len(self.lives.steps)
            self.lives.steps.append(step)
        return self.position[id(step)]

    def occupy(self, values: Iterable[Value], position: int) -> None:
        for value in values:
            self.lives.occupied[value] = self.lives.occupied.get(value, 0) | 1 << position

    def body(self, steps: list[Step], alive: Values) -> Values:
        for step in reversed(steps):
            alive = self.step(step, alive)
        return alive

    def step(self, step: Step, alive: Values) -> Values:
        if isinstance(step, Mark):
            kept = step.values if self.program.keeps_marked else ()
            alive = alive | {value for value in kept if isinstance(value, Value)}
            self.lives.at_marks[id(step)] = self.lives.at_marks.get(id(step), frozenset()) | alive
            return alive
        position = self.at(step)
        known = self.lives.alive_after.get(position, frozenset())
        self.lives.alive_after[position] = known | frozenset(alive)
        match step:
            case LoopStep(body=body):
                # Once around more: what the first iteration needs is alive at the end of the others.
                inside = self.body(body, set(alive)) | alive
                inside = self.body(body, set(inside)) | alive | set(uses(step))
                self.occupy(inside, position)
                return inside
            case BranchStep():
                before: Values = set() if step.cond is not None and step.else_block is not None else set(alive)
                before |= self.body(self.program.blocks[step.then_block], set(alive))
                if step.else_block is not None:
                    before |= self.body(self.program.blocks[step.else_block], set(alive))
                elif step.cond is None:
                    before = self.body(self.program.blocks[step.then_block], set(alive))
                before |= set(uses(step))
                self.occupy(before | alive, position)
                return before
            case CallStep(block=block):
                before = self.body(self.program.blocks[block], set(alive))
                self.occupy(before | alive, position)
                return before
            case _:
                made = set(definitions(step))
                before = (alive - made) | set(uses(step))
                self.occupy(before | alive | made, position)
                return before


def lives_of(program: Program) -> Lives:
    """Where every value is alive, from the outputs and the state backwards."""
    analysis = _Analysis(program)
    alive: Values = set(program.outputs.values())
    alive |= {home for home in program.homes.values() if home.store is Store.STATE}
    analysis.body(program.blocks["entry"], alive)
    return analysis.lives


def can_fail(kernel: Kernel) -> bool:
    """Whether a kernel can find a value for which its op has no result."""
    return any(isinstance(statement, Fail) for statement in walk(kernel.body))


def _is_pure(step: Step) -> bool:
    """Whether a step does nothing but give its results: a kernel can fail, and so can an index of a weight."""
    if isinstance(step, KernelStep):
        return not can_fail(step.kernel) and not _is_chosen(step.inputs, step.scalars)
    return isinstance(step, Move) and not _is_chosen([step.src], step.scalars)


def _is_chosen(operands: Iterable[Operand], scalars: list[Value]) -> bool:
    return bool(scalars) and any(isinstance(one, Weight) and one.index for one in operands)


def without_dead_steps(program: Program, kinds: tuple[type, ...] = (Move, KernelStep)) -> Program:
    """The program without moves and kernels whose results nobody reads; repeated until nothing changes.

    Of reads with indices that can be wrong, the check of these stays.
    """
    while True:
        lives = lives_of(program)
        needed = {
            id(step): any(value in lives.alive_after[position] for value in definitions(step))
            for position, step in enumerate(lives.steps)
        }
        removed = False

        def kept(steps: list[Step], needed: dict[int, bool] = needed) -> list[Step]:
            nonlocal removed
            found: list[Step] = []
            for step in steps:
                if isinstance(step, LoopStep):
                    step.body = kept(step.body)
                if isinstance(step, kinds) and _is_pure(step) and not needed.get(id(step), False):
                    removed = True
                    continue
                if KernelStep in kinds and isinstance(step, _PARTS) and step.action == "read":
                    is_needed = needed.get(id(step), False)
                    removed = removed or not is_needed
                    step.action = "read" if is_needed else "check"
                found.append(step)
            return found

        program.blocks = {name: kept(steps) for name, steps in program.blocks.items()}
        if not removed:
            return program
