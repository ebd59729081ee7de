"""A contraction on lanes as an entity: it issues one term per clock while it stores the results of the last sums."""

from dataclasses import dataclass, field
from math import prod

from openinfer.loops.ir import ACCUMULATOR, INDEX, Buffer, Const, Scalar, ScalarVar, Store
from openinfer.loops.rewrite import replaced
from openinfer.loops.simplify import simplified
from openinfer.loops.used import offset
from openinfer.synth.targets.vhdl.clocks import Clocks
from openinfer.synth.targets.vhdl.expressions import Expressions, Wire, WireVariable, number, times
from openinfer.synth.targets.vhdl.kernel import KernelCompiler
from openinfer.synth.targets.vhdl.lane_clocks import LaneTiming, lane_clocks
from openinfer.synth.targets.vhdl.lane_plan import LaneProduct, LaneShape, sum_range
from openinfer.synth.targets.vhdl.names import plain
from openinfer.synth.targets.vhdl.pipeline import LoopPipeline, StageMemory, StagePrinter, advanced
from openinfer.synth.targets.vhdl.ports import element_type, read_element
from openinfer.synth.targets.vhdl.ranges import BOOLEAN, WireType, wire
from openinfer.synth.targets.vhdl.states import StateMachine
from openinfer.synth.targets.vhdl.unit import HEAD, Gate, KernelUnit

_NEXT = 2
"""Clocks from one sum to the next."""


@dataclass
class LaneUnit(KernelUnit):
    """A kernel whose only statement is a contraction on lanes."""

    terms: LaneProduct = field(kw_only=True)

    def _fill(self, compiler: KernelCompiler) -> None:
        assert self.shape.lanes is not None
        made = LaneStream(self, compiler, self.shape.lanes)
        made.write()
        self.timing = made.timing

    @property
    def terms_of_a_call(self) -> int:
        """All products of a call, including those with padding."""
        own = self.terms.contraction
        return prod((*own.extents, *own.reduced))

    def ports(self) -> list[tuple[str, str, str]]:
        """The ports of a kernel, and those to the lanes."""
        lanes = self.shape.lanes
        assert lanes is not None
        return super().ports()[:3] + lane_ports(lanes) + super().ports()[3:]

    def _defaults(self) -> list[str]:
        zeros = ["lanes_addr <= (others => '0');", "lanes_a <= (others => '0');"]
        return [*super()._defaults(), *zeros, *(f"{one} <= '0';" for one in LANE_REQUEST[2:])]


LANE_REQUEST = ("lanes_addr", "lanes_a", "lanes_step", "lanes_first", "lanes_keep", "lanes_next")


def lane_ports(lanes: LaneShape) -> list[tuple[str, str, str]]:
    """The ports of an entity that uses the lanes."""
    return [
        ("lanes_addr", "out", f"unsigned({lanes.address_bits - 1} downto 0)"),
        ("lanes_a", "out", f"std_logic_vector({lanes.factor_bits - 1} downto 0)"),
        ("lanes_step", "out", "std_logic"),
        ("lanes_first", "out", "std_logic"),
        ("lanes_keep", "out", "std_logic"),
        ("lanes_next", "out", "std_logic"),
        ("lanes_q", "in", f"std_logic_vector({lanes.sum_bits - 1} downto 0)"),
    ]


