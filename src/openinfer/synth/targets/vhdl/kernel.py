"""Kernels as state machines: loops are counters, and each statement takes as many states as it needs.

Expressions are computed within one clock, except for what takes longer: memory reads, long products, divisions. These
are computed beforehand, into variables, innermost first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from openinfer.loops.expand import expanded
from openinfer.loops.intervals import Interval
from openinfer.loops.ir import (
    INDEX,
    Alloc,
    Binary,
    Buffer,
    Contraction,
    Fail,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Scalar,
    ScalarVar,
    SetLocal,
    Statement,
    Store,
    While,
    children,
    rebuilt,
)
from openinfer.loops.locals import local_ranges
from openinfer.loops.used import offset
from openinfer.synth.targets.vhdl.clocks import Clocks, either
from openinfer.synth.targets.vhdl.divide import divide
from openinfer.synth.targets.vhdl.expressions import Expressions, Wire, WireVariable, number
from openinfer.synth.targets.vhdl.names import plain
from openinfer.synth.targets.vhdl.pipeline import (
    LoopPipeline,
    SharedProduct,
    StageMemory,
    is_division,
    is_long_product,
    nest_of,
)
from openinfer.synth.targets.vhdl.ports import (
    MemoryName,
    MemoryShape,
    element_code,
    element_type,
    places_bits,
    read_element,
    size_code,
)
from openinfer.synth.targets.vhdl.ranges import BOOLEAN, WireType, of_dtype, unwrapped, wire
from openinfer.synth.targets.vhdl.stages import LATENCY
from openinfer.synth.targets.vhdl.states import StateMachine


@dataclass(frozen=True)
class UnitOperand:
    """Where a kernel buffer lies: a memory, and its base address in VHDL."""

    memory: MemoryName
    base: str


@dataclass
class KernelCompiler:
    """Fills a state machine with the statements of a kernel."""

    machine: StateMachine
    operands: dict[str, UnitOperand]
    """By buffer name."""
    shape: MemoryShape
    expressions: Expressions
    end: int = 0
    """The state that follows the last one or a failure."""
    product: SharedProduct | None = None
    """The shared multiplier for long products, if these are in logic."""

    locals: dict[str, Interval] = field(default_factory=dict)
    """Ranges of mutable index variables."""

    def __post_init__(self) -> None:
        memory = StageMemory(lambda name: self.operands[name].memory, self._address, self.word, self.product)
        self._pipeline = LoopPipeline(self.machine, self.expressions, memory, self.shape.has_write_port)

    def run(self, kernel: Kernel) -> None:
        """Compile a kernel."""
        self.locals |= local_ranges(kernel.body)
        self._body(kernel.body)

    # --- statements -----------------------------------------------------------------------------------------------

    def _body(self, statements: Sequence[Statement]) -> None:
        """Compile statements in a scope of their own."""
        own = self.expressions
        before, known = dict(own.variables), dict(own.known)
        for statement in statements:
            self.statement(statement)
        # Leave the scope: only names declared outside remain visible.
        own.variables.clear()
        own.variables.update(before)
        own.known.clear()
        own.known.update(known)
        own.ranges.forget()

    def statement(self, statement: Statement) -> None:
        """Compile a statement."""
        match statement:
            case For():
                self._for(statement)
            case While(cond, body):
                self._while(cond, body)
            case If(cond, then, otherwise):
                self._if(cond, then, otherwise)
            case Let(var, value) | Local(var, value):
                self._declare(var, value, is_fixed=isinstance(statement, Let))
            case SetLocal(var, value):
                (ready,) = self.ready([value])
                made = self.expressions.variables[var.name]
                self.machine.line(f"{made.name} := {self._given(ready, made)};", _cost(ready))
            case Store():
                self._store(statement)
            case Alloc():
                pass
            case Fail():
                self.machine.at_once("failed <= '1';")
                self.machine.goto(self.end)
            case Contraction():
                self._body(expanded(statement))
            case _:
                raise TypeError(statement)

    def _declare(self, var: ScalarVar, value: Scalar, *, is_fixed: bool) -> None:
        own = self.expressions
        (ready,) = self.ready([value])
        if var.dtype.kind == "float":
            storage = own.storage_of(ready)
            made = WireVariable(
                self.machine.variable(plain(var.name), f"unsigned({storage.bits - 1} downto 0)"),
                WireType("unsigned", storage.bits),
                storage,
            )
            ends = None
        else:
            ends = self._range(var, ready, is_fixed=is_fixed)
            type_ = BOOLEAN if var.dtype.kind == "bool" else wire(var.dtype, ends)
            made = WireVariable(self.machine.variable(plain(var.name), type_), type_)
        self.machine.line(f"{made.name} := {self._given(ready, made)};", _cost(ready))
        own.declare(var, made, ends)

    def _range(self, var: ScalarVar, value: Scalar, *, is_fixed: bool) -> Interval:
        """The range of a variable over its lifetime."""
        if is_fixed:
            return self.expressions.ranges.of(value)
        full = of_dtype(var.dtype)
        found = self.locals.get(var.name, full) if var.dtype is INDEX else full
        first = self.expressions.ranges.of(value)
        return min(found[0], first[0]), max(found[1], first[1])

    def _given(self, value: Scalar, made: WireVariable) -> str:
        if made.storage is not None:
            return self.expressions.moved(value, made.storage)
        return self.expressions.text(value, made.type)

    def _for(self, loop: For) -> None:
        machine, own = self.machine, self.expressions
        (extent,) = self.ready([loop.extent])
        least, most = own.ranges.of(extent)
        if most < 1:
            return
        loop = replace(loop, extent=extent)
        nest = nest_of(loop)
        if any(self._pipeline.run(one) for one in dict.fromkeys((tuple(nest), tuple(nest[:1])))):
            return
        ends = (0, most - 1)
        type_ = wire(INDEX, ends)
        index = WireVariable(machine.variable(plain(loop.index.name), type_), type_)
        after, last = machine.fresh(), number(most - 1, type_)
        machine.line(f"{index.name} := {number(0, type_)};")
        if least != most:
            wide = WireType("signed", own.type_of(extent).bits + 1)
            last = machine.variable("last", wide)
            machine.line(f"{last} := {own.text(extent, wide)} - 1;")
            body = machine.fresh()
            machine.branch(f"{last} < 0", after, body)
            machine.enter(body)
        start = machine.label()
        outside, machine.clocks = machine.clocks, Clocks.of(1)
        before = own.variables.get(loop.index.name), own.known.get(loop.index.name)
        own.declare(loop.index, index, ends)
        self._body(loop.body)
        if machine.now is not None:
            again = f"{index.name} := {index.name} + 1;"
            machine.branch(f"{index.name} /= {last}", start, after, (again,))
        own.variables.pop(loop.index.name)
        if before[0] is not None:
            own.declare(loop.index, before[0], before[1])
        machine.now = None
        machine.clocks = machine.clocks * Clocks(max(least, 0), most) + outside.without_last()
        machine.enter(after)

    def _while(self, cond: Scalar, body: tuple[Statement, ...]) -> None:
        machine = self.machine
        machine.step()
        start = machine.label()
        (ready,) = self.ready([cond])
        inside, after = machine.fresh(), machine.fresh()
        machine.branch(self.expressions.text(ready, BOOLEAN), inside, after)
        least = machine.clocks.least
        machine.enter(inside)
        self._body(body)
        if machine.now is not None:
            machine.goto(start)
        machine.clocks = Clocks(least, None)
        machine.enter(after)

    def _if(self, cond: Scalar, then: tuple[Statement, ...], otherwise: tuple[Statement, ...]) -> None:
        machine = self.machine
        (ready,) = self.ready([cond])
        yes, after = machine.fresh(), machine.fresh()
        no = machine.fresh() if otherwise else after
        machine.branch(self.expressions.text(ready, BOOLEAN), yes, no)
        before, taken = machine.clocks, [] if otherwise else [Clocks()]
        for state, body in ((yes, then), (no, otherwise)):
            if body or state == yes:
                machine.clocks = Clocks()
                machine.enter(state)
                self._body(body)
                if machine.now is not None:
                    machine.goto(after)
                    taken.append(machine.clocks)
        machine.clocks = before + either(taken)
        machine.enter(after)

    # --- memory ---------------------------------------------------------------------------------------------------

    def _store(self, store: Store) -> None:
        machine, own, dtype = self.machine, self.expressions, store.buffer.dtype
        place, value = self.ready([offset(store.buffer, store.index), store.value])
        operand = self.operands[store.buffer.name]
        assert operand.memory == "ram", "weights are not written"
        if dtype.kind == "float":
            made = Wire(own.moved(value, dtype), WireType("unsigned", dtype.bits))
        else:
            made = own.value(value)
        if dtype.bits < 8:
            self._put_field(store.buffer, place, made, _cost(value))
            return
        code = element_code(dtype, made)
        machine.room(_cost(value))
        machine.request("ram")
        machine.at_once(f"ram_wdata <= {self.word(code, dtype.itemsize * 8)};")
        machine.at_once(f"ram_waddr <= {self._address(store.buffer, place)};")
        machine.at_once(f"ram_size <= {size_code(dtype.itemsize)};")
        machine.at_once("ram_write <= '1';")

    def word(self, code: str, bits: int) -> str:
        """A vector padded to the width of a word; the padding is ignored."""
        rest = 8 * self.shape.ram_bytes - bits
        return code if rest == 0 else f'"{"0" * rest}" & {code}'

    def _put_field(self, buffer: Buffer, place: Scalar, value: Wire, cost: int) -> None:
        """Store an element that shares its byte: read the byte, and write it back with that element changed."""
        machine, bits = self.machine, places_bits(buffer.dtype)
        kept = machine.variable("code", f"std_logic_vector({buffer.dtype.bits - 1} downto 0)")
        number_ = machine.variable("place", f"unsigned({bits - 1} downto 0)")
        at = machine.variable("at", f"unsigned({self.shape.ram_bits - 1} downto 0)")
        machine.line(f"{kept} := {element_code(buffer.dtype, value)};", cost)
        machine.line(f"{number_} := {self.expressions.text(place, WireType('unsigned', bits))};")
        machine.request("ram")
        machine.at_once(f"{at} := {self._address(buffer, place)};")
        machine.at_once(f"ram_addr <= {at};")
        machine.step()
        machine.step()
        machine.request("ram")
        made = f"oi_put(ram_q(7 downto 0), {number_}, {kept})"
        machine.at_once(f"ram_wdata <= {self.word(made, 8)};")
        machine.at_once(f"ram_waddr <= {at};")
        machine.at_once(f"ram_size <= {size_code(1)};")
        machine.at_once("ram_write <= '1';")

    def _address(self, buffer: Buffer, place: Scalar) -> str:
        return self.address(buffer, place, self.expressions)

    def address(self, buffer: Buffer, place: Scalar, expressions: Expressions) -> str:
        """The address of the first byte of an element."""
        operand = self.operands[buffer.name]
        wide = WireType("unsigned", self.shape.address_bits(operand.memory))
        bits = buffer.dtype.bits
        if bits < 8:
            made = expressions.value(place)
            text = Wire(f"shift_right({made.text}, {places_bits(buffer.dtype)})", made.type).to(wide)
        else:
            text = expressions.text(place, wide)
            by = buffer.dtype.itemsize.bit_length() - 1
            text = f"shift_left({text}, {by})" if by else text
        return f"{text} + {operand.base}"

    # --- values computed beforehand -------------------------------------------------------------------------------

    def ready(self, values: Sequence[Scalar]) -> list[Scalar]:
        """Compute everything in expressions that takes states of its own; returns them with variables in its place."""
        found = [unwrapped(value, self.expressions.ranges) for value in values]
        while True:
            batch: dict[Scalar, None] = {}
            for value in found:
                self._collect(value, batch)
            if not batch:
                return found
            made = self._computed(list(batch))
            found = [_with(value, made) for value in found]

    def _collect(self, value: Scalar, batch: dict[Scalar, None]) -> bool:
        """Collect what must be computed next; returns whether there is anything."""
        inside = [self._collect(part, batch) for part in children(value)]
        if any(inside):
            return True
        if self._is_long(value):
            batch[value] = None
            return True
        return False

    def _is_long(self, value: Scalar) -> bool:
        own = self.expressions
        return isinstance(value, Load) or is_long_product(own, value) or is_division(own, value)

    def _computed(self, batch: list[Scalar]) -> dict[Scalar, Scalar]:
        made: dict[Scalar, Scalar] = {}
        loads = [one for one in batch if isinstance(one, Load)]
        self._read(loads, made)
        for one in batch:
            match one:
                case Binary("mul"):
                    var, own = self._temporary(one)
                    wire_ = self.expressions.value(one)
                    self.machine.step()
                    self.machine.line(f"{own.name} := {wire_.text};", 8)
                    self.machine.step()
                    made[one] = var
                case Binary():
                    var, own = self._temporary(one)
                    divide(self.machine, self.expressions, one, own)
                    made[one] = var
        return made

    def _temporary(self, value: Scalar) -> tuple[ScalarVar, WireVariable]:
        """A variable for a value computed before the rest of its expression."""
        if value.dtype.kind == "float":
            assert isinstance(value, Load)
            storage = value.buffer.dtype
            made = WireVariable(self.machine.variable("read", element_type(storage)), element_type(storage), storage)
            ends = None
        elif isinstance(value, Load):
            made = WireVariable(
                self.machine.variable("read", element_type(value.buffer.dtype)), element_type(value.buffer.dtype)
            )
            ends = None if value.dtype.kind == "bool" else of_dtype(value.buffer.dtype)
        else:
            type_ = self.expressions.type_of(value)
            made = WireVariable(self.machine.variable("made", type_), type_)
            ends = self.expressions.ranges.of(value)
        var = ScalarVar(f"${made.name}", value.dtype)
        self.expressions.declare(var, made, ends)
        return var, made

    def _read(self, loads: list[Load], made: dict[Scalar, Scalar]) -> None:
        """Request elements, one per clock and memory, and take the responses."""
        machine, own = self.machine, self.expressions
        waiting: dict[str, list[Load]] = {"ram": [], "rom": []}
        for one in loads:
            waiting[self.operands[one.buffer.name].memory].append(one)
        asked: list[list[tuple[Load, str | None]]] = []
        answered = 0
        while answered < len(loads):
            now: list[tuple[Load, str | None]] = []
            for memory, queue in waiting.items():
                if queue:
                    now.append(self._ask(memory, queue.pop(0)))
            asked.append(now)
            if len(asked) > LATENCY:
                for load, place in asked[-1 - LATENCY]:
                    var, into = self._temporary(load)
                    text = read_element(self.operands[load.buffer.name].memory, load.buffer.dtype, place)
                    machine.at_once(f"{into.name} := {text};")
                    made[load] = var
                    answered += 1
            if answered < len(loads):
                machine.step()
        own.ranges.forget()

    def _ask(self, memory: str, load: Load) -> tuple[Load, str | None]:
        buffer, place = load.buffer, None
        self.machine.request(memory)
        at = offset(buffer, load.index)
        if buffer.dtype.bits < 8:
            bits = places_bits(buffer.dtype)
            place = self.machine.variable("place", f"unsigned({bits - 1} downto 0)")
            self.machine.at_once(f"{place} := {self.expressions.text(at, WireType('unsigned', bits))};")
        self.machine.at_once(f"{memory}_addr <= {self._address(buffer, at)};")
        return load, place


def _with(value: Scalar, made: dict[Scalar, Scalar]) -> Scalar:
    """An expression with some subexpressions replaced."""
    if value in made:
        return made[value]
    parts = children(value)
    return rebuilt(value, tuple(_with(part, made) for part in parts)) if parts else value


def _cost(value: Scalar) -> int:
    """Rough length of the longest chain of operations."""
    own = 2 if isinstance(value, Binary) and value.dtype.bits > 32 else 1
    return own + max((_cost(part) for part in children(value)), default=0)
