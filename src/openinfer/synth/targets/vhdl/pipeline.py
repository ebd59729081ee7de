"""A software-pipelined loop as one state: in each clock, every stage works on the iteration that has reached it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from openinfer.loops.affine import affine
from openinfer.loops.dim import Dim
from openinfer.loops.ir import INDEX, Binary, Buffer, Const, For, Load, Scalar, ScalarVar, Statement
from openinfer.synth.targets.vhdl.clocks import Clocks
from openinfer.synth.targets.vhdl.expressions import Expressions, Wire, WireVariable, number, power_of
from openinfer.synth.targets.vhdl.flow import (
    FlowProduct,
    FlowRead,
    FlowStep,
    FlowStore,
    FlowUpdate,
    FlowValue,
    LoopFlow,
    NotStraightError,
)
from openinfer.synth.targets.vhdl.names import plain
from openinfer.synth.targets.vhdl.ports import MemoryName, element_code, element_type, read_element, size_code
from openinfer.synth.targets.vhdl.ranges import BOOLEAN, WireType, unwrapped, wire
from openinfer.synth.targets.vhdl.stages import LATENCY, PortUse, StageSchedule, looked_at
from openinfer.synth.targets.vhdl.states import StateMachine

LONG_PRODUCT = 18
"""Products of more bits take a clock of their own."""


def is_long_product(expressions: Expressions, value: Scalar) -> bool:
    """Whether a value is a wide product of two variables."""
    match value:
        case Binary("mul", left, right) if value.dtype.kind != "float":
            if isinstance(left, Const) or isinstance(right, Const):
                return False
            return expressions.type_of(left).bits + expressions.type_of(right).bits > LONG_PRODUCT
        case _:
            return False


def is_division(expressions: Expressions, value: Scalar) -> bool:
    """Whether a value is a division that takes a clock per bit."""
    match value:
        case Binary("div" | "rem", left, _) if value.dtype.kind != "float":
            return power_of(value) is None or expressions.ranges.of(left)[0] < 0
        case _:
            return False


@dataclass
class SharedProduct:
    """The shared multiplier as one kernel uses it: the widths of its factors."""

    bits: tuple[int, int] = (0, 0)

    def add(self, one: WireType, other: WireType) -> tuple[WireType, WireType]:
        """Make room for a product of two types; returns its factors' signed types."""
        first, second = (WireType("signed", each.bits + (each.kind == "unsigned")) for each in (one, other))
        self.bits = max(self.bits[0], first.bits), max(self.bits[1], second.bits)
        return first, second


@dataclass(frozen=True)
class StageMemory:
    """Access to shared resources: VHDL addresses, words of the data's width, the multiplier if there is one."""

    memory: Callable[[str], MemoryName]
    address: Callable[[Buffer, Scalar], str]
    word: Callable[[str, int], str]
    product: SharedProduct | None = None