class LaneStream:
    """Writes the pipelined state that issues terms and stores results."""

    def __init__(self, unit: LaneUnit, compiler: KernelCompiler, lanes: LaneShape) -> None:
        self.unit, self.lanes, self.product = unit, lanes, unit.terms
        self.own = unit.terms.contraction
        self.machine: StateMachine = unit.machine
        self.compiler = compiler
        self.counters: dict[str, tuple[WireVariable, int]] = {}
        self.block = self._counter("block", len(self.product.blocks(lanes.count)))
        for var, extent in (*self.product.outer, *zip(self.own.bound, self.own.reduced, strict=True)):
            if extent > 1:
                self.counters[var.name] = self._counter(var.name, extent), extent
        self.taken, self.running, self.busy, self.first = (
            self.machine.variable(name, "boolean") for name in ("taken", "running", "busy", "first")
        )
        self.word = self._counter("word", max(len(self.product.blocks(lanes.count)) * self.product.terms, 2))
        self.left = self._counter("left", lanes.count + 1)
        self._results()

    def _counter(self, name: str, extent: int) -> WireVariable:
        type_ = wire(INDEX, (0, max(extent - 1, 0)))
        return WireVariable(self.machine.variable(plain(name), type_), type_)

    # --- results --------------------------------------------------------------------------------------------------

    def _results(self) -> None:
        """Schedule the stages of a result, from the sum to the store."""
        machine, own, lanes = self.machine, self.own, self.lanes
        unit = self.unit.expressions
        self.after = Expressions(dims=unit.dims, contents=unit.contents, in_logic=unit.in_logic, products=unit.products)
        ends = sum_range(self.product, dict(unit.contents))
        type_ = wire(own.accumulator, ends)
        self.sum = WireVariable(machine.variable("sum", type_), type_)
        known = {ACCUMULATOR: self.sum}
        self.after.declare(ScalarVar(ACCUMULATOR, own.accumulator), self.sum, ends)
        self.kept: dict[str, WireVariable] = {}
        fixed: dict[str, Scalar] = {}
        for var, extent in self.product.outer:
            if extent == 1:
                fixed[var.name] = Const(0, INDEX)
                continue
            made = self._counter(f"{var.name}_kept", extent)
            self.after.declare(var, made, (0, extent - 1))
            self.kept[var.name] = made
        if self.product.lane is not None:
            extent = self.product.features
            self.lane = self._counter("lane", -(-extent // lanes.count) * lanes.count + 1)
            self.after.declare(self.product.lane, self.lane, (0, extent - 1))
            known[self.product.lane.name] = self.lane
        shape = self.unit.shape
        compiler = self.compiler
        memory = StageMemory(
            lambda name: compiler.operands[name].memory, self._address, compiler.word, compiler.product
        )
        pipeline = LoopPipeline(machine, self.after, memory, shape.has_write_port)
        flow = pipeline.flow((Store(own.out, own.out_index, own.epilogue),), fixed)
        self.schedule = pipeline.schedule(flow)
        self.printer = StagePrinter(machine, self.after, memory, self.schedule, known)
        asks = frozenset(
            at
            for at, step in zip(self.schedule.at, self.schedule.steps, strict=True)
            if self.schedule.ports.of(step) == "ram"
        )
        product = self.product
        self.timing = LaneTiming(
            positions=prod(extent for _, extent in product.outer),
            blocks=tuple(product.blocks(lanes.count)),
            terms=product.terms,
            interval=max(self.schedule.interval, _NEXT),
            depth=self.schedule.depth,
            asks=asks,
        )

    def _address(self, buffer: Buffer, place: Scalar) -> str:
        return self.compiler.address(buffer, place, self.after)

    # --- lines ----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the state that initializes the pipeline, the pipelined state, and their clocks."""
        machine = self.machine
        flags = [machine.variable(name, "boolean") for name in ("begun", "begun", "first", "first")]
        lasts = [machine.variable("last", "boolean") for _ in range(4)]
        counts = [machine.variable("is_there", "boolean") for _ in range(2)]
        gap = machine.variable("gap", f"natural range 0 to {self.timing.interval - 1}")
        self.waiting = self._counter("waiting", self.lanes.count + 1)
        for one in (*flags, *lasts, *self.printer.tokens, self.busy):
            machine.at_once(f"{one} := false;")
        machine.at_once(f"{self.running} := true;")
        machine.at_once(f"{self.first} := true;")
        for made in (self.block, self.word, self.left, self.waiting, *(one for one, _ in self.counters.values())):
            machine.at_once(f"{made.name} := {number(0, made.type)};")
        machine.at_once(f"{gap} := 0;")
        machine.step()
        stages = self.printer.stages()
        lines = [f"{self.taken} := {' or '.join(self.printer.asks_ram) or 'false'};"]
        lines += [line for stage in reversed(stages[1:]) for line in stage]
        lines += self._begin_result(stages[0], gap)
        lines.append(f"if {self._is_idle()} then {self.busy} := false; end if;")
        lines += self._terms(flags, lasts, counts, gap)
        for line in lines:
            machine.at_once(line)
        waiting = " or ".join([self.running, self.busy, *flags[:2], *lasts, *self.printer.tokens])
        after = machine.fresh()
        machine.at_once(f"if not ({waiting}) then state <= {after}; end if;")
        machine.now = None
        machine.enter(after)
        machine.clocks += Clocks.of(lane_clocks(self.timing) - 1)

    def _is_idle(self) -> str:
        """Whether all pending results are stored, so that the indices they are stored by may change."""
        waiting = [f"{self.left.name} /= 0", f"{self.waiting.name} /= 0", *self.printer.tokens]
        return f"not ({' or '.join(waiting)})"

    def _begin_result(self, stage: list[str], gap: str) -> list[str]:
        """Issue a result into its first stage, if some are left."""
        lanes, left, token = self.lanes, self.left, self.printer.tokens[0] if self.printer.tokens else ""
        taken_sum = Wire("signed(lanes_q)", WireType("signed", lanes.sum_bits))
        return [
            f"if {left.name} /= 0 and {gap} = 0 then",
            f"  {self.sum.name} := {taken_sum.to(self.sum.type)};",
            *(f"  {line}" for line in stage),
            *[f"  {self.taken} := true;"] * (0 in self.timing.asks),
            *[f"  {token} := true;"] * bool(token),
            "  lanes_next <= '1';",
            *([f"  {self.lane.name} := {self.lane.name} + 1;"] if self.product.lane is not None else []),
            f"  {left.name} := {left.name} - 1;",
            f"  {gap} := {self.timing.interval - 1};",
            "else",
            *[f"  {token} := false;"] * bool(token),
            f"  if {gap} /= 0 then {gap} := {gap} - 1; end if;",
            "end if;",
        ]

    def _terms(self, flags: list[str], lasts: list[str], counts: list[str], gap: str) -> list[str]:
        """The stages of a term, last one first: sums are complete, products are issued, memory is requested."""
        lanes, dtype = self.lanes, self.own.a.dtype
        begun, first = flags[:2], flags[2:]
        answer = Wire(read_element("ram", dtype, None), element_type(dtype))
        factor = WireType("signed", lanes.factor_bits)
        given = f"std_logic_vector(oi_sel({counts[1]}, {answer.to(factor)}, {number(0, factor)}))"
        return [
            f"if {lasts[3]} then",
            f"  {self.left.name} := {self.waiting.name};",
            f"  {self.waiting.name} := {number(0, self.waiting.type)};",
            f"  {gap} := 0;",
            "end if;",
            f"{lasts[3]} := {lasts[2]};",
            f"lanes_keep <= oi_bit({lasts[2]});",
            f"{lasts[2]} := {lasts[1]};",
            f"if {begun[1]} then",
            f"  lanes_a <= {given};",
            "  lanes_step <= '1';",
            f"  lanes_first <= oi_bit({first[1]});",
            "end if;",
            f"{lasts[1]} := {lasts[0]};",
            f"{begun[1]} := {begun[0]};",
            f"{first[1]} := {first[0]};",
            f"{counts[1]} := {counts[0]};",
            *self._begin_term(begun[0], first[0], lasts[0], counts[0]),
        ]

    def _begin_term(self, begun: str, first: str, last: str, is_there: str) -> list[str]:
        own, unit = self.own, self.unit.expressions
        fixed: dict[Scalar, Scalar] = {}
        for var, extent in (*self.product.outer, *zip(own.bound, own.reduced, strict=True)):
            if extent > 1:
                unit.declare(var, self.counters[var.name][0], (0, extent - 1))
            else:
                fixed[var] = Const(0, INDEX)
        place, valid, words = self._places(fixed)
        ends = [
            f"{made.name} = {number(extent - 1, made.type)}"
            for name, (made, extent) in self.counters.items()
            if name in {var.name for var in own.bound}
        ]
        base = self.compiler.operands[own.b.name].base
        bits = self.lanes.address_bits
        word = f"oi_u({self.word.name}, {bits}) + {base}"
        if words is not None:
            word += f" + {unit.text(words, WireType('unsigned', bits))}"
        return [
            f"{last} := {' and '.join(ends) or 'true'};",
            f"if {self.running} and not {self.taken} and not ({last} and {self.busy}) then",
            f"  ram_addr <= {self.compiler.address(own.a, place, unit)};",
            f"  lanes_addr <= {word};",
            f"  {is_there} := {'true' if valid is None else unit.text(valid, BOOLEAN)};",
            f"  {begun} := true;",
            f"  {first} := {self.first};",
            f"  {self.first} := {last};",
            f"  if {last} then",
            *(f"    {line}" for line in self._keep()),
            "  end if;",
            *(f"  {line}" for line in self._advance()),
            "else",
            f"  {begun} := false;",
            f"  {last} := false;",
            "end if;",
        ]

    def _places(self, fixed: dict[Scalar, Scalar]) -> tuple[Scalar, Scalar | None, Scalar | None]:
        """The element's offset, whether it is valid, and the number of words before those of its group."""
        own = self.own
        place = simplified(replaced(offset(own.a, own.a_index), fixed))
        valid = None if own.valid is None else simplified(replaced(own.valid, fixed))
        words: Scalar | None = None
        for var, extent in self.product.chosen:
            words = var if words is None else words * Const(extent, INDEX) + var
        if words is not None:
            words = words * Const(len(self.timing.blocks) * self.product.terms, INDEX)
        return place, valid, words

    def _keep(self) -> list[str]:
        """After the last term of a block: queue its results for storing."""
        counts = self.timing.blocks
        waiting = number(counts[0], self.waiting.type)
        if len(set(counts)) > 1:
            last = number(len(counts) - 1, self.block.type)
            waiting = f"oi_sel({self.block.name} = {last}, {number(counts[-1], self.waiting.type)}, {waiting})"
        lines = [f"{self.busy} := true;", f"{self.waiting.name} := {waiting};"]
        lines += [f"{made.name} := {self.counters[name][0].name};" for name, made in self.kept.items()]
        if self.product.lane is not None:
            block = Wire(self.block.name, self.block.type).to(self.lane.type)
            lines.append(f"{self.lane.name} := {times(block, self.lanes.count, self.lane.type)};")
        return lines

    def _advance(self) -> list[str]:
        """Advance to the next term: of this sum, the next block of features, or the next position."""
        names = {var.name for var in self.own.bound}
        bound = [
            (made, number(extent - 1, made.type)) for name, (made, extent) in self.counters.items() if name in names
        ]
        outer = [
            (made, number(extent - 1, made.type)) for name, (made, extent) in self.counters.items() if name not in names
        ]
        blocks = len(self.timing.blocks)
        turn = [(self.block, number(blocks - 1, self.block.type))] if blocks > 1 else []
        last = number(blocks * self.product.terms - 1, self.word.type)
        return [
            f"if {self.word.name} = {last} then",
            f"  {self.word.name} := {number(0, self.word.type)};",
            "else",
            f"  {self.word.name} := {self.word.name} + 1;",
            "end if;",
            *advanced([*outer, *turn, *bound], self.running),
        ]


def lanes_text(name: str, lanes: LaneShape, words: tuple[int, ...], gate: Gate, *, are_outside: bool) -> str:
    """The lanes of a circuit, with the memory of their weights unless those are outside."""
    width = lanes.count * lanes.weight_bits
    rows = ",\n    ".join(f'"{word:0{width}b}"' for word in words)
    depth = max(len(words), 2)
    bits = lanes.weight_bits
    filled = rows if len(words) > 1 else f"{rows},\n    {rows}"
    given = f"\n    word : in std_logic_vector({width - 1} downto 0);" * are_outside
    memory = (
        ""
        if are_outside
        else f"""  type words_t is array (0 to {depth - 1}) of std_logic_vector({width - 1} downto 0);
  constant words : words_t := (
    {filled}
  );
  signal word : natural range 0 to {depth - 1};
"""
    )
    chosen = "" if are_outside else f"  word <= to_integer(addr) when addr < {depth} else 0;\n"
    where = " in external memory" * are_outside
    return f"""-- {lanes.count} lanes, each a multiply-accumulate per clock; {len(words)} words of weights{where}.
{HEAD}
entity {name}_lanes is
  port (
{gate.ports}
    addr : in unsigned({lanes.address_bits - 1} downto 0);{given}
    a : in std_logic_vector({lanes.factor_bits - 1} downto 0);
    step : in std_logic;
    first : in std_logic;
    keep : in std_logic;
    next_sum : in std_logic;
    q : out std_logic_vector({lanes.sum_bits - 1} downto 0)
  );
end entity;

architecture rtl of {name}_lanes is
{memory}  signal row, weights : std_logic_vector({width - 1} downto 0) := (others => '0');
  signal sums, kept : std_logic_vector({lanes.count * lanes.sum_bits - 1} downto 0) := (others => '0');
begin
  q <= kept({lanes.sum_bits - 1} downto 0);
{chosen}
  process (clk)
  begin
    if {gate.edge} then
      row <= {"word" if are_outside else "words(word)"};
      weights <= row;
      -- Finished sums are shifted out one by one while the lanes compute the next ones.
      if keep = '1' then
        kept <= sums;
      elsif next_sum = '1' then
        kept <= std_logic_vector(shift_right(unsigned(kept), {lanes.sum_bits}));
      end if;
    end if;
  end process;

  lanes : for l in 0 to {lanes.count - 1} generate
    signal sum : signed({lanes.sum_bits - 1} downto 0) := (others => '0');
  begin
    sums({lanes.sum_bits} * l + {lanes.sum_bits - 1} downto {lanes.sum_bits} * l) <= std_logic_vector(sum);

    process (clk)
      variable product : signed({lanes.factor_bits + lanes.weight_bits - 1} downto 0);
    begin
      if {gate.edge} then
        if step = '1' then
          product := signed(a) * signed(weights({bits} * l + {bits - 1} downto {bits} * l));
          if first = '1' then
            sum <= oi_s(product, {lanes.sum_bits});
          else
            sum <= sum + oi_s(product, {lanes.sum_bits});
          end if;
        end if;
      end if;
    end process;
  end generate;
end architecture;
"""
