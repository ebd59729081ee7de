"""A kernel as an entity: what it computes, its ports, its state machine."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from openinfer.loops.dim import Dim
from openinfer.loops.ir import Const, Kernel
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.targets.vhdl.clocks import Clocks
from openinfer.synth.targets.vhdl.code import MemoryPlace
from openinfer.synth.targets.vhdl.expressions import Expressions, WireVariable
from openinfer.synth.targets.vhdl.kernel import KernelCompiler, UnitOperand
from openinfer.synth.targets.vhdl.names import plain, remark
from openinfer.synth.targets.vhdl.pipeline import SharedProduct
from openinfer.synth.targets.vhdl.ports import MemoryName, MemoryShape
from openinfer.synth.targets.vhdl.states import StateMachine

HEAD = """library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;
use work.oi.all;
"""


@dataclass(frozen=True)
class UnitCall:
    """A call of a kernel: the sequencer state that starts it, and where its operands lie."""

    state: int
    places: tuple[MemoryPlace, ...]


@dataclass
class KernelUnit:
    """A kernel as an entity, and its calls."""

    name: str
    kernel: Kernel
    memories: tuple[MemoryName, ...]
    """Where inputs, outputs and scratch memory lie."""
    shape: MemoryShape
    expressions: Expressions = field(default_factory=Expressions)
    """Has the known ranges of weight elements."""
    steps: list[KernelStep] = field(default_factory=list)
    calls: list[UnitCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        buffers = (*self.kernel.inputs, *self.kernel.outputs, *self.kernel.scratch)
        self.bases = tuple(f"base_{number}_{plain(one.name)}" for number, one in enumerate(buffers))
        self.machine = StateMachine()
        operands = {
            one.name: UnitOperand(memory, base)
            for one, memory, base in zip(buffers, self.memories, self.bases, strict=True)
        }
        end = self.machine.fresh()
        shared = SharedProduct() if self.expressions.in_logic else None
        compiler = KernelCompiler(self.machine, operands, self.shape, self.expressions, end, shared)
        self._fill(compiler)
        self.product = (0, 0) if compiler.product is None else compiler.product.bits
        if self.machine.now is not None:
            self.machine.goto(end)
        self.machine.enter(end)
        self.machine.at_once("done <= '1';")
        self.machine.goto(0)
        self.machine.states[0].append("if start = '1' then failed <= '0'; state <= 1; end if;")
        self.dims: dict[Const, WireVariable] = self.expressions.dims

    def _fill(self, compiler: KernelCompiler) -> None:
        """The states between start and end."""
        compiler.run(self.kernel)

    @property
    def clocks(self) -> Clocks:
        """The clocks of a call, from its first state to its last."""
        return self.machine.clocks

    @property
    def uses_rom(self) -> bool:
        """Whether it reads weights."""
        return "rom" in self.memories

    @property
    def uses_product(self) -> bool:
        """Whether it uses the shared multiplier."""
        return self.product != (0, 0)

    def varying(self) -> list[int]:
        """The operands whose address differs between calls or is only known at run time."""
        operands = zip(*(call.places for call in self.calls), strict=True)
        return [at for at, places in enumerate(operands) if len(set(places)) > 1 or not places[0].is_fixed]

    def extents(self) -> list[tuple[Dim, WireVariable]]:
        """The extents it gets through ports."""
        return [(one.value, port) for one, port in self.dims.items() if isinstance(one.value, Dim)]

    # --- text -----------------------------------------------------------------------------------------------------

    def ports(self) -> list[tuple[str, str, str]]:
        """Names, modes and types of all ports but clock and reset."""
        shape = self.shape
        found = [("start", "in", "std_logic"), ("done", "out", "std_logic"), ("failed", "out", "std_logic")]
        found += memory_ports(shape, has_rom=self.uses_rom)
        found += product_ports(*self.product) if self.uses_product else []
        return found + [(port, "in", type_) for port, type_ in self.driven_ports()]

    def driven_ports(self) -> list[tuple[str, str]]:
        """Names and types of the ports that the sequencer drives: addresses and extents."""
        widths = {self.bases[at]: self.shape.address_bits(self.memories[at]) for at in self.varying()}
        found = [(base, f"unsigned({bits - 1} downto 0)") for base, bits in widths.items()]
        return found + [(port.name, str(port.type)) for _, port in self.extents()]

    def text(self, about: Sequence[str]) -> str:
        """The entity and its architecture."""
        notes = [line for one in (*about, *self.kernel.doc) for line in remark(one)]
        first, varying = self.calls[0], self.varying()
        constants = [
            f"constant {base} : unsigned({self.shape.address_bits(place.memory) - 1} downto 0) := {place.base};"
            for at, (base, place) in enumerate(zip(self.bases, first.places, strict=True))
            if at not in varying
        ]
        machine = machine_text(
            self.name,
            constants,
            self.machine,
            self._defaults(),
            ["failed <= '0';"],
            has_enable=self.shape.has_enable,
        )
        head = entity(self.name, self.ports(), has_enable=self.shape.has_enable)
        return "\n".join([*notes, head, machine])

    def _defaults(self) -> list[str]:
        zeros = [f"{one} <= (others => '0');" for one in ("product_a", "product_b")]
        return ["done <= '0';", *request_defaults(has_rom=self.uses_rom), *zeros * self.uses_product]


def memory_ports(shape: MemoryShape, *, has_rom: bool) -> list[tuple[str, str, str]]:
    """The ports of an entity that accesses memory."""
    found = [
        ("ram_addr", "out", f"unsigned({shape.ram_bits - 1} downto 0)"),
        ("ram_waddr", "out", f"unsigned({shape.ram_bits - 1} downto 0)"),
        ("ram_write", "out", "std_logic"),
        ("ram_size", "out", "std_logic_vector(1 downto 0)"),
        ("ram_wdata", "out", f"std_logic_vector({8 * shape.ram_bytes - 1} downto 0)"),
        ("ram_q", "in", f"std_logic_vector({8 * shape.ram_bytes - 1} downto 0)"),
    ]
    if has_rom:
        found += [
            ("rom_addr", "out", f"unsigned({shape.rom_bits - 1} downto 0)"),
            ("rom_q", "in", f"std_logic_vector({8 * shape.rom_bytes - 1} downto 0)"),
        ]
    return found


def product_ports(one: int, other: int) -> list[tuple[str, str, str]]:
    """The ports of an entity that uses the shared multiplier."""
    return [
        ("product_a", "out", f"std_logic_vector({one - 1} downto 0)"),
        ("product_b", "out", f"std_logic_vector({other - 1} downto 0)"),
        ("product_q", "in", f"std_logic_vector({one + other - 1} downto 0)"),
    ]


@dataclass(frozen=True)
class Gate:
    """The clock of an entity without a reset; with an enable signal, it stalls without it."""

    has_enable: bool = False

    @property
    def ports(self) -> str:
        """Its first ports, as lines."""
        return "    clk : in std_logic;" + "\n    enable : in std_logic;" * self.has_enable

    @property
    def edge(self) -> str:
        """The condition of its clock."""
        return "rising_edge(clk)" + " and enable = '1'" * self.has_enable


CLOCK_PORTS = (("clk", "in", "std_logic"), ("rst", "in", "std_logic"))
"""The first ports of entities with a clock."""
TRACES = "  generic (traces : boolean := false);\n"
"""The generic that enables trace stops."""


def entity(name: str, ports: Sequence[tuple[str, str, str]], generics: str = "", *, has_enable: bool = False) -> str:
    """An entity with a clock, a reset and, optionally, an enable signal without which it stalls."""
    clock = (*CLOCK_PORTS, *[("enable", "in", "std_logic")] * has_enable)
    lines = [f"    {port} : {mode} {type_}" for port, mode, type_ in (*clock, *ports)]
    return f"{HEAD}\nentity {name} is\n{generics}  port (\n" + ";\n".join(lines) + "\n  );\nend entity;\n"


def machine_text(
    name: str,
    declared: Sequence[str],
    machine: StateMachine,
    defaults: Sequence[str],
    resets: Sequence[str],
    *,
    has_enable: bool,
) -> str:
    """An architecture of one process: the default values of ports, then the states."""
    lines = [
        f"architecture rtl of {name} is",
        *(f"  {one}" for one in declared),
        f"  signal state : natural range 0 to {len(machine.states) - 1} := 0;",
        "begin",
        "  process (clk)",
        *(f"    variable {own} : {type_};" for own, type_ in machine.variables.items()),
        "  begin",
        "    if rising_edge(clk) then",
        *["      if enable = '1' then"] * has_enable,
        *(f"      {one}" for one in defaults),
        *(f"      {one}" for one in _cases(machine.cases())),
        *["      end if;"] * has_enable,
        "      if rst = '1' then",
        "        state <= 0;",
        *(f"        {one}" for one in resets),
        "      end if;",
        "    end if;",
        "  end process;",
        "end architecture;",
        "",
    ]
    return "\n".join(lines)


_GROUP = 32
"""States per group. For each variable that a case statement sets anywhere, tools build a choice among all alternatives.
With nested groups, that is a choice among the groups and the states of one group, not among all states."""


def _cases(alternatives: Sequence[Sequence[str]]) -> list[str]:
    """The case statement over states; many states are nested in groups."""
    count = len(alternatives)
    if count <= 2 * _GROUP:
        return ["case state is", *(f"  {line}" for one in alternatives for line in one), "end case;"]
    found = ["case state is"]
    for first in range(0, count, _GROUP):
        group = alternatives[first : first + _GROUP]
        found += [f"  when {first} to {first + len(group) - 1} =>", "    case state is"]
        found += [f"      {line}" for one in group for line in one]
        found += ["      when others => null;", "    end case;"]
    return [*found, "end case;"]


def request_defaults(*, has_rom: bool) -> list[str]:
    """Defaults that request nothing from memory: requests are ORed together, so idle ones are zero."""
    zeros = [f"{one} <= (others => '0');" for one in ("ram_addr", "ram_waddr", "ram_size", "ram_wdata")]
    return [*zeros, "ram_write <= '0';", *["rom_addr <= (others => '0');"] * has_rom]
