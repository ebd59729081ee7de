"""The circuit of a program: bus, sequencer, kernels and memories, wired together."""

from collections.abc import Sequence

from openinfer.synth.targets.vhdl.lanes import LANE_REQUEST, LaneUnit, lane_ports
from openinfer.synth.targets.vhdl.outside import MEMORY_PORTS, memory_ports_of
from openinfer.synth.targets.vhdl.sequencer import Sequencer
from openinfer.synth.targets.vhdl.unit import (
    HEAD,
    TRACES,
    Gate,
    KernelUnit,
    entity,
    machine_text,
    memory_ports,
    product_ports,
    request_defaults,
)

BUS_PORTS = (
    ("bus_valid", "in", "std_logic"),
    ("bus_write", "in", "std_logic"),
    ("bus_addr", "in", "std_logic_vector(3 downto 0)"),
    ("bus_wdata", "in", "std_logic_vector(7 downto 0)"),
    ("bus_rdata", "out", "std_logic_vector(7 downto 0)"),
    ("bus_ready", "out", "std_logic"),
)
"""The circuit's register bus."""


def sequencer_ports(sequencer: Sequencer) -> list[tuple[str, str, str]]:
    """The sequencer's ports: the bus, memories, then each kernel."""
    found = [
        ("start", "in", "std_logic"),
        ("busy", "out", "std_logic"),
        ("failed", "out", "std_logic"),
        ("failure", "out", "unsigned(15 downto 0)"),
        *_TRACE,
        *memory_ports(sequencer.places.shape, has_rom=True),
    ]
    for unit in sequencer.units.values():
        found += [
            (f"{unit.name}_start", "out", "std_logic"),
            (f"{unit.name}_done", "in", "std_logic"),
            (f"{unit.name}_failed", "in", "std_logic"),
        ]
        found += [(f"{unit.name}_{port}", "out", type_) for port, type_ in unit.driven_ports()]
    return found


_TRACE = (
    ("tracing", "in", "std_logic"),
    ("trace_resume", "in", "std_logic"),
    ("trace_select", "in", "unsigned(15 downto 0)"),
    ("stopped", "out", "std_logic"),
    ("trace_stop", "out", "unsigned(15 downto 0)"),
    ("trace_number", "out", "signed(63 downto 0)"),
)
"""The ports between host and sequencer for trace stops."""


def sequencer_text(sequencer: Sequencer) -> str:
    """The sequencer as an entity."""
    machine = sequencer.code.machine
    for unit in sequencer.units.values():
        for call in unit.calls:
            lines = [f"{unit.name}_{unit.bases[at]} <= {call.places[at].base};" for at in unit.varying()]
            machine.states[call.state][:0] = lines
    name = f"{sequencer.name}_sequencer"
    starts = [f"{unit.name}_start <= '0';" for unit in sequencer.units.values()]
    silent = ["stopped <= '0';", "trace_stop <= (others => '0');", "trace_number <= (others => '0');"]
    defaults = [*starts, *silent, *request_defaults(has_rom=True)]
    machine.variables["told"] = f"natural range 0 to {max(map(len, machine.holds.values()), default=0)} := 0"
    head = "-- Runs the steps of the program in sequence. Built with traces, it stops after nodes.\n"
    resets = ["busy <= '0';", "failed <= '0';", "failure <= (others => '0');", "stopped <= '0';", "told := 0;"]
    has_enable = sequencer.places.shape.has_enable
    body = machine_text(name, [], machine, defaults, resets, has_enable=has_enable)
    return head + entity(name, sequencer_ports(sequencer), TRACES, has_enable=has_enable) + "\n" + body


def product_bits(units: Sequence[KernelUnit]) -> tuple[int, int]:
    """The factor widths of the shared multiplier."""
    one, other = zip(*(unit.product for unit in units), strict=True)
    return max(one, default=0), max(other, default=0)


