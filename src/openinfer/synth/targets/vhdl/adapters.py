"""Adapters to common buses: SPI, Wishbone, AXI4-Lite. Each is an entity around the whole circuit."""

import re
from collections.abc import Sequence

from openinfer.synth.targets.vhdl.host import resource
from openinfer.synth.targets.vhdl.unit import HEAD, TRACES

ADAPTERS = ("spi", "wishbone", "axi4lite")
_BUS = ("bus_valid", "bus_write", "bus_addr", "bus_wdata", "bus_rdata", "bus_ready")
_WIDTHS = {"bus_addr": "std_logic_vector(3 downto 0)"} | dict.fromkeys(
    ("bus_wdata", "bus_rdata"), "std_logic_vector(7 downto 0)"
)

_TRACED = "generic map (traces => traces)"


Ports = Sequence[tuple[str, str, str]]
"""Names, modes and types."""


def adapter_files(name: str, memory: Ports) -> dict[str, str]:
    """The adapters, and for each an entity with the circuit behind it; ``memory`` has its ports to outside memory."""
    found = {f"rtl/oi_{one}.vhd": resource("rtl", f"{one}.vhd") for one in ADAPTERS}
    return found | {f"rtl/{name}_{one}.vhd": _wrapped(name, one, memory) for one in ADAPTERS}


def bench_text(name: str, memory: Ports) -> str:
    """The test bench of the circuit itself, with outside memory if it uses any."""
    text = resource("tb", "tb.vhd")
    if memory:
        own = resource("tb", "memory.vhd")
        signals, process = own.split("-- process\n")
        text = text.replace("-- end of signals\n", f"-- end of signals\n{signals}")
        text = text.replace("  process\n    variable told", f"{process}\n  process\n    variable told", 1)
        text = text.replace("busy => busy\n", f"busy => busy,\n    {_wired(memory)}\n", 1)
    return text.replace("NAME", name)


def _wired(ports: Ports) -> str:
    return ", ".join(f"{one} => {one}" for one, _, _ in ports)


def adapter_benches(name: str, memory: Ports) -> dict[str, str]:
    """For each adapter, a test bench that reads the same command lines as the circuit's own."""
    bench = bench_text("NAME", memory)
    return {f"tb/{name}_{one}_tb.vhd": _bench(bench, name, one, memory) for one in ADAPTERS}


def _ports(adapter: str) -> list[tuple[str, str, str]]:
    """The ports on an adapter's own bus side."""
    text = resource("rtl", f"{adapter}.vhd")
    entity = text[text.index("port (") : text.index("end entity")]
    rows = re.findall(r"^\s*(\w+) : (in|out) ([^;\n]+?);?$", entity, re.MULTILINE)
    return [(port, mode, type_) for port, mode, type_ in rows if port not in ("clk", "rst", *_BUS)]


def _wrapped(name: str, adapter: str, memory: Ports) -> str:
    ports = _ports(adapter)
    lines = [f"    {port} : {mode} {type_};" for port, mode, type_ in ports]
    signals = [f"  signal {one} : {_WIDTHS.get(one, 'std_logic')};" for one in _BUS]
    own = [one for one, _, _ in ports]
    mapped = ", ".join(f"{one} => {one}" for one in ("clk", "rst", *own, *_BUS))
    inner = ", ".join(f"{one} => {one}" for one in ("clk", "rst", *_BUS, "busy", *(port for port, _, _ in memory)))
    outside = [f"    {port} : {mode} {type_};" for port, mode, type_ in memory]
    return "\n".join(
        [
            f"-- The whole circuit behind {adapter}.",
            HEAD,
            f"entity {name}_{adapter} is",
            f"{TRACES}  port (",
            "    clk : in std_logic;",
            "    rst : in std_logic;",
            *lines,
            *outside,
            "    busy : out std_logic",
            "  );",
            "end entity;",
            "",
            f"architecture rtl of {name}_{adapter} is",
            *signals,
            "begin",
            f"  adapter : entity work.oi_{adapter} port map (\n    {_folded(mapped)}\n  );",
            f"  circuit : entity work.{name} {_TRACED} port map (\n    {_folded(inner)}\n  );",
            "end architecture;",
            "",
        ]
    )


def _folded(text: str) -> str:
    return text.replace(", ", ",\n    ")


def _bench(bench: str, name: str, adapter: str, memory: Ports) -> str:
    """The circuit's bench with another bus: its signals, instance and transfer are replaced."""
    own = resource("tb", f"{adapter}.vhd")
    parts = dict(re.findall(r"^-- (\w+)\n(.*?)(?=^-- \w+\n|\Z)", own, re.MULTILINE | re.DOTALL))
    for mark in ("signals", "transfer"):
        begin, end = f"-- {mark}\n", f"-- end of {mark}\n"
        first, last = bench.index(begin), bench.index(end)
        bench = bench[: first + len(begin)] + parts[mark] + bench[last:]
    own_ports = [port for port, _, _ in (*_ports(adapter), *memory)]
    ports = ", ".join(f"{one} => {one}" for one in ("clk", "rst", *own_ports, "busy"))
    instance = f"  circuit : entity work.NAME_{adapter} {_TRACED} port map (\n    {_folded(ports)}\n  );\n"
    first, last = bench.index("  circuit :"), bench.index("  );\n") + len("  );\n")
    bench = bench[:first] + instance + bench[last:]
    return bench.replace("NAME_tb", f"NAME_{adapter}_tb").replace("NAME", name)
