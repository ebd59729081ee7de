"""The sequencer: a state machine that runs the steps of a program in order.

Blocks are inlined wherever they are called. Kernels are entities of their own, which the sequencer starts and waits
for; everything else it does itself.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

from openinfer.errors import Diagnostic
from openinfer.loops.ir import Const, Scalar
from openinfer.loops.text import kernel_text
from openinfer.synth.memory.checks.records import (
    AsideSizes,
    CallChecks,
    ChosenTensor,
    EntryChecks,
    ExtentChecks,
    IntegerChecks,
    JoinedSizes,
    KernelChecks,
    LoopChecks,
    MoveChecks,
    NoChecks,
    SliceChecks,
    StepChecks,
)
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.state import element_bits
from openinfer.synth.memory.table_access import TableAccess
from openinfer.synth.program.integers import Computed
from openinfer.synth.program.ir import (
    Action,
    BindSize,
    BlockParams,
    BranchStep,
    CallStep,
    EntryStep,
    Fence,
    IntegerStep,
    JoinSizes,
    KernelStep,
    LoopStep,
    Mark,
    Move,
    PartStep,
    RefuseSizes,
    RequireSize,
    Step,
    TableStep,
    Value,
    Weight,
    WeightCheck,
)
from openinfer.synth.targets.vhdl.clocks import Clocks
from openinfer.synth.targets.vhdl.code import I64, MemoryPlace, SequencerCode, disjunction, integer, looked_up
from openinfer.synth.targets.vhdl.expressions import Expressions, UncomputableError
from openinfer.synth.targets.vhdl.frame import BlockFrame, ProgramNames
from openinfer.synth.targets.vhdl.integers import FoundInteger, IndexCode
from openinfer.synth.targets.vhdl.lanes import LaneUnit
from openinfer.synth.targets.vhdl.map import CircuitMap
from openinfer.synth.targets.vhdl.names import plain
from openinfer.synth.targets.vhdl.operands import OperandCode
from openinfer.synth.targets.vhdl.ports import MemoryName
from openinfer.synth.targets.vhdl.require import refusal
from openinfer.synth.targets.vhdl.sizes import SizeCode
from openinfer.synth.targets.vhdl.slices import CellGrid, SliceCode
from openinfer.synth.targets.vhdl.tables import TableCode
from openinfer.synth.targets.vhdl.traces import TraceStops
from openinfer.synth.targets.vhdl.unit import KernelUnit, UnitCall

_HANDSHAKE = 2
"""Clocks of a kernel call's handshake, in addition to the kernel's own."""


class Sequencer:
    """Writes the states of a program, and the kernels that they start."""

    def __init__(self, placed: Placed, places: CircuitMap, name: str, *, in_logic: bool) -> None:
        self.placed = placed
        self._in_logic = in_logic
        self.places = places
        self.units: dict[object, KernelUnit] = {}
        self.problems: list[Diagnostic] = []
        """Errors of nodes that no circuit can compute."""
        self.code = SequencerCode(places.shape, in_logic)
        self.name = name
        self._program = placed.program
        self._names = ProgramNames(placed, places, self.code)
        self.traces = TraceStops(placed, self.code, self._names)
        self._sizes = SizeCode(placed.program, self.code, self._names)
        self._indices = IndexCode(self.code, self._names.named)
        self._operands = OperandCode(placed, places, self.code, self._names)
        self._slices = SliceCode(self.code, self._sizes, self._indices)
        self._tables = {
            key: TableCode(layout, places, self.code, self._slices) for key, layout in placed.state.tables.items()
        }
        self._run()

    def _run(self) -> None:
        code, places, machine = self.code, self.places, self.code.machine
        end = machine.fresh()
        machine.states[0].append("if start = '1' then failed <= '0'; busy <= '1'; state <= 1; end if;")
        for size in self._program.sizes:
            first = code.scalar(places.size(size), I64)
            self._names.sizes[size] = code.local(first, (-1, max(self._program.sizes[size], 1)), "size")
        if places.keeps_state:
            nbytes = integer(places.state_bytes)
            code.copy(places.at(0), places.at(places.kept_at), nbytes, places.state_bytes)
        checks = self.placed.checks.blocks["entry"]
        self.traces.begin("entry")
        self._body(self._program.blocks["entry"], checks.steps)
        for size, own in self._names.sizes.items():
            code.store(code.buffer(places.size(size), I64, 1), integer(0), own)
        machine.goto(end)
        succeeded = machine.clocks
        machine.enter(code.failed)
        machine.at_once("failed <= '1';")
        if places.keeps_state:
            nbytes = integer(places.state_bytes)
            code.copy(places.at(places.kept_at), places.at(0), nbytes, places.state_bytes)
        machine.goto(end)
        machine.clocks = succeeded
        machine.enter(end)
        machine.step()  # the last request must reach memory before the host may access it
        machine.at_once("busy <= '0';")
        machine.goto(0)

    @property
    def clocks(self) -> Clocks:
        """The clocks of a step that does not fail, as the circuit's own counter has them."""
        return self.code.machine.clocks

    @property
    def products(self) -> list[tuple[int, int]]:
        """The factor widths of products that need multipliers, besides those of the lanes."""
        own = [self.code.expressions, *(unit.expressions for unit in self.units.values())]
        return [one for each in own for one in each.products.values()]

    # --- steps ----------------------------------------------------------------------------------------------------

    def _body(self, steps: Sequence[Step], checks: Sequence[StepChecks]) -> None:
        for step, checked in zip(steps, checks, strict=True):
            if isinstance(step, Mark):
                self.traces.mark(step)
                continue
            # A call counts as executed when its block begins; its arguments are checked before that.
            self.traces.stop(call=step.node if isinstance(checked, CallChecks) else None)
            self._step(step, checked)
            self.traces.follow(step)
        self.traces.stop()

    def _step(self, step: Step, checks: StepChecks) -> None:
        match step, checks:
            case KernelStep() as kernel, KernelChecks() as own:
                fill = partial(self._fill, kernel.outputs[0])
                self._sizes.if_known(own.when, partial(self._kernel, kernel, own), fill)
            case Move() as move, MoveChecks() as own:
                whole = partial(self._move, move, own, is_whole=True)
                self._sizes.if_known(own.when, partial(self._move, move, own, is_whole=False), whole)
            case LoopStep() as loop, LoopChecks() as own:
                self._loop(loop, own)
            case BranchStep() as branch, _:
                self._branch(branch)
            case BindSize(found=found), ExtentChecks(own):
                self._sizes.check(own, self._sizes.extent(found))
            case ((RequireSize() | RefuseSizes()), ExtentChecks(own)):
                self._sizes.check(own)
            case CallStep() as call, AsideSizes(sizes):
                self._consumer(call, sizes)
            case CallStep() as call, CallChecks() as own:
                self._call(call, own)
            case JoinSizes(block=block), JoinedSizes(failure):
                self._join_sizes(block, failure)
            case TableStep() as table, SliceChecks() as own:
                self._table(table, own)
            case TableStep() as table, NoChecks():
                self._tables[table.table.variable.name].clear()
            case PartStep() as part, SliceChecks() as own:
                self._part(part, own)
            case EntryStep() as entry, EntryChecks(chosen):
                self._entry(entry, chosen)
            case WeightCheck() as check, EntryChecks(chosen):
                self._weight_check(check, chosen)
            case IntegerStep() as integer_step, IntegerChecks() as own:
                self._integer(integer_step, own)
            case ((Fence() | Move()), NoChecks()):
                pass
            case _:
                raise TypeError(step, checks)

    def _kernel(self, step: KernelStep, checks: KernelChecks) -> None:
        code, machine = self.code, self.code.machine
        self._sizes.check(checks.extents)
        places = [self._input(step, at, own) for at, own in enumerate(checks.inputs)]
        places += [self._names.place(one) for one in (*step.outputs, *step.scratch)]
        try:
            unit = self._unit(step, tuple(one.memory for one in places))
        except UncomputableError as error:
            self.problems.append(refusal(self._program.bound, step, str(error)))
            return
        told = [(port, self._sizes.extent(extent)) for extent, port in unit.extents()]
        machine.step()
        for port, value in told:
            machine.line(f"{unit.name}_{port.name} <= {code.wired(value, port)};", 1)
        machine.step()
        state = machine.label()
        machine.at_once(f"{unit.name}_start <= '1';")
        unit.calls.append(UnitCall(state, tuple(places)))
        unit.steps.append(step)
        wait, after = machine.fresh(), machine.fresh()
        machine.enter(wait)
        machine.branch(f"{unit.name}_done = '1'", after, wait)
        machine.clocks += unit.clocks + Clocks.of(_HANDSHAKE - 1)
        machine.enter(after)
        if checks.failure is not None:
            failed, good = machine.fresh(), machine.fresh()
            machine.branch(f"{unit.name}_failed = '1'", failed, good)
            succeeded = machine.clocks
            machine.enter(failed)
            code.fail(checks.failure)
            machine.clocks = succeeded
            machine.enter(good)

    def _unit(self, step: KernelStep, memories: tuple[MemoryName, ...]) -> KernelUnit:
        """The entity of a kernel; calls of one kernel share it if their operands lie in the same memories."""
        text = kernel_text(step.kernel)
        key = text, memories
        if key not in self.units:
            name = f"{self.name}_k{len(self.units)}_{plain(step.kernel.name)}"
            contents = self.places.contents.by_kernel.get(text, {})
            expressions = Expressions(contents=contents, in_logic=self._in_logic)
            shape = self.places.shape
            if "lanes" in memories:
                assert self.places.lanes is not None
                product = self.places.lanes.products[text]
                self.units[key] = LaneUnit(name, step.kernel, memories, shape, expressions, terms=product)
            else:
                self.units[key] = KernelUnit(name, step.kernel, memories, shape, expressions)
        return self.units[key]

    def _input(self, step: KernelStep, at: int, checks: ChosenTensor | None) -> MemoryPlace:
        """Where a kernel input lies; weights of lanes are in the lanes' own memory."""
        operand, lanes = step.inputs[at], self.places.lanes
        product = None if lanes is None else lanes.products.get(kernel_text(step.kernel))
        if product is not None and at == product.weight_at:
            assert isinstance(operand, Weight)
            return self.places.on_lanes(kernel_text(step.kernel), operand)
        return self._operands.place(operand, checks)

    def _fill(self, value: Value) -> None:
        """Fill all memory that a variable can need with its initial value."""
        element = element_bits(value.dtype, self._program.bound.vars[str(value.variable)].origin)
        count = value.nbytes * 8 // value.dtype.bits
        self.code.fill(self._names.place(value), value.dtype, count, element)

    def _move(self, step: Move, checks: MoveChecks, *, is_whole: bool) -> None:
        if not is_whole:
            self._sizes.check(checks.extents)
        source = self._operands.place(step.src, checks.source)
        nbytes = integer(step.dst.nbytes) if is_whole else self._sizes.nbytes(step.dst)
        self.code.copy(source, self._names.place(step.dst), nbytes, step.dst.nbytes)

    def _integer(self, step: IntegerStep, checks: IntegerChecks) -> None:
        self._sizes.check(checks.sizes)
        self._indices.begin()
        found = self._indices.integer(step.expr).value
        self.code.store(self.code.buffer(self._names.place(step.value), I64, 1), integer(0), found)
        if checks.failure is not None:
            self._indices.fail_if_bad(checks.failure)

    # --- control flow ---------------------------------------------------------------------------------------------

    def _loop(self, step: LoopStep, checks: LoopChecks) -> None:
        self._indices.begin()
        start, end = self._indices.integer(step.start), self._indices.integer(step.end)
        if checks.bounds is not None:
            self._indices.fail_if_bad(checks.bounds)
        least, most = start.range.least, max(end.range.most - 1, start.range.least)
        with self.code.count(start.value, end.value, (least, most)) as index:
            self._names.frame.loops.append((step.index, FoundInteger(index, Computed(least, most))))
            self._body(step.body, checks.body)
            self._names.frame.loops.pop()

    def _branch(self, step: BranchStep) -> None:
        code, machine = self.code, self.code.machine
        if step.cond is None:
            self._block(step.then_block, BlockFrame())
            return
        condition = code.scalar(self._names.place(step.cond), step.cond.dtype)
        is_true = condition if condition.dtype.kind == "bool" else condition.ne(0)
        is_kept = code.let(is_true)
        with code.when(is_kept):
            self._block(step.then_block, BlockFrame())
        if step.else_block is not None:
            with code.when(~is_kept):
                self._block(step.else_block, BlockFrame())
        assert machine.now is not None

    def _block(self, name: str, frame: BlockFrame) -> None:
        """Inline a block."""
        before, self._names.frame = self._names.frame, frame
        self.traces.begin(name)
        self._body(self._program.blocks[name], self.placed.checks.blocks[name].steps)
        self._names.frame = before

    def _call(self, step: CallStep, checks: CallChecks) -> None:
        self._sizes.check(checks.sizes)
        params = self._program.params.get(step.block, BlockParams())
        places = [self._operands.place(one, own) for one, own in zip(step.args, checks.args, strict=True)]
        places += [self._names.place(one) for one in step.results]
        self._indices.begin()
        found = [self._indices.integer(one) for one in step.integers]
        if checks.failure is not None:
            self._indices.fail_if_bad(checks.failure)
        root = self.placed.memory.classes.root
        given = {root(one): place for one, place in zip((*params.args, *params.results), places, strict=True)}
        integers = {
            index.name: (index, FoundInteger(one.value, Computed(index.least, index.most)))
            for index, one in zip(params.indices, found, strict=True)
        }
        loops = [(name, one) for name, (index, one) in integers.items() if not index.is_chosen]
        chosen = {name: one for name, (index, one) in integers.items() if index.is_chosen}
        self.traces.stop()
        self._block(step.block, BlockFrame(given, chosen, loops))

    def _consumer(self, step: CallStep, sizes: Sequence[str]) -> None:
        """Run a consumer and set aside the sizes it binds: what entry knows must not depend on the schedule."""
        code, own = self.code, self._names.sizes
        kept = {size: code.local(own[size], (-1, self._program.sizes[size])) for size in sizes}
        self._block(step.block, BlockFrame())
        aside = []
        for size in sizes:
            aside.append((size, code.local(own[size], (-1, self._program.sizes[size]))))
            code.set(own[size], kept[size])
        self._names.frame.aside[step.block] = aside

    def _join_sizes(self, block: str, failure: int | None) -> None:
        if failure is None:
            return
        for size, found in self._names.frame.aside[block]:
            own = self._names.sizes[size]
            with self.code.when(own < 0):
                self.code.set(own, found)
            with self.code.when(found >= 0):
                self.code.fail_if(found.ne(own), failure)

    # --- tables and slices ----------------------------------------------------------------------------------------

    def _tensor(self, value: Value) -> CellGrid:
        """A value as a grid of elements."""
        most = value.nbytes * 8 // value.dtype.bits
        return CellGrid(self._names.place(value), value.dtype, (), most)

    def _table(self, step: TableStep, checks: SliceChecks) -> None:
        own = self._tables[step.table.variable.name]
        access = TableAccess(self.placed.state.tables[step.table.variable.name], step)
        computed = self._slices.computed(step.indices, checks)
        picked = own.pick(access, computed)
        own.fail_outside(picked, access, computed, checks)
        if step.action is Action.RESET:
            own.reset(picked.cells, is_whole=access.is_whole_matrix)
            return
        value = step.value
        assert value is not None
        self._slices.lengths(checks.lengths, picked.cells)
        self._sizes.check(checks.extents)
        most = [2**31] * len(picked.cells)
        if step.action is Action.WRITE:
            own.write(picked.cells, self._tensor(value), most)
        elif step.action is Action.READ and value in self.placed.memory.views:
            self._names.views[value] = self._operands.dynamic("ram", own.first(picked.cells))
        elif step.action is Action.READ:
            own.read(picked.cells, self._tensor(value), most)

    def _part(self, step: PartStep, checks: SliceChecks) -> None:
        code, whole = self.code, step.whole
        self._sizes.check(checks.whole)
        shape = [self._sizes.extent(one) for one in whole.shape]
        computed = self._slices.computed(step.indices, checks)
        cells = [
            self._slices.chosen(index, computed, extent, 0, is_grown=False)
            for index, extent in zip(step.indices, shape, strict=True)
        ]
        wrong: list[Scalar] = []
        for one, extent in zip(cells, shape, strict=True):
            wrong += [one.is_wrong, one.end > extent]
        is_outside = code.let(disjunction(wrong))
        self._slices.fail_outside(is_outside, step.indices, computed, checks, shape)
        self._slices.lengths(checks.lengths, cells)
        self._sizes.check(checks.extents)
        if step.action is Action.CHECK:
            return
        fill, value = 0, None
        if step.value is None:
            assert isinstance(whole, Value), "weights are not reset"
            fill = element_bits(whole.dtype, self._program.bound.vars[str(whole.variable)].origin)
        else:
            place = self._operands.place(step.value, checks.value)
            value = CellGrid(place, whole.dtype, (), prod(int(one) for one in step.value.shape))
        own = CellGrid(
            self._operands.place(whole, checks.source), whole.dtype, tuple(shape), prod(map(int, whole.shape))
        )
        self._slices.access(step.action, own, cells, [int(one) for one in whole.shape], value, fill)

    # --- entries of prefix tables ---------------------------------------------------------------------------------

    def _weight_check(self, step: WeightCheck, checks: ChosenTensor) -> None:
        if checks.gap is None:
            self._operands.require(checks)
            return
        index = self._operands.chosen(step.weight, checks)
        there = [int(bool(name)) for name in step.weight.names]
        self.code.fail_if(looked_up(there, index).eq(0), checks.gap)

    def _entry(self, step: EntryStep, checks: ChosenTensor) -> None:
        """Access an entry of a family that the graph writes: the step's own copy if written, else the model's."""
        code, family = self.code, step.family
        weight = replace(family.entries, index=step.index)
        at = self._operands.chosen(weight, checks)
        slot = code.let(looked_up(family.slots, at))
        offsets = map(self.places.rom.at, self.placed.weights.places(family.entries).offsets)
        offset = code.let(looked_up([*offsets], at))
        if checks.gap is not None:
            code.fail_if((slot if step.action is Action.WRITE else offset) < 0, checks.gap)
        if step.action is Action.CHECK:
            return
        nbytes = weight.dtype.nbytes(prod(map(int, weight.shape)))
        written = code.buffer(self._names.place(family.written), family.written.dtype, len(family.slots))
        value = self._names.place(step.value)
        own = self._own_entry(family.own, slot, nbytes)
        if step.action is Action.WRITE:
            code.copy(value, own, integer(nbytes), nbytes)
            code.store(written, slot, Const(1, family.written.dtype.compute))
            return
        is_own = code.local(slot >= 0, what="is_own")
        with code.when(is_own):
            flag = code.let(code.load(written, slot))
            code.set(is_own, flag if flag.dtype.kind == "bool" else flag.ne(0))
        with code.when(is_own):
            code.copy(own, value, integer(nbytes), nbytes)
        with code.when(~is_own):
            code.copy(self._operands.dynamic("rom", offset), value, integer(nbytes), nbytes)

    def _own_entry(self, own: Value, slot: Scalar, nbytes: int) -> MemoryPlace:
        """Where the step's own copy of an entry lies."""
        at = self._address(own)
        return self._operands.dynamic("ram", self.code.let(slot * nbytes + at))

    def _address(self, value: Value) -> int:
        """The address of an arena value."""
        return self.places.arena_at + self.placed.memory.offset(self.placed.memory.classes.root(value))
