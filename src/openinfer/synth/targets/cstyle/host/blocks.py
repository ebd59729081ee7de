"""The blocks of a program as functions: control flow, dynamic sizes, and headings that say which node is where.

Each function first names the memory it works on; then come its steps, each under the node it comes from. What a step
does to memory is a target's own: its ``HostCalls`` say it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from openinfer.ir import Loop
from openinfer.synth.memory.checks.records import (
    AsideSizes,
    CallChecks,
    ChosenTensor,
    EntryChecks,
    ExtentChecks,
    IndexFailure,
    IntegerChecks,
    JoinedSizes,
    KernelChecks,
    LoopChecks,
    MoveChecks,
    NoChecks,
    SliceChecks,
    StepChecks,
    WatchPoint,
)
from openinfer.synth.memory.trace_points import Reported, TracePoints
from openinfer.synth.program.integers import Computed
from openinfer.synth.program.ir import (
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
    StepOperand,
    Steps,
    TableStep,
    Value,
    WeightCheck,
    steps_in,
)
from openinfer.synth.program.names import field as field_name
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.function import PAD, Function
from openinfer.synth.targets.cstyle.host.functions import BlockFunctions
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.integers import NARROW, WIDE, Integer, number
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter
from openinfer.synth.targets.cstyle.names import comment

_ON_CONTEXT = (BindSize, BranchStep, CallStep, TableStep)
"""Steps that name the context in any case; all others do so only where the function also names memory."""


class HostCalls(Protocol):
    """What is done where a program works on memory: C calls functions, other targets launch kernels.

    Each method prints into the function of the ``HostFile``, with the checks that were planned for the step. Those of
    the extents of what is written have been printed, but for parts, which come with lengths of their own.
    """

    def pointer(self, value: Value) -> str:
        """How the function names the memory of a value."""

    def pointer_type(self, value: Value) -> str:
        """What a parameter points to that has the address of a value."""

    def address(self, operand: StepOperand, checks: ChosenTensor | None, depth: int) -> str:
        """How the function names the memory of an operand that another one is called with."""

    def looked_at(self, value: Value, depth: int) -> None:
        """The next line reads a scalar."""

    def changed(self, value: Value, depth: int) -> None:
        """The last line has written a scalar."""

    def kernel(self, step: KernelStep, checks: KernelChecks, depth: int) -> None:
        """Runs a kernel."""

    def fill(self, value: Value, depth: int) -> None:
        """All the memory that a variable can need gets its initial value."""

    def move(self, step: Move, checks: MoveChecks, depth: int, *, is_whole: bool) -> None:
        """Copies a value; a whole one with all the memory that it can need."""

    def table(self, step: TableStep, checks: SliceChecks | None, depth: int) -> None:
        """Works on a slice of a table."""

    def part(self, step: PartStep, checks: SliceChecks, depth: int) -> None:
        """Works on a slice of a tensor."""

    def entry(self, step: EntryStep | WeightCheck, checks: EntryChecks, depth: int) -> None:
        """Works on an entry of a prefix table, or checks that there is one."""

    def marked(self, rows: Sequence[Reported], first: int) -> list[str]:
        """The lines that tell a trace what nodes have written; ``first`` is the number of the first row."""


class BlockPrinter:
    """Prints the blocks of a program."""

    def __init__(self, file: HostFile, sizes: SizePrinter, indices: IndexPrinter, calls: HostCalls) -> None:
        self._file = file
        self._sizes = sizes
        self._indices = indices
        self._calls = calls
        self._program = file.program
        self._points = TracePoints(file.placed)
        self.functions = BlockFunctions(file, calls.pointer_type)

    @property
    def reported(self) -> list[Reported]:
        """What the lines that trace say, in the order of the source."""
        return self._points.reported

    # --- functions ------------------------------------------------------------------------------------------------

    def block(self, name: str) -> str:
        """A block as a function."""
        now = self._begin()
        now.given = self.functions.given(name)
        params = self._program.params.get(name, BlockParams())
        integers = self.functions.called_with(name)
        now.loops = [(index.name, integers[index.name]) for index in params.indices if not index.is_chosen]
        now.chosen = {index.name: integers[index.name] for index in params.indices if index.is_chosen}
        self._points.begin(name)
        checks = self._file.placed.checks.blocks[name]
        self._watch(checks.watch, 1)
        self._body(self._program.blocks[name], checks.steps, 1)
        tops = now.declarations()
        steps = steps_in(self._program.blocks[name])
        is_watched = self._file.placed.is_interruptible
        if not tops and not is_watched and not any(isinstance(step, _ON_CONTEXT) for step in steps):
            tops.append(f"{PAD}(void)c;")
        tops += [f"{PAD}(void){own};" for own in now.given.values() if own not in now.used]
        tops += [f"{PAD}(void){one.text};" for one in integers.values() if one.text not in now.used]
        text = [self.functions.head(name), "{", *tops, *[""] * bool(now.memory), *now.lines, f"{PAD}return 0;", "}"]
        return "\n".join(text) + "\n"

    def input_checks(self) -> list[str]:
        """What must be true of the inputs before anything runs."""
        file, names, now = self._file, self._file.placed.names, self._begin()
        checks = file.placed.checks.inputs
        for size, failure in checks.sizes.items():
            most, own = self._program.sizes[size], self._sizes.place(size)
            now.line(1, f"if ({own} < 0 || {own} > {most}) {file.fail(failure)}")
        for key, failures in checks.inputs.items():
            own = f"in->{names.inputs[key]}"
            now.line(1, f"if ({own} == NULL) {file.fail(failures.missing)}")
            now.line(1, f"if (is_ours(c, {own})) {file.fail(failures.shared)}")
            self._sizes.check(failures.extents, 1)
        return [f"{PAD}int bad = 0;"] * now.has_bad + now.lines

    def _begin(self) -> Function:
        self._file.now = Function()
        return self._file.now

    def _watch(self, watch: WatchPoint | None, depth: int) -> None:
        """A number of nodes are about to be executed, if the step goes on."""
        if watch is not None:
            self._file.line(depth, f"if (is_over(c, {watch.nodes}, {watch.failure})) return 1;")

    # --- steps ----------------------------------------------------------------------------------------------------

    def _body(self, steps: Steps, checks: tuple[StepChecks, ...], depth: int) -> None:
        headed: tuple[int, ...] = ()
        marked: list[Reported] = []
        lines = self._file.now.lines
        for step, checked in zip(steps, checks, strict=True):
            if isinstance(step, Mark):
                marked += self._points.shown(step, tuple(name for name, _ in self._file.now.loops))
                continue
            # A call has been executed when its block begins: what is wrong with its arguments comes first.
            own = [
                row for row in marked if isinstance(checked, CallChecks) and row.node == step.node and not row.is_return
            ]
            before = self._marked(marked[: len(marked) - len(own)], depth, behind=len(own))
            start = len(lines)
            self._step(step, checked, depth)
            self._points.follow(step)
            if len(lines) == start:
                continue
            nodes = self._heads(step)
            headings = [line for node in nodes if node not in headed for line in self._heading(node, depth)]
            headed = nodes if headings else headed
            lines[start:start] = [*before, *headings]
            lines[-1:-1] = self._marked(own, depth)
            marked = []
        lines += self._marked(marked, depth)

    def _heads(self, step: Step) -> tuple[int, ...]:
        """The nodes that a step stands under; what a loop carries between iterations needs no heading."""
        if isinstance(step, KernelStep) and step.nodes:
            return tuple(sorted({*step.nodes}))
        return () if isinstance(step, Move) and isinstance(self._kind(step.node), Loop) else (step.node,)

    def _kind(self, node: int) -> object:
        return self._file.nodes[node].kind if node in self._file.nodes else None

    def _heading(self, node: int, depth: int) -> list[str]:
        title = self._file.title(node)
        return [f"{PAD * depth}/* {comment(title)} */"] if title else []

    def _marked(self, rows: Sequence[Reported], depth: int, behind: int = 0) -> list[str]:
        """What traces are told of the last rows, or of those before a number of others."""
        return [PAD * depth + line for line in self._calls.marked(rows, len(self.reported) - len(rows) - behind)]

    def _step(self, step: Step, checks: StepChecks, depth: int) -> None:
        match step, checks:
            case KernelStep() as kernel, KernelChecks() as own:
                self._kernel(kernel, own, depth)
            case Move() as move, MoveChecks() as own:
                whole = partial(self._calls.move, move, own, is_whole=True)
                self._sizes.if_known(own.when, depth, partial(self._move, move, own), whole)
            case LoopStep() as loop, LoopChecks() as own:
                self._loop(loop, own, depth)
            case BranchStep() as branch, _:
                self._branch(branch, depth)
            case BindSize(found=found), ExtentChecks(own):
                self._sizes.check(own, depth, self._sizes.extent(found))
            case ((RequireSize() | RefuseSizes()), ExtentChecks(own)):
                self._sizes.check(own, depth)
            case CallStep() as call, AsideSizes(sizes):
                self._consumer(call, sizes, depth)
            case CallStep() as call, CallChecks() as own:
                self._call(call, own, depth)
            case JoinSizes(block=block), JoinedSizes(failure):
                self._join_sizes(block, failure, depth)
            case TableStep() as table, SliceChecks() as own:
                self._calls.table(table, own, depth)
            case TableStep() as table, NoChecks():
                self._calls.table(table, None, depth)
            case PartStep() as part, SliceChecks() as own:
                self._calls.part(part, own, depth)
            case (EntryStep() | WeightCheck()) as entry, EntryChecks() as own:
                self._calls.entry(entry, own, depth)
            case IntegerStep() as integer, IntegerChecks() as own:
                self._integer(integer, own, depth)
            case ((Fence() | Move()), NoChecks()):
                pass
            case _:
                raise TypeError(step, checks)

    def _kernel(self, step: KernelStep, checks: KernelChecks, depth: int) -> None:
        fill = partial(self._calls.fill, step.outputs[0])
        self._sizes.if_known(checks.when, depth, partial(self._guarded_kernel, step, checks), fill)

    def _guarded_kernel(self, step: KernelStep, checks: KernelChecks, depth: int) -> None:
        self._sizes.check(checks.extents, depth)
        self._calls.kernel(step, checks, depth)

    def _move(self, step: Move, checks: MoveChecks, depth: int) -> None:
        self._sizes.check(checks.extents, depth)
        self._calls.move(step, checks, depth, is_whole=False)

    def _integer(self, step: IntegerStep, checks: IntegerChecks, depth: int) -> None:
        self._sizes.check(checks.sizes, depth)
        found = self._indices.integer(step.expr, depth)
        self._file.line(depth, f"*{self._calls.pointer(step.value)} = {found.text};")
        self._calls.changed(step.value, depth)
        if checks.failure is not None:
            self._file.line(depth, f"if (bad) {self._file.fail_bad(checks.failure)}")

    # --- control flow ---------------------------------------------------------------------------------------------

    def _loop(self, step: LoopStep, checks: LoopChecks, depth: int) -> None:
        now = self._file.now
        start, end = self._indices.integers([step.start, step.end], depth)
        own = field_name("", step.index, len(now.loops))
        if any(found.text == f"i_{own}" for _, found in now.loops):
            own = str(len(now.loops))
        least = start.range.least
        if checks.bounds is None and start.is_literal and end.text == str(least + 1):
            index = number(least)
            now.line(depth, "{")
        else:
            is_narrow = self._file.narrows(start.range, end.range)
            inside = Computed(least, max(end.range.most - 1, least))
            index = Integer(f"i_{own}", inside, is_narrow=is_narrow)
            self._loop_head(checks.bounds, own, start, end, depth, NARROW if is_narrow else WIDE)
        now.loops.append((step.index, index))
        self._watch(checks.watch, depth + 1)
        self._points.follow(step)
        self._body(step.body, checks.body, depth + 1)
        now.loops.pop()
        now.line(depth, "}")

    def _loop_head(
        self, failure: IndexFailure | None, own: str, start: Integer, end: Integer, depth: int, kind: str
    ) -> None:
        """A loop begins whose index is called ``i_`` and its own name; bounds that can fail are computed before it."""
        index = f"i_{own}"
        first, last = (one.narrowed if kind == NARROW else one.text for one in (start, end))
        more = ""
        if failure is not None:
            self._file.line(depth, f"const {kind} first_{own} = {first}, end_{own} = {last};")
            first, last = f"first_{own}", f"end_{own}"
            self._file.line(depth, f"if (bad) {self._file.fail_bad(failure)}")
        elif not end.is_literal:
            more = f", end_{own} = {last}"
            last = f"end_{own}"
        self._file.line(depth, f"for ({kind} {index} = {first}{more}; {index} < {last}; ++{index}) {{")

    def _branch(self, step: BranchStep, depth: int) -> None:
        if step.cond is None:
            self._run(step.then_block, depth)
            return
        self._calls.looked_at(step.cond, depth)
        self._file.line(depth, f"if (*{self._calls.pointer(step.cond)}) {{")
        self._run(step.then_block, depth + 1)
        if step.else_block is not None:
            self._file.line(depth, "} else {")
            self._run(step.else_block, depth + 1)
        self._file.line(depth, "}")

    def _run(self, block: str, depth: int) -> None:
        self._file.line(depth, f"if ({self.functions.name(block)}(c)) return 1;")

    def _call(self, step: CallStep, checks: CallChecks, depth: int) -> None:
        """A block is called with the addresses of its arguments, its indices, and where its results go."""
        self._sizes.check(checks.sizes, depth)
        args = [self._calls.address(one, chosen, depth) for one, chosen in zip(step.args, checks.args, strict=True)]
        args += [self._calls.pointer(one) for one in step.results]
        integers = [found.text for found in self._indices.integers(step.integers, depth)]
        if checks.failure is not None:
            # What is wrong is known before the block is called.
            named = [(self._file.now.fresh("index"), one) for one in integers]
            for own, text in named:
                self._file.line(depth, f"const int64_t {own} = {text};")
            self._file.line(depth, f"if (bad) {self._file.fail_bad(checks.failure)}")
            integers = [own for own, _ in named]
        given = ", ".join(["c", *args, *integers])
        self._file.line(depth, f"if ({self.functions.name(step.block)}({given})) return 1;")

    def _consumer(self, step: CallStep, sizes: Sequence[str], depth: int) -> None:
        """A consumer runs, and what it binds is set aside: what entry knows does not depend on the schedule."""
        file, now = self._file, self._file.now
        number = now.fresh("")
        fields = [file.placed.names.sizes[size] for size in sizes]
        now.aside[step.block] = [(f"c->{one}", f"{one}_{number}") for one in fields]
        for place, own in now.aside[step.block]:
            file.line(depth, f"const int64_t before_{own} = {place};")
        self._run(step.block, depth)
        for place, own in now.aside[step.block]:
            file.line(depth, f"const int64_t {own} = {place};")
            file.line(depth, f"{place} = before_{own};")

    def _join_sizes(self, block: str, failure: int | None, depth: int) -> None:
        if failure is None:
            return
        for place, own in self._file.now.aside[block]:
            self._file.line(depth, f"if ({place} < 0) {place} = {own};")
            self._file.line(depth, f"if ({own} >= 0 && {own} != {place}) {self._file.fail(failure)}")
