"""The sequencer's position in the program: the arguments of the running block, and what names refer to there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from openinfer.loops.ir import ScalarVar
from openinfer.synth.memory.placed import Placed
from openinfer.synth.program.integers import Computed, constant, scalar
from openinfer.synth.program.ir import Storage, Value
from openinfer.synth.targets.vhdl.code import MemoryPlace, SequencerCode, integer
from openinfer.synth.targets.vhdl.integers import FoundInteger
from openinfer.synth.targets.vhdl.map import CircuitMap


@dataclass
class BlockFrame:
    """A call of a block."""

    given: Mapping[Value, MemoryPlace] = field(default_factory=dict)
    """Where its arguments and results lie."""
    chosen: Mapping[str, FoundInteger] = field(default_factory=dict)
    loops: list[tuple[str, FoundInteger]] = field(default_factory=list)
    aside: dict[str, list[tuple[str, ScalarVar]]] = field(default_factory=dict)
    """By consumer, the sizes that it may have bound."""


class ProgramNames:
    """Resolves values and names at the sequencer's position."""

    def __init__(self, placed: Placed, places: CircuitMap, code: SequencerCode) -> None:
        self._placed = placed
        self._places = places
        self._code = code
        self.frame = BlockFrame()
        self.views: dict[Value, MemoryPlace] = {}
        """Where values that are slices of tables lie."""
        self.sizes: dict[str, ScalarVar] = {}
        """Dynamic sizes; negative while they have no value."""

    def place(self, value: Value) -> MemoryPlace:
        """Where a value lies."""
        root = self._placed.memory.classes.root(value)
        if root in self.frame.given:
            return self.frame.given[root]
        if value in self._placed.memory.views:
            return self.views[value]
        match root.storage:
            case Storage.INPUT:
                return self._places.arena(self._placed.input_offsets[root])
            case Storage.STATE:
                return self._places.state(self._placed.state.homes[root])
            case _:
                return self._places.arena(self._placed.memory.offset(root))

    def size(self, name: str) -> FoundInteger:
        """A size, dynamic or not."""
        program = self._placed.program
        if name in program.sizes:
            return FoundInteger(self.sizes[name], Computed(0, program.sizes[name]))
        number = program.bound.sizes[name]
        return FoundInteger(integer(number), constant(number))

    def named(self, name: str) -> FoundInteger:
        """A name in an index expression: a loop index, else a scalar variable, else a size."""
        for index, found in (*reversed(self.frame.loops), *self.frame.chosen.items()):
            if index == name:
                return found
        program = self._placed.program
        if name in program.bound.vars:
            fixed = program.bound.constants.get(name)
            if fixed is not None:
                return FoundInteger(integer(int(fixed)), constant(int(fixed)))
            home = program.homes[name]
            return FoundInteger(self._code.scalar(self.place(home), home.dtype), scalar(home.dtype))
        return self.size(name)
