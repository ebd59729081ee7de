"""A circuit's memories in VHDL: the RAM, in byte lanes, and the ROM of weights. Both respond after one clock."""

from openinfer.synth.targets.vhdl.ports import MemoryShape
from openinfer.synth.targets.vhdl.unit import HEAD, Gate

_ROW = 8


def _log2(value: int) -> int:
    return value.bit_length() - 1


def ram_text(name: str, nbytes: int, shape: MemoryShape) -> str:
    """A byte-addressed memory; a request reads or writes 1, 2, 4 or 8 bytes of one word.

    Data read is in the lowest bits. Without a separate write port, writes take precedence over reads.
    """
    bits, width, gate = shape.ram_bits, shape.ram_bytes, Gate(shape.has_enable)
    depth, low = -(-nbytes // width), _log2(width)
    words = "word, written" if shape.has_write_port else "word"
    chosen = "" if shape.has_write_port else f"\n  signal place_of : unsigned({bits - 1} downto 0);"
    lane = f"unsigned(waddr({low - 1} downto 0))" if low else 'unsigned\'("0")'
    kept = f"addr({low - 1} downto 0)" if low else '"0"'
    return f"""-- Read-write memory: the state, the arena, dynamic sizes. {nbytes} bytes in {width} byte lanes.
{HEAD}
entity {name}_ram is
  port (
{gate.ports}
    addr : in unsigned({bits - 1} downto 0);
    waddr : in unsigned({bits - 1} downto 0);
    write : in std_logic;
    size : in std_logic_vector(1 downto 0);
    wdata : in std_logic_vector({8 * width - 1} downto 0);
    q : out std_logic_vector({8 * width - 1} downto 0)
  );
end entity;

architecture rtl of {name}_ram is
  type lane_t is array (0 to {depth - 1}) of std_logic_vector(7 downto 0);
  type bytes_t is array (0 to {width - 1}) of std_logic_vector(7 downto 0);
  signal {words} : natural range 0 to {depth - 1};
  signal writes : std_logic_vector({width - 1} downto 0);
  signal given, found : bytes_t;{chosen}
  signal place : unsigned({max(low, 1) - 1} downto 0) := (others => '0');
begin
  -- Addresses past the end read an arbitrary word.
{_words(depth, bits, low, has_write_port=shape.has_write_port)}

  process (waddr, write, size, wdata)
    variable first, last : natural range 0 to 15;
  begin
    first := to_integer({lane});
    if size = "00" then
      last := first + 1;
    elsif size = "01" then
      last := first + 2;
    elsif size = "10" then
      last := first + 4;
    else
      last := first + 8;
    end if;
    for l in 0 to {width - 1} loop
      writes(l) <= oi_bit(write = '1' and l >= first and l < last);
    end loop;
    for l in 0 to {width - 1} loop
      -- Data is replicated across the lanes: an aligned access of any size finds its byte.
      given(l) <= wdata(7 downto 0);
      if {width} > 1 and size = "01" then
        given(l) <= wdata(8 * (l mod {min(2, width)}) + 7 downto 8 * (l mod {min(2, width)}));
      elsif {width} > 2 and size = "10" then
        given(l) <= wdata(8 * (l mod {min(4, width)}) + 7 downto 8 * (l mod {min(4, width)}));
      elsif {width} > 4 and size = "11" then
        given(l) <= wdata(8 * l + 7 downto 8 * l);
      end if;
    end loop;
  end process;

  lanes : for l in 0 to {width - 1} generate
    signal cells : lane_t;
  begin
    process (clk)
    begin
      if {gate.edge} then
{_TWO_PORTS if shape.has_write_port else _ONE_PORT}      end if;
    end process;
  end generate;

  process (clk)
  begin
    if {gate.edge} then
      place <= {kept};
    end if;
  end process;

{aligned_text("found", width)}
end architecture;
"""


_TWO_PORTS = """        if writes(l) = '1' then
          cells(written) <= given(l);
        end if;
        found(l) <= cells(word);
"""
_ONE_PORT = """        if writes(l) = '1' then
          cells(word) <= given(l);
        else
          found(l) <= cells(word);
        end if;
"""


def _words(depth: int, bits: int, low: int, *, has_write_port: bool) -> str:
    """The words that are read and written."""

    def choice(name: str, address: str) -> str:
        row = f"{address}({bits - 1} downto {low})"
        return f"  {name} <= to_integer({row}) when {row} < {depth} else 0;"

    if has_write_port:
        return choice("word", "addr") + "\n" + choice("written", "waddr")
    return f"""  place_of <= waddr when write = '1' else addr;
{choice("word", "place_of")}"""


def aligned_text(found: str, width: int, into: str = "q") -> str:
    """The response, rotated so that the requested byte of a word comes first."""
    if width == 1:
        return f"  {into} <= {found}(0);"
    parts = [
        f"  {into}({8 * at + 7} downto {8 * at}) <= {found}((to_integer(place) + {at}) mod {width});"
        for at in range(width)
    ]
    return "\n".join(parts)


def rom_text(name: str, data: bytes, bits: int, width: int, gate: Gate) -> str:
    """The weights as the initial contents of a memory."""
    depth, low = max(-(-len(data) // width), 2), _log2(width)
    filled = data.ljust(depth * width, b"\0")
    words = [f'x"{filled[at : at + width][::-1].hex()}"' for at in range(0, len(filled), width)]
    rows = ",\n    ".join(", ".join(words[at : at + _ROW]) for at in range(0, len(words), _ROW))
    kept = f"addr({low - 1} downto 0)" if low else '"0"'
    return f"""-- The weights: {len(data)} bytes.
{HEAD}
entity {name}_rom is
  port (
{gate.ports}
    addr : in unsigned({bits - 1} downto 0);
    q : out std_logic_vector({8 * width - 1} downto 0)
  );
end entity;

architecture rtl of {name}_rom is
  type words_t is array (0 to {depth - 1}) of std_logic_vector({8 * width - 1} downto 0);
  type bytes_t is array (0 to {width - 1}) of std_logic_vector(7 downto 0);
  constant words : words_t := (
    {rows}
  );
  signal word : natural range 0 to {depth - 1};
  signal row : std_logic_vector({8 * width - 1} downto 0) := (others => '0');
  signal found : bytes_t;
  signal place : unsigned({max(low, 1) - 1} downto 0) := (others => '0');
begin
  word <= to_integer(addr({bits - 1} downto {low})) when addr({bits - 1} downto {low}) < {depth} else 0;

  process (clk)
  begin
    if {gate.edge} then
      row <= words(word);
      place <= {kept};
    end if;
  end process;

  lanes : for l in 0 to {width - 1} generate
    found(l) <= row(8 * l + 7 downto 8 * l);
  end generate;

{aligned_text("found", width)}
end architecture;
"""