def product_text(name: str, one: int, other: int, gate: Gate) -> str:
    """The shared multiplier, as adders in logic."""
    return f"""-- A multiplier with a latency of one clock, shared by all kernels.
{HEAD}
entity {name}_product is
  port (
{gate.ports}
    a : in std_logic_vector({one - 1} downto 0);
    b : in std_logic_vector({other - 1} downto 0);
    q : out std_logic_vector({one + other - 1} downto 0)
  );
end entity;

architecture rtl of {name}_product is
begin
  process (clk)
  begin
    if {gate.edge} then
      q <= std_logic_vector(oi_product(signed(a), signed(b)));
    end if;
  end process;
end architecture;
"""


def top_text(sequencer: Sequencer) -> str:
    """The top entity: clock, reset, register bus, and a busy signal."""
    name, shape, units = sequencer.name, sequencer.places.shape, [*sequencer.units.values()]
    masters = ["host", "sequencer", *(unit.name for unit in units)]
    readers = ["sequencer", *(unit.name for unit in units if unit.uses_rom)]
    word, rom = f"std_logic_vector({8 * shape.ram_bytes - 1} downto 0)", f"unsigned({shape.rom_bits - 1} downto 0)"
    address = f"unsigned({shape.ram_bits - 1} downto 0)"
    signals = ["  signal start, busy_now, failed : std_logic;", "  signal failure : unsigned(15 downto 0);"]
    signals += [f"  signal {port} : {type_};" for port, _, type_ in _TRACE]
    signals += [
        f"  signal ram_q : {word};",
        f"  signal ram_addr, ram_waddr : {address};",
        "  signal ram_write : std_logic;",
    ]
    signals += ["  signal ram_size : std_logic_vector(1 downto 0);", f"  signal ram_wdata : {word};"]
    signals += [
        f"  signal rom_addr : {rom};",
        f"  signal rom_q : std_logic_vector({8 * shape.rom_bytes - 1} downto 0);",
    ]
    for one in masters:
        signals += [f"  signal {one}_ram_addr, {one}_ram_waddr : {address};", f"  signal {one}_ram_write : std_logic;"]
        signals += [f"  signal {one}_ram_size : std_logic_vector(1 downto 0);", f"  signal {one}_ram_wdata : {word};"]
    signals += [f"  signal {one}_rom_addr : {rom};" for one in readers]
    on_lanes = [unit.name for unit in units if isinstance(unit, LaneUnit)]
    if shape.lanes is not None and on_lanes:
        for port, mode, type_ in lane_ports(shape.lanes):
            signals += [f"  signal {port} : {type_};"]
            signals += [f"  signal {one}_{port} : {type_};" for one in on_lanes if mode == "out"]
    multiplied = [unit for unit in units if unit.uses_product]
    for unit in multiplied:
        own = product_ports(*unit.product)[:2]
        signals += [f"  signal {unit.name}_{port} : {type_};" for port, _, type_ in own]
    if multiplied:
        signals += [f"  signal {port} : {type_};" for port, _, type_ in product_ports(*product_bits(units))]
    for unit in units:
        signals += [f"  signal {unit.name}_{port} : std_logic;" for port in ("start", "done", "failed")]
        signals += [f"  signal {unit.name}_{port} : {type_};" for port, type_ in unit.driven_ports()]
    both = [f"  {port} <= {' or '.join(f'{one}_{port}' for one in masters)};" for port in _REQUEST]
    both.append(f"  rom_addr <= {' or '.join(f'{one}_rom_addr' for one in readers)};")
    for port in ("product_a", "product_b") if multiplied else ():
        asked = [f"std_logic_vector(resize(signed({unit.name}_{port}), {port}'length))" for unit in multiplied]
        both.append(f"  {port} <= {' or '.join(asked)};")
    if on_lanes:
        both += [f"  {port} <= {' or '.join(f'{one}_{port}' for one in on_lanes)};" for port in LANE_REQUEST]
    ports = [
        *BUS_PORTS,
        ("busy", "out", "std_logic"),
        *memory_ports_of(shape),
    ]
    if shape.has_enable:
        signals.append("  signal enable : std_logic;")
    if shape.lanes is not None and shape.lanes_are_outside:
        signals.append(
            f"  signal lanes_word : std_logic_vector({shape.lanes.count * shape.lanes.weight_bits - 1} downto 0);"
        )
    parts = [
        "-- The whole circuit. Memory requests are combined by OR: a unit that requests nothing drives zeros.",
        entity(name, ports, TRACES),
        f"architecture rtl of {name} is",
        *signals,
        "begin",
        "  busy <= busy_now and not stopped;",
        *both,
        *_instances(sequencer),
        "end architecture;",
        "",
    ]
    return "\n".join(parts)


