"""How code reaches memory: addresses in bytes, data in the lowest bits, one access a clock for each memory.

A request stands in registers of its own; memory answers in the clock after it sees it. So what is asked for in one
state is there two states later, and a memory can be asked again in each state between.
"""

from dataclasses import dataclass
from typing import Literal

from openinfer.dtypes import DType
from openinfer.synth.targets.vhdl.expressions import Wire
from openinfer.synth.targets.vhdl.lane_plan import LaneShape
from openinfer.synth.targets.vhdl.ranges import BOOLEAN, WireType, of_dtype, wire

MemoryName = Literal["ram", "rom", "lanes"]
"""What changes, the weights, and those of them that lanes read, in words for all lanes."""


@dataclass(frozen=True)
class MemoryShape:
    """How wide addresses and words are."""

    ram_bits: int
    """Of an address in bytes."""
    rom_bits: int
    ram_bytes: int
    """Of a word: the widest element."""
    rom_bytes: int
    has_write_port: bool = True
    """Whether what changes can be read and written in one clock, at two addresses."""
    lanes: LaneShape | None = None
    rom_is_outside: bool = False
    """Whether the weights that are read element by element are behind a port to memory outside."""
    lanes_are_outside: bool = False
    """The same for those that lanes read."""

    @property
    def has_enable(self) -> bool:
        """Whether the circuit stands still while it waits for weights from outside."""
        return self.rom_is_outside or self.lanes_are_outside

    def address_bits(self, memory: MemoryName) -> int:
        """The width of a memory's addresses."""
        if memory == "lanes":
            assert self.lanes is not None
            return self.lanes.address_bits
        return self.ram_bits if memory == "ram" else self.rom_bits


def element_type(dtype: DType) -> WireType:
    """What an element is once it has been read; floats stay the bits that they are."""
    if dtype.kind == "float":
        return WireType("unsigned", dtype.bits)
    return BOOLEAN if dtype.kind == "bool" else wire(dtype, of_dtype(dtype))


def places_bits(dtype: DType) -> int:
    """How many bits say which element of a byte is meant."""
    return (8 // dtype.bits).bit_length() - 1 if dtype.bits < 8 else 0


def read_element(memory: MemoryName, dtype: DType, place: str | None) -> str:
    """An element in what a memory has answered; ``place`` says which of a byte's."""
    data = f"{memory}_q"
    if dtype.kind == "bool":
        return f'({data}(7 downto 0) /= x"00")'
    if place is None:
        return f"{element_type(dtype).kind}({data}({dtype.bits - 1} downto 0))"
    field = f"oi_field({data}(7 downto 0), {place}, {dtype.bits})"
    if dtype.name == "t1":
        return f'oi_sel({field} = "1", to_signed(1, 2), to_signed(-1, 2))'
    return f"{element_type(dtype).kind}({field})"


def element_code(dtype: DType, value: Wire) -> str:
    """The bits that are stored for a value, as a vector of so many bits."""
    bits = max(dtype.bits, 8) if dtype.kind == "bool" else dtype.bits
    if dtype.name == "t1":
        return f"std_logic_vector(oi_u(oi_is_positive({value.text}), 1))"
    return f"std_logic_vector({value.to(WireType('unsigned', bits))})"


def size_code(nbytes: int) -> str:
    """How many bytes are written, as a port says it."""
    return f'"{nbytes.bit_length() - 1:02b}"'
