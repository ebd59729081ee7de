"""The sequencer's code: loop IR statements on 64-bit integers, emitted as states immediately."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from openinfer.dtypes import DTYPES, INDEX, DType
from openinfer.loops.build import cast
from openinfer.loops.intervals import Interval
from openinfer.loops.ir import BOOL, Binary, Buffer, Const, For, Let, Load, Scalar, ScalarVar, Select, SetLocal, Store
from openinfer.synth.targets.vhdl.clocks import Clocks, either
from openinfer.synth.targets.vhdl.expressions import Expressions, WireVariable
from openinfer.synth.targets.vhdl.kernel import KernelCompiler, UnitOperand
from openinfer.synth.targets.vhdl.ports import MemoryName, MemoryShape
from openinfer.synth.targets.vhdl.ranges import BOOLEAN, of_dtype, wire
from openinfer.synth.targets.vhdl.states import StateMachine

I64 = DTYPES["i64"]
U8 = DTYPES["u8"]
TRUE = Const(1, BOOL)


@dataclass(frozen=True)
class MemoryPlace:
    """Where something lies: a memory, and an address in VHDL."""

    memory: MemoryName
    base: str
    is_fixed: bool = True
    """Whether the address is a constant."""


def integer(value: int) -> Const:
    """A 64-bit constant."""
    return Const(value, I64)


def conjunction(parts: Sequence[Scalar]) -> Scalar:
    """Whether all conditions hold."""
    found: Scalar | None = None
    for one in parts:
        found = one if found is None else Binary("and", found, one)
    return TRUE if found is None else found


def disjunction(parts: Sequence[Scalar]) -> Scalar:
    """Whether any condition holds."""
    found: Scalar | None = None
    for one in parts:
        found = one if found is None else Binary("or", found, one)
    return Const(0, BOOL) if found is None else found


@dataclass
class SequencerCode:
    """Emits the sequencer's states."""

    shape: MemoryShape
    in_logic: bool = False
    """Whether products are adders in logic."""
    machine: StateMachine = field(default_factory=StateMachine)
    _count: int = 0

    def __post_init__(self) -> None:
        self.expressions = Expressions(in_logic=self.in_logic)
        self.compiler = KernelCompiler(self.machine, {}, self.shape, self.expressions)
        self.failed = self.machine.fresh()
        """The state that failures jump to."""

    def name(self, what: str) -> str:
        """A unique name."""
        self._count += 1
        return f"{what}{self._count}"

    # --- variables ------------------------------------------------------------------------------------------------

    def let(self, value: Scalar, what: str = "n") -> Scalar:
        """Compute a value now; constants and names are returned as they are."""
        if isinstance(value, Const | ScalarVar):
            return value
        var = ScalarVar(self.name(what), value.dtype)
        self.compiler.statement(Let(var, value))
        return var

    def local(self, value: Scalar, ends: Interval | None = None, what: str = "n") -> ScalarVar:
        """Declare a mutable variable that stays within an interval."""
        var = ScalarVar(self.name(what), value.dtype)
        within = of_dtype(value.dtype) if ends is None else ends
        type_ = BOOLEAN if value.dtype is BOOL else wire(value.dtype, within)
        made = WireVariable(self.machine.variable(what, type_), type_)
        self.expressions.declare(var, made, within)
        self.set(var, value)
        return var

    def set(self, var: ScalarVar, value: Scalar) -> None:
        """Assign to a variable."""
        self.compiler.statement(SetLocal(var, value))

    def text(self, value: Scalar, bits: int) -> str:
        """A value as an unsigned address or port of a given width."""
        (ready,) = self.compiler.ready([value])
        return f"oi_u({self.expressions.value(ready).text}, {bits})"

    def wired(self, value: Scalar, to: WireVariable) -> str:
        """A value in the type of a port."""
        (ready,) = self.compiler.ready([value])
        return self.expressions.text(ready, to.type)

    # --- memory ---------------------------------------------------------------------------------------------------

    def buffer(self, place: MemoryPlace, dtype: DType, count: int) -> Buffer:
        """Memory viewed as elements of a dtype."""
        found = Buffer(self.name("m"), dtype, (max(count, 1),))
        self.compiler.operands[found.name] = UnitOperand(place.memory, place.base)
        return found

    def load(self, buffer: Buffer, at: Scalar) -> Scalar:
        """Load an element."""
        return Load(buffer, (cast(at, INDEX),))

    def store(self, buffer: Buffer, at: Scalar, value: Scalar) -> None:
        """Store an element."""
        self.compiler.statement(Store(buffer, (cast(at, INDEX),), value))

    def scalar(self, place: MemoryPlace, dtype: DType) -> Scalar:
        """Load a scalar."""
        return self.let(self.load(self.buffer(place, dtype, 1), integer(0)))

    def copy(self, source: MemoryPlace, target: MemoryPlace, nbytes: Scalar, most: int) -> None:
        """Copy bytes; in whole words if the count is known to be a multiple of a word."""
        width = min(self.shape.ram_bytes, self.shape.rom_bytes if source.memory == "rom" else self.shape.ram_bytes)
        if not isinstance(nbytes, Const) or int(nbytes.value) % width:
            width = 1
        dtype = DTYPES[f"u{8 * width}"]
        one, other = (self.buffer(each, dtype, most) for each in (source, target))
        index = ScalarVar(self.name("i"))
        count = Const(int(nbytes.value) // width, INDEX) if isinstance(nbytes, Const) else cast(nbytes, INDEX)
        self.compiler.statement(For(index, count, (Store(other, (index,), Load(one, (index,))),)))

    def fill(self, target: MemoryPlace, dtype: DType, count: int, element: int) -> None:
        """Set all elements to one value, given as its stored bits; packed elements fill whole bytes."""
        bits = max(dtype.bits, 8)
        if dtype.bits < 8:
            count = -(-count * dtype.bits // 8)
            element = sum(element << at for at in range(0, 8, dtype.bits))
        own = DTYPES[f"u{bits}"]
        buffer, index = self.buffer(target, own, count), ScalarVar(self.name("i"))
        self.compiler.statement(For(index, Const(count, INDEX), (Store(buffer, (index,), Const(element, own)),)))

    # --- control flow ---------------------------------------------------------------------------------------------

    @contextmanager
    def when(self, condition: Scalar) -> Iterator[None]:
        """Run the body only if a condition holds."""
        inside, after = self.machine.fresh(), self.machine.fresh()
        (ready,) = self.compiler.ready([condition])
        self.machine.branch(self.expressions.text(ready, BOOLEAN), inside, after)
        before, self.machine.clocks = self.machine.clocks, Clocks()
        self.machine.enter(inside)
        yield
        taken = [Clocks()]
        if self.machine.now is not None:
            self.machine.goto(after)
            taken.append(self.machine.clocks)
        self.machine.clocks = before + either(taken)
        self.machine.enter(after)

    @contextmanager
    def count(self, start: Scalar, end: Scalar, ends: Interval) -> Iterator[ScalarVar]:
        """Run the body for a variable that counts from ``start`` up to ``end``; the start may exceed the end."""
        start, last = self.let(start), self.let(end)
        first, final = self.expressions.ranges.of(start), self.expressions.ranges.of(last)
        index = self.local(start, (min(ends[0], first[0]), max(ends[1] + 1, first[1])), "i")
        self.machine.step()
        again, inside, after = self.machine.label(), self.machine.fresh(), self.machine.fresh()
        self.machine.branch(self.expressions.text(index < last, BOOLEAN), inside, after)
        before, self.machine.clocks = self.machine.clocks, Clocks.of(1)
        self.machine.enter(inside)
        yield index
        if self.machine.now is not None:
            self.set(index, index + 1)
            self.machine.goto(again)
        trips = Clocks(max(final[0] - first[1], 0), max(final[1] - first[0], 0))
        self.machine.clocks = before + self.machine.clocks * trips
        self.machine.enter(after)

    def fail(self, number: int) -> None:
        """End the step with a failure."""
        self.machine.at_once(f"failure <= to_unsigned({number}, 16);")
        self.machine.goto(self.failed)

    def fail_if(self, condition: Scalar, number: int) -> None:
        """End the step with a failure if a condition holds."""
        with self.when(condition):
            self.fail(number)


def looked_up(numbers: Sequence[int], at: Scalar, first: int = 0) -> Scalar:
    """The list element at a position, counted from ``first``, as a binary tree of selects."""
    if len(set(numbers)) == 1:
        return integer(numbers[0])
    half = len(numbers) // 2
    lower, upper = looked_up(numbers[:half], at, first), looked_up(numbers[half:], at, first + half)
    return Select(at < first + half, lower, upper)