def _instances(sequencer: Sequencer) -> list[str]:
    name, shape = sequencer.name, sequencer.places.shape
    bus = [port for port, _, _ in BUS_PORTS]
    ports = {one: one for one in (*bus, "start", "failed", "failure", "ram_q", *(own for own, _, _ in _TRACE))}
    ports |= {"busy": "busy_now"} | {one: f"host_{one}" for one in _REQUEST}
    generics = f"generic map (address_bits => {shape.ram_bits}, word_bits => {8 * shape.ram_bytes}) "
    found = [_instance("host_port", "oi_bus", ports, generics)]
    ports = {one: one for one, _, _ in sequencer_ports(sequencer)} | {"busy": "busy_now"}
    ports |= {one: f"sequencer_{one}" for one in (*_REQUEST, "rom_addr")}
    generics = "generic map (traces => traces) "
    found.append(_instance("sequencer", f"{name}_sequencer", ports, generics, has_enable=shape.has_enable))
    for unit in sequencer.units.values():
        ports = {one: f"{unit.name}_{one}" for one, _, _ in unit.ports()}
        ports |= {one: one for one in ("ram_q", "rom_q", "lanes_q") if one in ports}
        if unit.uses_product:
            ports["product_q"] = f"product_q({sum(unit.product) - 1} downto 0)"
        found.append(_instance(f"{unit.name}_unit", unit.name, ports, has_enable=shape.has_enable))
    if any(unit.uses_product for unit in sequencer.units.values()):
        ports = {one: f"product_{one}" for one in "abq"}
        found.append(_instance("product", f"{name}_product", ports, has_reset=False, has_enable=shape.has_enable))
    if any(isinstance(unit, LaneUnit) for unit in sequencer.units.values()):
        lanes = {one.removeprefix("lanes_"): one for one in (*LANE_REQUEST, "lanes_q")}
        lanes["next_sum"] = lanes.pop("next")
        lanes |= {"word": "lanes_word"} if shape.lanes_are_outside else {}
        found.append(_instance("lanes", f"{name}_lanes", lanes, has_reset=False, has_enable=shape.has_enable))
    ram = {
        "addr": "ram_addr",
        "waddr": "ram_waddr",
        "write": "ram_write",
        "size": "ram_size",
        "wdata": "ram_wdata",
        "q": "ram_q",
    }
    found.append(_instance("ram", f"{name}_ram", ram, has_reset=False, has_enable=shape.has_enable))
    if shape.has_enable:
        own = [*("rom_addr", "rom_q") * shape.rom_is_outside, *("lanes_addr", "lanes_word") * shape.lanes_are_outside]
        outside = {one: one for one in (*own, *(port for port, _, _ in MEMORY_PORTS))}
        found.append(_instance("weights", f"{name}_weights", outside, has_enable=True))
    if not shape.rom_is_outside:
        rom = {"addr": "rom_addr", "q": "rom_q"}
        found.append(_instance("rom", f"{name}_rom", rom, has_reset=False, has_enable=shape.has_enable))
    return found


_REQUEST = ("ram_addr", "ram_waddr", "ram_write", "ram_size", "ram_wdata")


def _instance(
    label: str,
    of: str,
    ports: dict[str, str],
    generics: str = "",
    *,
    has_reset: bool = True,
    has_enable: bool = False,
) -> str:
    wired = {"clk": "clk", **({"rst": "rst"} if has_reset else {}), **({"enable": "enable"} if has_enable else {})}
    wired |= ports
    lines = ",\n    ".join(f"{port} => {signal}" for port, signal in wired.items())
    return f"  {label} : entity work.{of} {generics}port map (\n    {lines}\n  );"
