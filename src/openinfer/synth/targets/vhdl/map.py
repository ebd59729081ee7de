"""Where everything lies in a circuit's memories.

The RAM has all data that changes: the state, a copy of it to roll back a failing step, the arena with the inputs, and
the dynamic sizes. Weights are in a ROM.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from openinfer.dtypes import DType
from openinfer.loops.ir import Space
from openinfer.synth.memory.alignment import aligned
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.weights import weights_in
from openinfer.synth.program.ir import IntegerStep, KernelStep, Value, Weight
from openinfer.synth.targets.vhdl.code import MemoryPlace
from openinfer.synth.targets.vhdl.contents import WeightContents
from openinfer.synth.targets.vhdl.fit import MemoryNeed
from openinfer.synth.targets.vhdl.lane_plan import LanePlan, lane_plan
from openinfer.synth.targets.vhdl.machine import FpgaMachine
from openinfer.synth.targets.vhdl.ports import MemoryShape
from openinfer.synth.targets.vhdl.require import MOST_BYTES, no_room, too_large
from openinfer.synth.targets.vhdl.rom import RomLayout, rom_layout

_SIZE = 8
"""Bytes of a dynamic size."""


@dataclass(frozen=True)
class CircuitMap:
    """Byte addresses of everything in memory."""

    shape: MemoryShape
    state_bytes: int
    keeps_state: bool
    """Whether a step keeps a copy of the state, because it may fail after a change."""
    arena_bytes: int
    sizes: tuple[str, ...]
    rom: RomLayout
    lanes: LanePlan | None
    contents: WeightContents

    @property
    def rom_bytes(self) -> int:
        """The size of the weights that are read element by element."""
        return max(self.rom.size, 8)

    @property
    def kept_at(self) -> int:
        """Where the copy of the state begins."""
        return self.state_bytes

    @property
    def arena_at(self) -> int:
        """Where the arena begins."""
        return self.state_bytes * (2 if self.keeps_state else 1)

    @property
    def sizes_at(self) -> int:
        """Where the dynamic sizes begin."""
        return self.arena_at + self.arena_bytes

    @property
    def ram_bytes(self) -> int:
        """The size of the RAM."""
        return max(self.sizes_at + _SIZE * len(self.sizes), 8)

    def at(self, address: int) -> MemoryPlace:
        """A location in the RAM."""
        return MemoryPlace("ram", f"to_unsigned({address}, {self.shape.ram_bits})")

    def state(self, offset: int) -> MemoryPlace:
        """A location in the state."""
        return self.at(offset)

    def arena(self, offset: int) -> MemoryPlace:
        """A location in the arena."""
        return self.at(self.arena_at + offset)

    def size(self, name: str) -> MemoryPlace:
        """The location of a dynamic size."""
        return self.at(self.sizes_at + _SIZE * self.sizes.index(name))

    def weights(self, offset: int) -> MemoryPlace:
        """A location among the weights."""
        return MemoryPlace("rom", f"to_unsigned({self.rom.at(offset)}, {self.shape.rom_bits})")

    def on_lanes(self, text: str, weight: Weight) -> MemoryPlace:
        """The first of the words that lanes read for a kernel."""
        assert self.lanes is not None
        return MemoryPlace(
            "lanes", f"to_unsigned({self.lanes.bases[text, weight]}, {self.shape.address_bits('lanes')})"
        )


def memory_map(placed: Placed, machine: FpgaMachine) -> CircuitMap:
    """The map of a program's memories."""
    contents = WeightContents(placed)
    lanes = lane_plan(placed, contents, machine.fpga.multipliers, machine.fpga.multiplier_bits)
    layout = rom_layout(placed, lanes)
    program = placed.program
    alignment = placed.rules.alignment
    state, arena = (aligned(one, alignment) for one in (placed.state_bytes, placed.arena_bytes))
    sizes = tuple(program.sizes)
    widest = max((_bytes(one) for one in _stored(placed)), default=1)
    has_integers = bool(sizes or program.tables) or any(isinstance(step, IntegerStep) for step in program.steps())
    ram_bytes = 8 if has_integers else widest
    kept = [one for one in placed.weights.pieces.values() if layout.has(one.offset)]
    rom_bytes = max((_bytes(piece.dtype) for piece in kept), default=1)
    used = max(state * (2 if placed.can_tear else 1) + arena + _SIZE * len(sizes), 8)
    fit = machine.fit(
        MemoryNeed(ram_bytes, -(-used // ram_bytes), 8),
        MemoryNeed(1, -(-max(layout.size, 8) // rom_bytes), 8 * rom_bytes),
        lanes,
    )
    if fit is None:
        raise no_room(placed, used, ram_bytes)
    layout = layout.behind(8) if fit.rom_is_outside else layout
    lanes = lanes.behind_one if lanes is not None and fit.lanes_are_outside else lanes
    total = state * 2 + arena + _SIZE * len(sizes) + 8
    if max(total, layout.size) > MOST_BYTES:
        raise too_large(max(total, layout.size))
    shape = MemoryShape(
        ram_bits=max(total.bit_length(), 4),
        rom_bits=max(max(layout.size, 8).bit_length(), 4),
        ram_bytes=ram_bytes,
        rom_bytes=rom_bytes,
        has_write_port=fit.has_write_port,
        lanes=None if lanes is None else lanes.shape,
        rom_is_outside=fit.rom_is_outside,
        lanes_are_outside=lanes is not None and fit.lanes_are_outside,
    )
    return CircuitMap(shape, state, placed.can_tear, arena, sizes, layout, lanes, contents)


def _bytes(dtype: DType) -> int:
    return max(dtype.bits, 8) // 8


def _stored(placed: Placed) -> Iterator[DType]:
    """The dtypes that a word of the RAM must hold."""
    program = placed.program
    values: list[Value] = [*program.inputs.values(), *program.outputs.values(), *program.homes.values()]
    yield from (one.dtype for one in values)
    for step in program.steps():
        if isinstance(step, KernelStep):
            buffers = (*step.kernel.inputs, *step.kernel.outputs, *step.kernel.scratch)
            yield from (one.dtype for one in buffers if one.space is not Space.WEIGHTS)
            yield from (one.dtype for one in (*step.outputs, *step.scratch))
    yield from (one.dtype for one in weights_in(program))
