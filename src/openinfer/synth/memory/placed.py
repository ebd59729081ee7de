"""A program with all of its memory placed: the input of every emitter. Names no target language.

``place`` decides; code that prints afterwards only reads.
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
    """The memory rules of the target and the device."""

    alignment: int
    """The alignment of every value, variable, table and weight."""
    max_buffer_bytes: int
    """The most bytes of weights in one buffer."""
    has_heap: bool = True
    """Whether unbounded tables may own heap memory that grows."""
    is_hosted: bool = True
    """Whether there is an operating system: a step can be interrupted."""
    rolls_back: bool = True
    """Whether a failed step is rolled back, which takes memory."""
    on_device: bool = False
    """Whether memory is on a device: inputs are copied into the arena when a step starts."""


@dataclass(frozen=True)
class Placed:
    """A program, and its memory layout."""

    program: Program
    rules: MemoryRules
    memory: MemoryPlan
    """The arena."""
    state: StateLayout
    weights: WeightLayout
    rollback: Rollback | None
    """What a step saves for its rollback."""
    can_tear: bool
    """Whether a failed step can leave persistent memory partly changed."""
    is_interruptible: bool
    """Whether a step checks for interruption at the start of blocks and loop iterations."""
    threads: int
    """The most threads that share a kernel."""
    names: InterfaceNames
    checks: Checks
    """The checks that each step of the program makes before it touches memory."""
    failures: Failures
    """All possible failures, by the numbers that checks and code use."""

    @property
    def rollback_bytes(self) -> int:
        """The bytes at the end of the arena in which a step saves what it changes, for its rollback."""
        return 0 if self.rollback is None else aligned(self.rollback.nbytes, self.rules.alignment)

    @cached_property
    def input_offsets(self) -> Mapping[Value, int]:
        """The arena offsets of copied inputs, after all other values; empty if steps read the caller's memory."""
        found: dict[Value, int] = {}
        end = max(self.memory.peak, self.rules.alignment)
        for value in self.program.inputs.values() if self.rules.on_device else ():
            found[value] = aligned(end, self.rules.alignment)
            end = found[value] + max(value.nbytes, 1)
        return found

    @property
    def arena_bytes(self) -> int:
        """The bytes of memory that one step works in."""
        ends = [offset + max(value.nbytes, 1) for value, offset in self.input_offsets.items()]
        used = max([self.memory.peak, self.rules.alignment, *ends])
        return (aligned(used, self.rules.alignment) if ends else used) + self.rollback_bytes

    @property
    def state_bytes(self) -> int:
        """The bytes of memory that outlives steps; 0 without persistent variables."""
        return max(self.state.size, self.rules.alignment) if self.has_state else 0

    @property
    def has_state(self) -> bool:
        """Whether anything outlives a step."""
        return bool(self.state.homes or self.state.tables)

    @property
    def memory_bytes(self) -> dict[str, int]:
        """The bytes of memory that the caller provides, by purpose."""
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
