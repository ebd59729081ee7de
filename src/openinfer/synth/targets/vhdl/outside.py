"""Weights in memory outside the circuit, for devices without room for them: a port that requests words.

The circuit computes as if the weights were inside: while a word is being fetched, everything but the bus stalls.
A reader that requests nothing drives address 0, so weights start after it.
"""

from dataclasses import dataclass

from openinfer.synth.targets.vhdl.lane_plan import LaneShape
from openinfer.synth.targets.vhdl.map import CircuitMap
from openinfer.synth.targets.vhdl.memories import aligned_text
from openinfer.synth.targets.vhdl.ports import MemoryShape
from openinfer.synth.targets.vhdl.unit import entity

_WORD = 4
"""Bytes per word of outside memory."""
MEMORY_PORTS = (
    ("mem_valid", "out", "std_logic"),
    ("mem_addr", "out", "std_logic_vector(31 downto 0)"),
    ("mem_rdata", "in", "std_logic_vector(31 downto 0)"),
    ("mem_ready", "in", "std_logic"),
)
"""The port to outside memory: 32-bit words at byte addresses, with valid and ready as on the register bus."""


def memory_ports_of(shape: MemoryShape) -> tuple[tuple[str, str, str], ...]:
    """The circuit's ports to outside memory, if it uses any."""
    return MEMORY_PORTS if shape.has_enable else ()


