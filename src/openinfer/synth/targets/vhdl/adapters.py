"""Adapters to common buses: SPI, Wishbone, AXI4-Lite. Each is an entity around the whole circuit.

Texts in ``rtl`` and ``tb`` have ``$`` words for what is printed here: ports, instances, and the parts of a bench.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from openinfer.synth.targets.vhdl.host import resource
from openinfer.synth.targets.vhdl.top import BUS_PORTS
from openinfer.synth.targets.vhdl.unit import CLOCK_PORTS, TRACES, entity

_TRACED = "generic map (traces => traces)"

Ports = Sequence[tuple[str, str, str]]
"""Names, modes and types."""


@dataclass(frozen=True)
class BusAdapter:
    """An adapter, by the name of its bus."""

    name: str
    ports: Ports
    """Those on its own bus's side."""

    @property
    def entity_ports(self) -> Ports:
        """All ports of its entity: it drives what the circuit reads from the register bus."""
        opposite = {"in": "out", "out": "in"}
        bus = [(name, opposite[mode], type_) for name, mode, type_ in BUS_PORTS]
        return (*CLOCK_PORTS, *self.ports, *bus)


ADAPTERS = (
    BusAdapter(
        "spi",
        (
            ("spi_clk", "in", "std_logic"),
            ("spi_select_n", "in", "std_logic"),
            ("spi_in", "in", "std_logic"),
            ("spi_out", "out", "std_logic"),
        ),
    ),
    BusAdapter(
        "wishbone",
        (
            ("wb_cyc", "in", "std_logic"),
            ("wb_stb", "in", "std_logic"),
            ("wb_we", "in", "std_logic"),
            ("wb_adr", "in", "std_logic_vector(3 downto 0)"),
            ("wb_dat_w", "in", "std_logic_vector(7 downto 0)"),
            ("wb_dat_r", "out", "std_logic_vector(7 downto 0)"),
            ("wb_ack", "out", "std_logic"),
        ),
    ),
    BusAdapter(
        "axi4lite",
        (
            ("axi_awaddr", "in", "std_logic_vector(5 downto 0)"),
            ("axi_awvalid", "in", "std_logic"),
            ("axi_awready", "out", "std_logic"),
            ("axi_wdata", "in", "std_logic_vector(31 downto 0)"),
            ("axi_wstrb", "in", "std_logic_vector(3 downto 0)"),
            ("axi_wvalid", "in", "std_logic"),
            ("axi_wready", "out", "std_logic"),
            ("axi_bresp", "out", "std_logic_vector(1 downto 0)"),
            ("axi_bvalid", "out", "std_logic"),
            ("axi_bready", "in", "std_logic"),
            ("axi_araddr", "in", "std_logic_vector(5 downto 0)"),
            ("axi_arvalid", "in", "std_logic"),
            ("axi_arready", "out", "std_logic"),
            ("axi_rdata", "out", "std_logic_vector(31 downto 0)"),
            ("axi_rresp", "out", "std_logic_vector(1 downto 0)"),
            ("axi_rvalid", "out", "std_logic"),
            ("axi_rready", "in", "std_logic"),
        ),
    ),
)


def adapter_files(name: str, memory: Ports) -> dict[str, str]:
    """The adapters, and for each an entity with the circuit behind it; ``memory`` has its ports to outside memory."""
    found = {f"rtl/oi_{one.name}.vhd": _text(one) for one in ADAPTERS}
    return found | {f"rtl/{name}_{one.name}.vhd": _wrapped(name, one, memory) for one in ADAPTERS}


def bench_text(name: str, memory: Ports) -> str:
    """The test bench of the circuit itself, with outside memory if it uses any."""
    bus = _names(BUS_PORTS)
    rows = [("clk", "rst", *bus[:3]), (*bus[3:], "busy"), *[_names(memory)] * bool(memory)]
    return _bench(name, name, "bus", rows, memory)


def adapter_benches(name: str, memory: Ports) -> dict[str, str]:
    """For each adapter, a test bench that reads the same command lines as the circuit's own."""
    return {f"tb/{name}_{one.name}_tb.vhd": _adapter_bench(name, one, memory) for one in ADAPTERS}


def _adapter_bench(name: str, adapter: BusAdapter, memory: Ports) -> str:
    ports = ("clk", "rst", *_names(adapter.ports), *_names(memory), "busy")
    return _bench(name, f"{name}_{adapter.name}", adapter.name, _rows(ports), memory)


def _bench(name: str, own: str, bus: str, rows: Sequence[Sequence[str]], memory: Ports) -> str:
    """The bench of an entity, with the signals and transfers of its bus; ``rows`` are the ports in lines."""
    texts = {
        "signals": resource("tb", f"{bus}_signals.vhd"),
        "transfer": resource("tb", f"{bus}_transfer.vhd"),
        "memory_signals": resource("tb", "memory_signals.vhd") if memory else "",
        "memory_process": f"{resource('tb', 'memory_process.vhd')}\n" if memory else "",
    }
    filled = {word: Template(text).substitute(name=name) for word, text in texts.items()}
    circuit = f"  circuit : {_instance(f'{own} {_TRACED}', rows)}\n"
    return Template(resource("tb", "tb.vhd")).substitute(filled, entity=own, circuit=circuit)


def _names(ports: Ports) -> tuple[str, ...]:
    return tuple(port for port, _, _ in ports)


def _text(adapter: BusAdapter) -> str:
    ports = ";\n".join(f"    {port} : {mode} {type_}" for port, mode, type_ in adapter.entity_ports)
    return Template(resource("rtl", f"{adapter.name}.vhd")).substitute(ports=ports)


def _wrapped(name: str, adapter: BusAdapter, memory: Ports) -> str:
    own = f"{name}_{adapter.name}"
    inner = ("clk", "rst", *_names(BUS_PORTS), "busy", *_names(memory))
    return "\n".join(
        [
            f"-- The whole circuit behind {adapter.name}.",
            entity(own, [*adapter.ports, *memory, ("busy", "out", "std_logic")], TRACES),
            f"architecture rtl of {own} is",
            *(f"  signal {port} : {type_};" for port, _, type_ in BUS_PORTS),
            "begin",
            f"  adapter : {_instance(f'oi_{adapter.name}', _rows(_names(adapter.entity_ports)))}",
            f"  circuit : {_instance(f'{name} {_TRACED}', _rows(inner))}",
            "end architecture;",
            "",
        ]
    )


def _rows(ports: Sequence[str]) -> list[tuple[str]]:
    return [(port,) for port in ports]


def _instance(of: str, rows: Sequence[Sequence[str]]) -> str:
    """An instance of an entity, its ports in lines, on signals of the same names."""
    lines = ",\n    ".join(", ".join(f"{one} => {one}" for one in row) for row in rows)
    return f"entity work.{of} port map (\n    {lines}\n  );"