@dataclass
class StagePrinter:
    """Prints the stages of a schedule, each as the lines of one clock."""

    machine: StateMachine
    expressions: Expressions
    memory: StageMemory
    schedule: StageSchedule
    known: dict[str, WireVariable]
    """The names available in the first stage."""
    tokens: list[str] = field(default_factory=list)
    """For each stage but the first, whether an iteration has reached it."""
    _registers: dict[tuple[str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._until = self._uses()
        self.tokens = [self.machine.variable("token", "boolean") for _ in range(self.schedule.depth)]

    @property
    def asks_ram(self) -> list[str]:
        """The tokens of the stages that read the RAM, or write it through the same port."""
        ports, schedule = self.schedule.ports, self.schedule
        found = {at for at, step in zip(schedule.at, schedule.steps, strict=True) if ports.of(step) == "ram"}
        return [self.tokens[at - 1] for at in sorted(found) if at > 0]

    def _uses(self) -> dict[str, int]:
        """The last stage that uses each name."""
        found: dict[str, int] = {}
        for at, step in zip(self.schedule.at, self.schedule.steps, strict=True):
            for name in sorted(looked_at(step)):
                found[name] = max(found.get(name, 0), at)
        return found

    def _born(self, name: str) -> int:
        return self.schedule.ready.get(name, (0, 0))[0]

    def _variable(self, name: str) -> WireVariable:
        return self.known[name] if name in self.known else self.expressions.variables[name]

    @contextmanager
    def _in_stage(self, stage: int) -> Iterator[None]:
        """Make names refer to a stage's registers, except those that have just got their values."""
        own = self.expressions.variables
        before = dict(own)
        for name, last in self._until.items():
            if stage <= last and name not in self.schedule.carried and name in own and self._is_moving(name):
                made = own[name]
                own[name] = WireVariable(self._register(name, stage), made.type, made.storage)
        yield
        own.clear()
        own.update(before)

    def _is_moving(self, name: str) -> bool:
        """Whether a name varies between iterations; loop invariants need no stage registers."""
        return name in self.known or name in self.schedule.ready

    def _register(self, name: str, stage: int) -> str:
        own = self._variable(name)
        if stage <= self._born(name):
            return own.name
        if (name, stage) not in self._registers:
            self._registers[name, stage] = self.machine.variable(plain(own.name), own.type)
        return self._registers[name, stage]

    # --- lines ----------------------------------------------------------------------------------------------------

    def stages(self) -> list[list[str]]:
        """The lines of all stages in order; all but the first are guarded by their tokens."""
        return [self._stage(stage) for stage in range(self.schedule.depth + 1)]

    def _stage(self, stage: int) -> list[str]:
        lines: list[str] = []
        effects: list[str] = []
        with self._in_stage(stage):
            for at, step in zip(self.schedule.at, self.schedule.steps, strict=True):
                if isinstance(step, FlowRead) and at + LATENCY == stage:
                    answer = read_element(self.memory.memory(step.buffer.name), step.buffer.dtype, None)
                    made = self._variable(step.var.name)
                    lines.append(f"{made.name} := {Wire(answer, element_type(step.buffer.dtype)).to(made.type)};")
                elif isinstance(step, FlowProduct) and self.memory.product is not None and at + LATENCY == stage:
                    lines.append(self._answered(step))
            for at, step in zip(self.schedule.at, self.schedule.steps, strict=True):
                if at == stage:
                    self._step(step, lines, effects)
        moved = [
            f"{self._register(name, stage + 1)} := {self._register(name, stage)};"
            for name, last in self._until.items()
            if name not in self.schedule.carried and self._is_moving(name) and self._born(name) <= stage < last
        ]
        found = [*lines, *effects, *moved]
        if stage > 0 and found:
            found = [f"if {self.tokens[stage - 1]} then", *(f"  {line}" for line in found), "end if;"]
        token = [f"{self.tokens[stage]} := {self.tokens[stage - 1]};"] if 0 < stage < self.schedule.depth else []
        return [*found, *token]

    def _step(self, step: FlowStep, lines: list[str], effects: list[str]) -> None:
        own = self.expressions
        match step:
            case FlowRead(_, buffer, place):
                memory = self.memory.memory(buffer.name)
                effects.append(f"{memory}_addr <= {self.memory.address(buffer, place)};")
            case FlowProduct(_, value) if self.memory.product is not None:
                effects += self._asked(value, self.memory.product)
            case FlowProduct(var, value) | FlowValue(var, value):
                made = self._variable(var.name)
                lines.append(f"{made.name} := {own.text(value, made.type)};")
            case FlowUpdate(var, value):
                made = self._variable(var.name)
                effects.append(f"{made.name} := {own.text(value, made.type)};")
            case FlowStore():
                effects += self._store(step)

    def _asked(self, value: Binary, shared: SharedProduct) -> list[str]:
        """Request a product; the second factor is the narrower one, since it decides the number of additions."""
        one, other = sorted((self.expressions.value(part) for part in (value.left, value.right)), key=_bits)[::-1]
        types = shared.add(one.type, other.type)
        return [
            f"product_{port} <= std_logic_vector(resize({each.to(type_)}, product_{port}'length));"
            for port, each, type_ in zip("ab", (one, other), types, strict=True)
        ]

    def _answered(self, step: FlowProduct) -> str:
        made = self._variable(step.var.name)
        own = self.expressions
        bits = sum(
            own.type_of(part).bits + (own.type_of(part).kind == "unsigned")
            for part in (step.value.left, step.value.right)
        )
        return (
            f"{made.name} := {Wire(f'signed(product_q({bits - 1} downto 0))', WireType('signed', bits)).to(made.type)};"
        )

    def _store(self, step: FlowStore) -> list[str]:
        own, dtype = self.expressions, step.buffer.dtype
        code = element_code(dtype, own.value(step.value))
        lines = [
            f"ram_wdata <= {self.memory.word(code, dtype.itemsize * 8)};",
            f"ram_waddr <= {self.memory.address(step.buffer, step.place)};",
            f"ram_size <= {size_code(dtype.itemsize)};",
            "ram_write <= '1';",
        ]
        if step.guard is None:
            return lines
        return [f"if {own.text(step.guard, BOOLEAN)} then", *(f"  {line}" for line in lines), "end if;"]


@dataclass(frozen=True)
class LoopPipeline:
    """Turns loops into states whose iterations overlap."""

    machine: StateMachine
    expressions: Expressions
    memory: StageMemory
    has_write_port: bool

    def declare(self, var: ScalarVar, value: Scalar) -> None:
        """Declare a name within an iteration: a value, or an element that is read."""
        own = self.expressions
        type_ = element_type(value.buffer.dtype) if isinstance(value, Load) else own.type_of(value)
        if isinstance(value, Load) and type_ != BOOLEAN:
            type_ = wire(value.buffer.dtype, own.ranges.of(value))
        made = WireVariable(self.machine.variable(plain(var.stem), type_), type_)
        own.declare(var, made, None if type_ == BOOLEAN else own.ranges.of(value))

    def flow(self, body: Sequence[Statement], fixed: dict[str, Scalar]) -> LoopFlow:
        """The data flow of a body, in which the ``fixed`` names are constants."""
        own = self.expressions

        def is_long(value: Scalar) -> bool:
            if is_division(own, value):
                raise NotStraightError
            return is_long_product(own, value)

        found = LoopFlow(is_long, self.declare, lambda value: unwrapped(value, own.ranges), fixed)
        found.run(body)
        return found

    def schedule(self, flow: LoopFlow) -> StageSchedule:
        """Schedule the steps of an iteration."""
        return StageSchedule(
            flow.steps, PortUse(self.memory.memory, self.has_write_port, self.memory.product is not None), flow.carried
        )

    def run(self, nest: Sequence[For]) -> bool:
        """Emit a perfect loop nest as one state; False if it cannot be pipelined."""
        own, variables, products = self.expressions, dict(self.machine.variables), dict(self.expressions.products)
        before = dict(own.variables), dict(own.known)
        try:
            self._run(nest)
        except NotStraightError:
            self.machine.variables.clear()
            self.machine.variables.update(variables)
            own.products.clear()
            own.products.update(products)
            found = False
        else:
            found = True
        for now, kept in ((own.variables, before[0]), (own.known, before[1])):
            now.clear()
            now.update(kept)  # type: ignore[arg-type]
        own.ranges.forget()
        return found

    def _run(self, nest: Sequence[For]) -> None:
        counters = [loop for loop in nest if _count(loop) != 1]
        fixed: dict[str, Scalar] = {loop.index.name: Const(0, INDEX) for loop in nest if _count(loop) == 1}
        known = {loop.index.name: self._counter(loop) for loop in counters}
        flow = self.flow(nest[-1].body, fixed)
        _require_apart(flow, counters)
        schedule = self.schedule(flow)
        printer = StagePrinter(self.machine, self.expressions, self.memory, schedule, known)
        trips = Clocks.of(1)
        for loop in counters:
            least, most = self.expressions.ranges.of(loop.extent)
            trips *= Clocks(max(least, 0), most)
        self._state(printer, counters, known, trips)

    def _counter(self, loop: For) -> WireVariable:
        ends = 0, max(self.expressions.ranges.of(loop.extent)[1] - 1, 0)
        type_ = wire(INDEX, ends)
        made = WireVariable(self.machine.variable(plain(loop.index.name), type_), type_)
        self.expressions.declare(loop.index, made, ends)
        return made

    def _state(
        self, printer: StagePrinter, counters: Sequence[For], known: dict[str, WireVariable], trips: Clocks
    ) -> None:
        machine, interval = self.machine, printer.schedule.interval
        running = machine.variable("running", "boolean")
        gap = machine.variable("gap", f"natural range 0 to {interval - 1}") if interval > 1 else ""
        lasts = [self._last(loop, known[loop.index.name]) for loop in counters]
        stages = printer.stages()
        after = machine.fresh()
        machine.at_once(f"{running} := true;")
        for one in printer.tokens:
            machine.at_once(f"{one} := false;")
        for loop in counters:
            made = known[loop.index.name]
            machine.at_once(f"{made.name} := {number(0, made.type)};")
        if gap:
            machine.at_once(f"{gap} := 0;")
        if trips.least == 0:
            inside = machine.fresh()
            machine.branch(f"{lasts[0]} < 0", after, inside)
            machine.enter(inside)
        else:
            machine.step()
        lines = [line for stage in reversed(stages[1:]) for line in stage]
        first = printer.tokens[0] if printer.tokens else ""
        begins = [*stages[0], *[f"{first} := true;"] * bool(first), *[f"{gap} := {interval - 1};"] * bool(gap)]
        begins += advanced(
            [(known[loop.index.name], last) for loop, last in zip(counters, lasts, strict=True)], running
        )
        lines += _issue(f"{running}{f' and {gap} = 0' if gap else ''}", begins, first, gap)
        for line in lines:
            machine.at_once(line)
        waiting = " or ".join([running, *printer.tokens])
        machine.at_once(f"if not ({waiting}) then state <= {after}; end if;")
        machine.now = None
        machine.enter(after)
        spent = trips * Clocks.of(interval) + Clocks.of(printer.schedule.depth + 1 - interval)
        # One clock of the state is counted already; a zero-trip loop does not enter it at all.
        machine.clocks += Clocks(spent.least if trips.least else 0, spent.most) + Clocks.of(-1)

    def _last(self, loop: For, counter: WireVariable) -> str:
        """The last value of a counter."""
        own = self.expressions
        least, most = own.ranges.of(loop.extent)
        if least == most:
            return number(most - 1, counter.type)
        wide = WireType("signed", own.type_of(loop.extent).bits + 1)
        last = self.machine.variable("last", wide)
        self.machine.at_once(f"{last} := {own.text(loop.extent, wide)} - 1;")
        return last


def _bits(one: Wire) -> int:
    return one.type.bits


def _issue(condition: str, begins: Sequence[str], first: str, gap: str) -> list[str]:
    """The first stage: issue an iteration, or none."""
    otherwise = [*[f"  {first} := false;"] * bool(first)]
    if gap:
        otherwise.append(f"  if {gap} /= 0 then {gap} := {gap} - 1; end if;")
    middle = ["else", *otherwise] if otherwise else []
    return [f"if {condition} then", *(f"  {line}" for line in begins), *middle, "end if;"]


def advanced(counters: Sequence[tuple[WireVariable, str]], running: str) -> list[str]:
    """Advance the indices of a nest, innermost first; after the last iteration, clear ``running``."""
    if not counters:
        return [f"{running} := false;"]
    *outer, (made, last) = counters
    return [
        f"if {made.name} /= {last} then",
        f"  {made.name} := {made.name} + 1;",
        "else",
        f"  {made.name} := {number(0, made.type)};",
        *(f"  {line}" for line in advanced(outer, running)),
        "end if;",
    ]


def _count(loop: For) -> int | None:
    """The trip count of a loop if it is constant, else None."""
    match loop.extent:
        case Const(extent) if not isinstance(extent, Dim):
            return int(extent)
        case _:
            return None


def nest_of(loop: For) -> list[For]:
    """A loop and the perfect nest inside it, as far as trip counts are constant."""
    found = [loop]
    while len(found[-1].body) == 1 and _count(found[-1]) is not None:
        (inner,) = found[-1].body
        if not isinstance(inner, For) or not _count(inner):
            break
        found.append(inner)
    return found


def _require_apart(flow: LoopFlow, counters: Sequence[For]) -> None:
    """Require that buffers accessed in place have an element of their own per iteration."""
    made = {step.var.name for step in flow.steps if isinstance(step, FlowValue | FlowProduct | FlowRead)}
    for place in flow.places_in_place:
        found = affine(place)
        if found is None or made & set(found.strides) or len(counters) != 1 or not found.stride(counters[0].index):
            raise NotStraightError
