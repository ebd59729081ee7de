"""How code accesses memory: byte addresses, data in the lowest bits, one access per clock and memory.

Requests are registered, and memory responds in the clock after it sees one. So data requested in one state arrives two
states later, and a memory takes a new request in every state in between.
"""

from dataclasses import dataclass
from typing import Literal

from openinfer.dtypes import DType
from openinfer.synth.targets.vhdl.expressions import Wire
from openinfer.synth.targets.vhdl.lane_plan import LaneShape
from openinfer.synth.targets.vhdl.ranges import BOOLEAN, WireType, of_dtype, wire

MemoryName = Literal["ram", "rom", "lanes"]
"""All data that changes, the weights, and the weights that lanes read, in words for all lanes."""


@dataclass(frozen=True)
class MemoryShape:
    """The widths of addresses and words."""

    ram_bits: int
    """Of a byte address."""
    rom_bits: int
    ram_bytes: int
    """Bytes of a word: the widest element."""
    rom_bytes: int
    has_write_port: bool = True
    """Whether the RAM can be read and written in the same clock, at two addresses."""
    lanes: LaneShape | None = None
    rom_is_outside: bool = False
    """Whether the weights that are read element by element are in outside memory."""
    lanes_are_outside: bool = False
    """Whether the weights that lanes read are in outside memory."""

    @property
    def has_enable(self) -> bool:
        """Whether the circuit stalls while it waits for weights from outside."""
        return self.rom_is_outside or self.lanes_are_outside

    def address_bits(self, memory: MemoryName) -> int:
        """The width of a memory's addresses."""
        if memory == "lanes":
            assert self.lanes is not None
            return self.lanes.address_bits
        return self.ram_bits if memory == "ram" else self.rom_bits


def element_type(dtype: DType) -> WireType:
    """The type of an element after a read; floats stay raw bits."""
    if dtype.kind == "float":
        return WireType("unsigned", dtype.bits)
    return BOOLEAN if dtype.kind == "bool" else wire(dtype, of_dtype(dtype))


def places_bits(dtype: DType) -> int:
    """The number of bits that select an element within a byte."""
    return (8 // dtype.bits).bit_length() - 1 if dtype.bits < 8 else 0


def read_element(memory: MemoryName, dtype: DType, place: str | None) -> str:
    """The element in a memory's response; ``place`` selects it within a byte."""
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
    """The stored bits of a value, as a vector."""
    bits = max(dtype.bits, 8) if dtype.kind == "bool" else dtype.bits
    if dtype.name == "t1":
        return f"std_logic_vector(oi_u(oi_is_positive({value.text}), 1))"
    return f"std_logic_vector({value.to(WireType('unsigned', bits))})"


def size_code(nbytes: int) -> str:
    """The number of bytes to write, as the port encodes it."""
    return f'"{nbytes.bit_length() - 1:02b}"'