@dataclass(frozen=True)
class _Reader:
    """A reader of weights: the kernels, or the lanes."""

    name: str
    address: str
    """The number of the requested word; 0 requests nothing."""
    address_bits: int
    bits: int
    first: int
    """The outside address of word 0."""

    @property
    def beats(self) -> int:
        """The number of outside words per word of this reader."""
        return -(-self.bits // (8 * _WORD))


def lane_bytes(lanes: LaneShape) -> int:
    """The outside bytes of one word of the lanes."""
    return _WORD * -(-lanes.count * lanes.weight_bits // (8 * _WORD))


def image(places: CircuitMap, blob: bytes) -> bytes:
    """The contents of outside memory: the kernels' weights, then the words of the lanes."""
    shape, found = places.shape, b""
    if shape.rom_is_outside:
        data = bytes(places.rom.first) + places.rom.data(blob)
        found = _padded(data, max(shape.rom_bytes, _WORD))
        if shape.rom_bytes < _WORD:
            # Each narrow word gets an outside word of its own.
            words = [found[at : at + shape.rom_bytes] for at in range(0, len(data), shape.rom_bytes)]
            found = b"".join(one.ljust(_WORD, b"\0") for one in words)
    if shape.lanes_are_outside:
        assert places.lanes is not None
        nbytes = lane_bytes(places.lanes.shape)
        found += b"".join(word.to_bytes(nbytes, "little") for word in places.lanes.words)
    return found


def image_text(data: bytes) -> str:
    """32-bit words, one per line, most significant digit first."""
    words = [int.from_bytes(data[at : at + _WORD], "little") for at in range(0, len(data), _WORD)]
    return "".join(f"{word:08x}\n" for word in words)


def _padded(data: bytes, to: int) -> bytes:
    return data.ljust(-(-len(data) // to) * to, b"\0")


def weights_text(name: str, places: CircuitMap, blob: bytes) -> str:
    """The entity that fetches weights, and enables the circuit once they are there."""
    shape = places.shape
    low = shape.rom_bytes.bit_length() - 1
    readers: list[_Reader] = []
    ports: list[tuple[str, str, str]] = []
    if shape.rom_is_outside:
        bits = shape.rom_bits - low
        address = f"rom_addr({shape.rom_bits - 1} downto {low})"
        readers.append(_Reader("rom", address, bits, 8 * shape.rom_bytes, 0))
        ports += [
            ("rom_addr", "in", f"unsigned({shape.rom_bits - 1} downto 0)"),
            ("rom_q", "out", f"std_logic_vector({8 * shape.rom_bytes - 1} downto 0)"),
        ]
    if shape.lanes_are_outside:
        lanes = shape.lanes
        assert lanes is not None
        first = len(image(places, blob)) - lane_bytes(lanes) * lanes.words
        width = lanes.count * lanes.weight_bits
        readers.append(_Reader("lanes", "lanes_addr", lanes.address_bits, width, first))
        ports += [
            ("lanes_addr", "in", f"unsigned({lanes.address_bits - 1} downto 0)"),
            ("lanes_word", "out", f"std_logic_vector({width - 1} downto 0)"),
        ]
    missing = " or ".join(f"{one.name}_missing" for one in readers)
    parts = [
        "-- Weights in external memory. The circuit is enabled once the words it requests in this clock have arrived.",
        entity(f"{name}_weights", [*ports, *MEMORY_PORTS, ("enable", "out", "std_logic")]),
        f"architecture rtl of {name}_weights is",
        *(line for one in readers for line in _signals(one)),
        f"  signal beat : natural range 0 to {max(one.beats for one in readers) - 1} := 0;",
        "  signal valid, goes_on : std_logic := '0';",
        "  signal address : unsigned(31 downto 0) := (others => '0');",
        *(_answer_signals(shape, low) if shape.rom_is_outside else []),
        "begin",
        "  enable <= goes_on;",
        "  mem_valid <= valid;",
        "  mem_addr <= std_logic_vector(address);",
        f"  goes_on <= not ({missing});",
        *(line for one in readers for line in _held(one)),
        *(_answer(shape, low) if shape.rom_is_outside else []),
        *(["  lanes_word <= lanes_held(lanes_word'range);"] if shape.lanes_are_outside else []),
        "",
        "  process (clk)",
        "  begin",
        "    if rising_edge(clk) then",
        "      if valid = '0' then",
        "        beat <= 0;",
        *(f"        {line}" for line in _ask(readers)),
        "      elsif mem_ready = '1' then",
        *(f"        {line}" for one in readers for line in _take(one)),
        "      end if;",
        "      if rst = '1' then",
        "        valid <= '0';",
        *(f"        {one.name}_known <= '0';" for one in readers),
        "      end if;",
        "    end if;",
        "  end process;",
        "end architecture;",
        "",
    ]
    return "\n".join(parts)


def _signals(one: _Reader) -> list[str]:
    name, address = one.name, f"unsigned({one.address_bits - 1} downto 0)"
    return [
        f"  signal {name}_asked, {name}_at : {address} := (others => '0');",
        f"  signal {name}_held : std_logic_vector({one.beats * 8 * _WORD - 1} downto 0) := (others => '0');",
        f"  signal {name}_known, {name}_reads, {name}_missing : std_logic := '0';",
    ]


def _held(one: _Reader) -> list[str]:
    name = one.name
    return [
        f"  {name}_asked <= to_01({one.address}, '0');",
        f"  {name}_missing <= oi_bit({name}_asked /= 0 and ({name}_known = '0' or {name}_at /= {name}_asked));",
    ]


def _ask(readers: list[_Reader]) -> list[str]:
    """Request a missing word."""
    lines: list[str] = []
    for at, one in enumerate(readers):
        place = f"to_unsigned({one.first}, 32) + oi_u({one.name}_asked * to_unsigned({one.beats * _WORD}, 8), 32)"
        others = [f"  {other.name}_reads <= '{int(other is one)}';" for other in readers]
        lines += [
            f"{'elsif' if at else 'if'} {one.name}_missing = '1' then",
            *others,
            f"  {one.name}_known <= '0';",
            f"  {one.name}_at <= {one.name}_asked;",
            f"  address <= {place};",
            "  valid <= '1';",
        ]
    return [*lines, "end if;"]


def _take(one: _Reader) -> list[str]:
    """Take an outside word that has arrived; the lowest one of a reader's word comes first."""
    name, top = one.name, one.beats * 8 * _WORD - 1
    held = f"mem_rdata & {name}_held({top} downto {8 * _WORD})" if one.beats > 1 else "mem_rdata"
    return [
        f"if {name}_reads = '1' then",
        f"  {name}_held <= {held};",
        f"  if beat = {one.beats - 1} then",
        f"    {name}_known <= '1';",
        "    valid <= '0';",
        "  else",
        "    beat <= beat + 1;",
        f"    address <= address + {_WORD};",
        "  end if;",
        "end if;",
    ]


def _answer_signals(shape: MemoryShape, low: int) -> list[str]:
    return [
        f"  type bytes_t is array (0 to {shape.rom_bytes - 1}) of std_logic_vector(7 downto 0);",
        f"  signal row : std_logic_vector({8 * shape.rom_bytes - 1} downto 0) := (others => '0');",
        "  signal found : bytes_t;",
        f"  signal place : unsigned({max(low, 1) - 1} downto 0) := (others => '0');",
    ]


def _answer(shape: MemoryShape, low: int) -> list[str]:
    """Answer kernels in the clock after their request, as a memory inside would."""
    kept = f"to_01(rom_addr({low - 1} downto 0), '0')" if low else '"0"'
    return [
        "",
        "  process (clk)",
        "  begin",
        "    if rising_edge(clk) then",
        "      if goes_on = '1' then",
        f"        row <= rom_held({8 * shape.rom_bytes - 1} downto 0);",
        f"        place <= {kept};",
        "      end if;",
        "    end if;",
        "  end process;",
        "",
        f"  bytes : for l in 0 to {shape.rom_bytes - 1} generate",
        "    found(l) <= row(8 * l + 7 downto 8 * l);",
        "  end generate;",
        aligned_text("found", shape.rom_bytes, "rom_q"),
    ]
