"""A program with all of its bytes placed: what every emitter gets. Nothing in here names a language.

``place`` decides; whoever prints code afterwards only reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from openinfer.synth.memory.alignment import aligned
from openinfer.synth.memory.checks.plan import plan_checks
from openinfer.synth.memory.checks.records import Checks
from openinfer.synth.memory.checks.steps import Layouts
from openinfer.synth.memory.place import MemoryPlan, plan_memory
from openinfer.synth.memory.rollback import Rollback, rollback_of
from openinfer.synth.memory.state import StateLayout, state_layout
from openinfer.synth.memory.weights import WeightLayout, weight_layout
from openinfer.synth.program.failures import Failures
from openinfer.synth.program.ir import LoopStep, Program, Value
from openinfer.synth.program.names import InterfaceNames, names_of


@dataclass(frozen=True)
class MemoryRules:
    """What the target and the device say about memory."""

    alignment: int
    """Every value, variable, table and weight begins at a multiple of it."""
    max_buffer_bytes: int
    """The most bytes of weights that lie in one piece."""
    has_heap: bool = True
    """Tables without bounds may own memory that grows."""
    is_hosted: bool = True
    """There is an operating system: a step can be told to end."""
    rolls_back: bool = True
    """A step that fails is rolled back, which takes memory."""
    on_device: bool = False
    """Memory is a device's: inputs are copied into the arena when a step begins."""


@dataclass(frozen=True)
class Placed:
    """A program, and where everything lies."""

    program: Program
    rules: MemoryRules
    memory: MemoryPlan
    """The arena."""
    state: StateLayout
    weights: WeightLayout
    rollback: Rollback | None
    """What a step keeps for its rollback."""
    can_tear: bool
    """Whether a step that fails can leave persistent memory changed."""
    is_interruptible: bool
    """Whether a step checks for an interruption at the start of blocks and loop iterations."""
    threads: int
    """The most threads that share a kernel."""
    names: InterfaceNames
    checks: Checks
    """What is checked in each step of the program before memory is touched."""
    failures: Failures
    """All that can go wrong, by the numbers that checks and code have for it."""

    @property
    def rollback_bytes(self) -> int:
        """The bytes at the end of the arena in which a step keeps what it changes, for its rollback."""
        return 0 if self.rollback is None else aligned(self.rollback.nbytes, self.rules.alignment)

    @cached_property
    def input_offsets(self) -> Mapping[Value, int]:
        """Where in the arena inputs are copied to, behind all other values; none where steps read the caller's."""
        found: dict[Value, int] = {}
        end = max(self.memory.peak, self.rules.alignment)
        for value in self.program.inputs.values() if self.rules.on_device else ():
            found[value] = aligned(end, self.rules.alignment)
            end = found[value] + max(value.nbytes, 1)
        return found

    @property
    def arena_bytes(self) -> int:
        """The bytes of memory one step works in."""
        ends = [offset + max(value.nbytes, 1) for value, offset in self.input_offsets.items()]
        used = max([self.memory.peak, self.rules.alignment, *ends])
        return (aligned(used, self.rules.alignment) if ends else used) + self.rollback_bytes

    @property
    def state_bytes(self) -> int:
        """The bytes of memory that outlives steps; none without persistent variables."""
        return max(self.state.size, self.rules.alignment) if self.has_state else 0

    @property
    def has_state(self) -> bool:
        """Whether anything outlives a step."""
        return bool(self.state.homes or self.state.tables)

    @property
    def memory_bytes(self) -> dict[str, int]:
        """The memory that the caller provides, by what it is for."""
        return {"arena": self.arena_bytes, "state": self.state_bytes, "weights": self.weights.size}


def place(program: Program, rules: MemoryRules) -> Placed:
    """Lay out everything that a program needs memory for."""
    memory = plan_memory(program, rules.alignment)
    has_loops = any(isinstance(step, LoopStep) for step in program.steps())
    is_interruptible = rules.is_hosted and has_loops
    needed = rollback_of(program, memory, is_interruptible=is_interruptible)
    rollback = needed if rules.rolls_back else None
    state = state_layout(program, rules.alignment, heap=rules.has_heap)
    weights = weight_layout(program, rules.alignment, rules.max_buffer_bytes)
    names, layouts = names_of(program), Layouts(program, memory, state, weights, is_interruptible)
    checks, failures = plan_checks(layouts, names.input_sizes, rules.alignment, on_device=rules.on_device)
    return Placed(
        program=program,
        rules=rules,
        memory=memory,
        state=state,
        weights=weights,
        rollback=rollback,
        can_tear=needed is not None and (rollback is None or not needed.is_complete),
        is_interruptible=is_interruptible,
        threads=layouts.threads,
        names=names,
        checks=checks,
        failures=failures,
    )
