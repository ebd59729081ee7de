"""The blocks of a program as functions: control flow, dynamic sizes, and headings that say which node is where.

Each function first names the memory it works on; then come its steps, each under the node it comes from. What a step
does to memory is a target's own: its ``HostCalls`` say it.
"""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from openinfer.ir import Loop, Node
from openinfer.ir.expr import names
from openinfer.ir.text import node_head
from openinfer.loops.dim import sizes_in
from openinfer.synth.memory.trace_points import Reported, TracePoints
from openinfer.synth.program.failures import BAD_SIZE, mistake
from openinfer.synth.program.ir import (
    BindSize,
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
    Steps,
    TableStep,
    Value,
    WeightCheck,
    steps_in,
)
from openinfer.synth.program.names import field as field_name
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.function import PAD, Function
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.integers import Integer
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter
from openinfer.synth.targets.cstyle.names import comment

_ON_CONTEXT = (BindSize, BranchStep, CallStep, TableStep)
"""Steps that name the context in any case; all others do so only where the function also names memory."""


class HostCalls(Protocol):
    """What is done where a program works on memory: C calls functions, other targets launch kernels.

    Each method prints into the function of the ``HostFile``. The extents of what is written have been checked, but for
    parts, which come with lengths of their own.
    """

    def pointer(self, value: Value) -> str:
        """How the function names the memory of a scalar."""

    def kernel(self, step: KernelStep, depth: int) -> None:
        """Runs a kernel."""

    def fill(self, value: Value, depth: int) -> None:
        """All the memory that a variable can need gets its initial value."""

    def move(self, step: Move, depth: int, *, is_whole: bool) -> None:
        """Copies a value; a whole one with all the memory that it can need."""

    def table(self, step: TableStep, depth: int) -> None:
        """Works on a slice of a table."""

    def part(self, step: PartStep, depth: int) -> None:
        """Works on a slice of a tensor."""

    def entry(self, step: EntryStep | WeightCheck, depth: int) -> None:
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
        blocks = enumerate(file.program.blocks)
        self._names = {block: field_name("block_", block, at) for at, block in blocks}

    @property
    def reported(self) -> list[Reported]:
        """What the lines that trace say, in the order of the source."""
        return self._points.reported

    # --- functions ------------------------------------------------------------------------------------------------

    def name(self, block: str) -> str:
        """The function of a block."""
        return self._names[block]

    def block(self, name: str) -> str:
        """A block as a function."""
        now = self._begin()
        self._points.begin(name)
        nodes = self._program.bound.graph.blocks[name].nodes
        self._watch(_executed(nodes), nodes[0].index if nodes else -1, 1)
        self._body(self._program.blocks[name], 1)
        tops = now.declarations()
        steps = steps_in(self._program.blocks[name])
        is_watched = self._file.placed.is_interruptible
        if not tops and not is_watched and not any(isinstance(step, _ON_CONTEXT) for step in steps):
            tops.append(f"{PAD}(void)c;")
        head = [f"static int {self.name(name)}({self._file.name}_context *c)", "{"]
        text = [*head, *tops, *[""] * bool(now.memory), *now.lines, f"{PAD}return 0;", "}"]
        return "\n".join(text) + "\n"

    def input_checks(self) -> list[str]:
        """What must be true of the inputs before anything runs."""
        file, names, now = self._file, self._file.placed.names, self._begin()
        for size in names.input_sizes:
            most, own = self._program.sizes[size], self._sizes.place(size)
            fail = file.fail(-1, mistake("ERROR_SIZE", f"the size {size} is not between 0 and {most}"))
            now.line(1, f"if ({own} < 0 || {own} > {most}) {fail}")
        for key, value in self._program.inputs.items():
            own = f"in->{names.inputs[key]}"
            now.line(1, f"if ({own} == NULL) {file.fail(-1, mistake('ERROR_INPUT', f'the input {key} is missing'))}")
            ours = mistake("ERROR_INPUT", f"the input {key} lies in the memory that a step works in: copy it")
            now.line(1, f"if (is_ours(c, {own})) {file.fail(-1, ours)}")
            self._sizes.guard([value], -1, 1)
        return [f"{PAD}int bad = 0;"] * now.has_bad + now.lines

    def _begin(self) -> Function:
        self._file.now = Function(known=set(self._file.placed.names.input_sizes))
        return self._file.now

    def _watch(self, nodes: int, node: int, depth: int) -> None:
        """A number of nodes are about to be executed, if the step goes on."""
        if not self._file.placed.is_interruptible:
            return
        place = self._file.failure(node, mistake("ERROR_INTERRUPTED", "the step was interrupted"))
        self._file.failure(node, mistake("ERROR_BUDGET", "the step has run its budget of nodes"))
        self._file.line(depth, f"if (is_over(c, {nodes}, {place})) return 1;")

    # --- steps ----------------------------------------------------------------------------------------------------

    def _body(self, steps: Steps, depth: int) -> None:
        headed: tuple[int, ...] = ()
        marked: list[Reported] = []
        lines = self._file.now.lines
        for step in steps:
            if isinstance(step, Mark):
                marked += self._points.shown(step, tuple(name for name, _ in self._file.now.loops))
                continue
            before = self._marked(marked, depth)
            start = len(lines)
            self._step(step, depth)
            self._points.follow(step)
            if len(lines) == start:
                continue
            nodes = self._heads(step)
            headings = [line for node in nodes if node not in headed for line in self._heading(node, depth)]
            headed = nodes if headings else headed
            lines[start:start] = [*before, *headings]
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
        if node < 0 or node not in self._file.nodes:
            return []
        line = self._file.source_line(node)
        place = "" if line is None else f" line {line}"
        return [f"{PAD * depth}/* {node}: {comment(node_head(self._file.nodes[node]))};{place} */"]

    def _marked(self, rows: Sequence[Reported], depth: int) -> list[str]:
        """What traces are told of the last rows."""
        return [PAD * depth + line for line in self._calls.marked(rows, len(self.reported) - len(rows))]

    def _step(self, step: Step, depth: int) -> None:
        match step:
            case KernelStep():
                self._kernel(step, depth)
            case Move(src=src, dst=dst):
                if not (isinstance(src, Value) and self._file.placed.memory.is_same(src, dst)):
                    whole = partial(self._calls.move, step, is_whole=True)
                    self._sizes.if_known([dst], depth, partial(self._move, step), whole)
            case LoopStep():
                self._loop(step, depth)
            case BranchStep():
                self._branch(step, depth)
            case Fence():
                pass
            case BindSize(declared, found):
                self._sizes.require_known(sizes_in(found), step.node, depth)
                self._sizes.agree(declared, self._sizes.extent(found), step.node, depth, is_exact=step.is_exact)
            case RequireSize():
                self._sizes.require(step, depth)
            case RefuseSizes():
                self._sizes.refuse(step, depth)
            case CallStep():
                self._consumer(step, depth)
            case JoinSizes():
                self._join_sizes(step, depth)
            case TableStep():
                self._calls.table(step, depth)
            case PartStep():
                self._calls.part(step, depth)
            case EntryStep() | WeightCheck():
                self._calls.entry(step, depth)
            case IntegerStep():
                self._integer(step, depth)
            case _:
                raise TypeError(step)

    def _kernel(self, step: KernelStep, depth: int) -> None:
        if step.is_initial:
            (value,) = step.outputs
            fill = partial(self._calls.fill, value)
            self._sizes.if_known(step.outputs, depth, partial(self._guarded_kernel, step), fill)
        else:
            self._guarded_kernel(step, depth)

    def _guarded_kernel(self, step: KernelStep, depth: int) -> None:
        self._sizes.guard([*step.outputs, *step.scratch], step.node, depth)
        self._calls.kernel(step, depth)

    def _move(self, step: Move, depth: int) -> None:
        self._sizes.guard([step.dst], step.node, depth)
        self._calls.move(step, depth, is_whole=False)

    def _integer(self, step: IntegerStep, depth: int) -> None:
        now = self._file.now
        hidden = {*self._program.bound.vars, *(index for index, _ in now.loops)}
        needed = (set(names(step.expr)) & self._program.sizes.keys()) - hidden
        self._sizes.require_known(needed, step.node, depth)
        found = self._indices.integer(step.expr, depth)
        now.line(depth, f"*{self._calls.pointer(step.value)} = {found.text};")
        if found.can_fail:
            now.line(depth, f"if (bad) {self._file.fail_bad(step.node)}")

    # --- control flow ---------------------------------------------------------------------------------------------

    def _loop(self, step: LoopStep, depth: int) -> None:
        now = self._file.now
        start, end = self._indices.integers([step.start, step.end], depth)
        own = field_name("", step.index, len(now.loops))
        if any(found.text == f"i_{own}" for _, found in now.loops):
            own = str(len(now.loops))
        self._loop_head(step, own, start, end, depth)
        now.loops.append((step.index, Integer(f"i_{own}", start.least, max(end.most - 1, start.least))))
        self._watch(max(_executed(self._file.nodes[step.node].body), 1), step.node, depth + 1)
        with now.maybe():
            self._points.follow(step)
            self._body(step.body, depth + 1)
        now.loops.pop()
        now.line(depth, "}")

    def _loop_head(self, step: LoopStep, own: str, start: Integer, end: Integer, depth: int) -> None:
        """A loop begins whose index is called ``i_`` and its own name; bounds that can fail are computed before it."""
        index, first, last = f"i_{own}", start.text, end.text
        more = ""
        if start.can_fail or end.can_fail:
            first, last = f"first_{own}", f"end_{own}"
            self._file.line(depth, f"const int64_t {first} = {start.text}, {last} = {end.text};")
            self._file.line(depth, f"if (bad) {self._file.fail_bad(step.node)}")
        elif not end.is_literal:
            last = f"end_{own}"
            more = f", {last} = {end.text}"
        self._file.line(depth, f"for (int64_t {index} = {first}{more}; {index} < {last}; ++{index}) {{")

    def _branch(self, step: BranchStep, depth: int) -> None:
        if step.cond is None:
            self._run(step.then_block, depth)
            return
        self._file.line(depth, f"if (*{self._calls.pointer(step.cond)}) {{")
        self._run(step.then_block, depth + 1)
        if step.else_block is not None:
            self._file.line(depth, "} else {")
            self._run(step.else_block, depth + 1)
        self._file.line(depth, "}")

    def _run(self, block: str, depth: int) -> None:
        self._file.line(depth, f"if ({self.name(block)}(c)) return 1;")

    def _consumer(self, step: CallStep, depth: int) -> None:
        """A consumer runs, and what it binds is set aside: what entry knows does not depend on the schedule."""
        file, now = self._file, self._file.now
        number = now.fresh("")
        fields = [file.placed.names.sizes[size] for size in step.sizes if size not in now.known]
        now.aside[step.block] = [(f"c->{one}", f"{one}_{number}") for one in fields]
        for place, own in now.aside[step.block]:
            file.line(depth, f"const int64_t before_{own} = {place};")
        self._run(step.block, depth)
        for place, own in now.aside[step.block]:
            file.line(depth, f"const int64_t {own} = {place};")
            file.line(depth, f"{place} = before_{own};")

    def _join_sizes(self, step: JoinSizes, depth: int) -> None:
        for place, own in self._file.now.aside[step.block]:
            self._file.line(depth, f"if ({place} < 0) {place} = {own};")
            fail = self._file.fail(step.node, BAD_SIZE)
            self._file.line(depth, f"if ({own} >= 0 && {own} != {place}) {fail}")


def _executed(nodes: Sequence[Node]) -> int:
    """How many nodes are executed when these are, not counting the iterations of loops among them."""
    todo, count = list(nodes), 0
    while todo:
        node = todo.pop()
        count += 1
        if not isinstance(node.kind, Loop):
            todo += node.body
    return count
