"""The blocks of a program as C functions: control flow, kernel calls, moves, tables, sizes.

Each function first names the memory it works on; then come its steps, each under the node it comes from.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from openinfer.ir import Loop, Node
from openinfer.ir.expr import names
from openinfer.ir.text import node_head
from openinfer.loops.dim import form, most_elements, sizes_in
from openinfer.loops.ir import Buffer, Fail, Kernel, walk
from openinfer.loops.rewrite import with_buffers
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.rollback import is_partly_written
from openinfer.synth.memory.state import element_bits
from openinfer.synth.program.failures import BAD_LENGTH, BAD_SIZE, NEGATIVE, NO_MEMORY, OUTSIDE, mistake
from openinfer.synth.program.ir import (
    Action,
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
    Weight,
    WeightCheck,
    steps_in,
)
from openinfer.synth.program.names import field as field_name
from openinfer.synth.targets.c.function import PAD, Function
from openinfer.synth.targets.c.integers import Integer, can_fail
from openinfer.synth.targets.c.kernels import printed
from openinfer.synth.targets.c.sizes import is_even
from openinfer.synth.targets.c.tables import Picks, TableAccess, picks
from openinfer.synth.targets.c.trace_points import MarkPrinter
from openinfer.synth.targets.cstyle.library import KernelLibrary
from openinfer.synth.targets.cstyle.names import comment

_ON_CONTEXT = (BindSize, BranchStep, CallStep, TableStep)
"""Steps that name the context in any case; all others do so only where the function also names memory."""

_TABLE_CALLS = {Action.READ: "oi_table_read", Action.WRITE: "oi_table_write", Action.RESET: "oi_table_reset"}
_PART_ACTIONS = {Action.READ: "OI_READ", Action.WRITE: "OI_WRITE", Action.RESET: "OI_COPY"}


class StepPrinter(MarkPrinter):
    """Prints the blocks of a program."""

    def __init__(self, placed: Placed, name: str) -> None:
        super().__init__(placed, name)
        self.kernels = KernelLibrary(name, printed)
        blocks = enumerate(placed.program.blocks)
        self._block_names = {block: field_name("block_", block, at) for at, block in blocks}

    # --- functions ------------------------------------------------------------------------------------------------

    def block_name(self, name: str) -> str:
        """The C function of a block."""
        return self._block_names[name]

    def block(self, name: str) -> str:
        """A block as a C function."""
        self._now = Function(known=set(self._placed.names.input_sizes))
        self._begin(name)
        nodes = self._program.bound.graph.blocks[name].nodes
        self._watch(_executed(nodes), nodes[0].index if nodes else -1, 1)
        self._body(self._program.blocks[name], 1)
        now = self._now
        head = [f"static int {self.block_name(name)}({self._name}_context *c)", "{"]
        tops = list(now.pointers.values())
        if now.has_bad:
            tops.append("int bad = 0; /* how an index expression has gone wrong */")
        steps = steps_in(self._program.blocks[name])
        if not tops and not self._placed.is_interruptible and not any(isinstance(step, _ON_CONTEXT) for step in steps):
            tops.append("(void)c;")
        gap = [""] if now.pointers else []
        text = [*head, *(PAD + line for line in _in_columns(tops)), *gap, *now.lines, f"{PAD}return 0;", "}"]
        return "\n".join(text) + "\n"

    def _watch(self, nodes: int, node: int, depth: int) -> None:
        """So many nodes are about to be executed, if the step goes on."""
        if not self._placed.is_interruptible:
            return
        place = self._failure(node, mistake("ERROR_INTERRUPTED", "the step was interrupted"))
        self._failure(node, mistake("ERROR_BUDGET", "the step has run its budget of nodes"))
        self._line(depth, f"if (is_over(c, {nodes}, {place})) return 1;")

    def _body(self, steps: Steps, depth: int) -> None:
        last: tuple[int, ...] = ()
        for step in steps:
            if isinstance(step, Mark):
                self._mark(step, depth)
                continue
            nodes = (step.nodes if isinstance(step, KernelStep) else ()) or (step.node,)
            is_carried = isinstance(step, Move) and isinstance(self._kind(step.node), Loop)
            if nodes != last and not is_carried:
                for node in nodes:
                    self._heading(node, depth)
            last = last if is_carried else nodes
            self._step(step, depth)
            self._follow(step)

    def _kind(self, node: int) -> object:
        return self._nodes[node].kind if node in self._nodes else None

    def _heading(self, node: int, depth: int) -> None:
        if node >= 0 and node in self._nodes:
            self._line(depth, f"/* {node}: {comment(node_head(self._nodes[node]))};{self._line_number(node)} */")

    def _line_number(self, node: int) -> str:
        line = self.source_line(node)
        return f" line {line}" if line is not None else ""

    def input_checks(self) -> list[str]:
        """What must be true of the inputs before anything runs."""
        self._now = Function(known=set(self._placed.names.input_sizes))
        for size in self._placed.names.input_sizes:
            fail = self._fail(
                -1, mistake("ERROR_SIZE", f"the size {size} is not between 0 and {self._program.sizes[size]}")
            )
            own = f"c->{self.size_fields[size]}"
            self._line(1, f"if ({own} < 0 || {own} > {self._program.sizes[size]}) {fail}")
        for key, value in self._program.inputs.items():
            fail = self._fail(-1, mistake("ERROR_INPUT", f"the input {key} is missing"))
            own = f"in->{self._placed.names.inputs[key]}"
            self._line(1, f"if ({own} == NULL) {fail}")
            fail = self._fail(
                -1, mistake("ERROR_INPUT", f"the input {key} lies in the memory that a step works in: copy it")
            )
            self._line(1, f"if (is_ours(c, {own})) {fail}")
            self._guard([value], -1, 1)
        return [f"{PAD}int bad = 0;"] * self._now.has_bad + self._now.lines

    # --- steps ----------------------------------------------------------------------------------------------------

    def _step(self, step: Step, depth: int) -> None:
        match step:
            case KernelStep():
                if step.is_initial:
                    self._if_known(
                        step.outputs, depth, partial(self._guarded_call, step), partial(self._fill_whole, step)
                    )
                else:
                    self._guarded_call(step, depth)
            case Move(src=src, dst=dst):
                if not (isinstance(src, Value) and self._plan.is_same(src, dst)):
                    self._if_known([dst], depth, partial(self._move, step), partial(self._move_whole, step))
            case LoopStep():
                self._loop(step, depth)
            case BranchStep():
                self._branch(step, depth)
            case Fence():
                pass
            case BindSize(declared, found):
                self._require_known(sizes_in(found), step.node, depth)
                self._agree(declared, self.extent(found), step.node, depth, is_exact=step.is_exact)
            case RequireSize():
                self._require_values(step, depth)
            case RefuseSizes():
                self._refuse_sizes(step, depth)
            case CallStep():
                self._consumer(step, depth)
            case JoinSizes():
                self._join_sizes(step, depth)
            case TableStep():
                self._table(step, depth)
            case PartStep():
                self._part(step, depth)
            case EntryStep():
                self._entry(step, depth)
            case WeightCheck():
                self._check_weight(step, depth)
            case IntegerStep():
                self._integer(step, depth)
            case _:
                raise TypeError(step)

    def _consumer(self, step: CallStep, depth: int) -> None:
        """A consumer runs, and what it binds is put aside: no schedule decides what entry knows."""
        number = self._now.count = self._now.count + 1
        fields = [self.size_fields[size] for size in step.sizes if size not in self._now.known]
        self._now.aside[step.block] = [(f"c->{one}", f"{one}_{number}") for one in fields]
        for place, own in self._now.aside[step.block]:
            self._line(depth, f"const int64_t before_{own} = {place};")
        self._line(depth, f"if ({self.block_name(step.block)}(c)) return 1;")
        for place, own in self._now.aside[step.block]:
            self._line(depth, f"const int64_t {own} = {place};")
            self._line(depth, f"{place} = before_{own};")

    def _join_sizes(self, step: JoinSizes, depth: int) -> None:
        for place, own in self._now.aside[step.block]:
            self._line(depth, f"if ({place} < 0) {place} = {own};")
            fail = self._fail(step.node, BAD_SIZE)
            self._line(depth, f"if ({own} >= 0 && {own} != {place}) {fail}")

    def _if_known(
        self, values: Sequence[Value], depth: int, then: Callable[[int], None], otherwise: Callable[[int], None]
    ) -> None:
        """What is done if the sizes have values, and ones that make shapes of the values; and if they have none yet.

        A variable that nobody can write in this step, since it has no shape, needs no initial value.
        """
        extents = {form(one): one for value in values for one in value.shape}
        unknown = sorted({size for one in extents.values() for size in sizes_in(one)} - self._now.known)
        conditions = [f"c->{self.size_fields[size]} >= 0" for size in unknown]
        found = [self.extent(one) for one in extents.values()]
        conditions += [f"{one.text} >= 0" for one in found if one.least < 0]
        rests = {one: self._rest(one) for value in values for one in self._quotients(value)}
        rests = {one: rest for one, rest in rests.items() if is_even(one) not in self._now.known}
        conditions += [f"{rest.text} == 0" for rest in rests.values()]
        found += rests.values()
        conditions += ["!bad"] * can_fail(found)
        if not conditions:
            then(depth)
            return
        known = set(self._now.known)
        self._line(depth, f"if ({' && '.join(conditions)}) {{")
        self._now.known |= {*unknown, *map(is_even, rests)}
        then(depth + 1)
        self._now.known = known
        if unknown:
            is_unknown = " || ".join(f"c->{self.size_fields[size]} < 0" for size in unknown)
            self._line(depth, "} else {" if len(conditions) == len(unknown) else f"}} else if ({is_unknown}) {{")
            otherwise(depth + 1)
        self._line(depth, "}")
        if can_fail(found):
            self._line(depth, "bad = 0;")

    def _fill_whole(self, step: KernelStep, depth: int) -> None:
        """An initial value for a variable whose size is bound later: all the memory it can need has it."""
        (value,) = step.outputs
        element = element_bits(value.dtype, self._program.bound.vars[str(value.variable)].origin)
        self.needs.add("oi_element")
        memory, count = f"(unsigned char *){self._pointer(value)}", most_elements(value.shape)
        self._line(depth, f"oi_fill({memory}, {value.dtype.bits}, 0, {count}, UINT64_C(0x{element:x}));")

    def _move_whole(self, step: Move, depth: int) -> None:
        source = self._operand(step.src, step.node, depth)
        self._call_line(depth, f"memcpy({self._pointer(step.dst)}, {source}, {step.dst.nbytes});")

    def _guarded_call(self, step: KernelStep, depth: int) -> None:
        self._guard([*step.outputs, *step.scratch], step.node, depth)
        self._call(step, depth)

    def _move(self, step: Move, depth: int) -> None:
        self._guard([step.dst], step.node, depth)
        source = self._operand(step.src, step.node, depth)
        about = comment(str(step.dst.variable))
        self._call_line(depth, f"memcpy({self._pointer(step.dst)}, {source}, {self._nbytes(step.dst)}); /* {about} */")

    def _call(self, step: KernelStep, depth: int) -> None:
        kernel, inputs = self._unaliased(step)
        arguments = [self._operand(one, step.node, depth) for one in inputs]
        arguments += [self._pointer(one) for one in (*step.outputs, *step.scratch)]
        used = self.kernels.function(kernel, step)
        arguments += [f"c->{self.size_fields[size]}" for size in used.code.sizes]
        if kernel.parts > 1:
            self.needs.add("oi_team")
            self._call_line(
                depth,
                f"oi_run(c->team, {kernel.parts}, {used.name}_part,"
                f" &(const {used.name}_call){{ {', '.join(arguments)} }});",
            )
            return
        call = f"{used.name}({', '.join(arguments)})"
        if not used.code.can_fail:
            self._call_line(depth, f"{call};")
            return
        reasons = dict.fromkeys(one.reason for one in walk(kernel.body) if isinstance(one, Fail))
        self._line(depth, f"if ({call}) {self._fail(step.node, mistake('ERROR_VALUE', '; or '.join(reasons)))}")

    def _unaliased(self, step: KernelStep) -> tuple[Kernel, list[Value | Weight]]:
        """The kernel with every memory as one parameter: an input that is also written is the output itself."""
        written = {
            self._plan.classes.root(value): buffer
            for value, buffer in zip(step.outputs, step.kernel.outputs, strict=True)
        }
        merged: dict[str, Buffer] = {}
        inputs: list[Value | Weight] = []
        for operand, buffer in zip(step.inputs, step.kernel.inputs, strict=True):
            out = written.get(self._plan.classes.root(operand)) if isinstance(operand, Value) else None
            if out is None:
                inputs.append(operand)
                continue
            assert out.dtype is buffer.dtype, "two types in one memory"
            merged[buffer.name] = out
        return (with_buffers(step.kernel, merged) if merged else step.kernel), inputs

    def _loop(self, step: LoopStep, depth: int) -> None:
        start, end = self._integers.integer(step.start), self._integers.integer(step.end)
        taken = {text.text for _, text in self._now.loops}
        index = field_name("i_", step.index, len(self._now.loops))
        index = f"i_{len(self._now.loops)}" if index in taken else index
        last = f"end_{index[2:]}"
        if start.can_fail or end.can_fail:
            self._now.has_bad = True
            self._line(depth, f"const int64_t first_{index[2:]} = {start.text}, {last} = {end.text};")
            self._line(depth, f"if (bad) {self._fail_bad(step.node)}")
            head = f"for (int64_t {index} = first_{index[2:]}; {index} < {last}; ++{index}) {{"
        elif end.text.lstrip("-").isdigit():
            head = f"for (int64_t {index} = {start.text}; {index} < {end.text}; ++{index}) {{"
        else:
            head = f"for (int64_t {index} = {start.text}, {last} = {end.text}; {index} < {last}; ++{index}) {{"
        self._line(depth, head)
        self._now.loops.append((step.index, Integer(index, start.least, max(end.most - 1, start.least))))
        self._watch(max(_executed(self._nodes[step.node].body), 1), step.node, depth + 1)
        known = set(self._now.known)
        self._follow(step)
        self._body(step.body, depth + 1)
        self._now.known = known
        self._now.loops.pop()
        self._line(depth, "}")

    def _branch(self, step: BranchStep, depth: int) -> None:
        then = f"if ({self.block_name(step.then_block)}(c)) return 1;"
        if step.cond is None:
            self._line(depth, then)
            return
        self._line(depth, f"if (*{self._pointer(step.cond)}) {{")
        self._line(depth + 1, then)
        if step.else_block is not None:
            self._line(depth, "} else {")
            self._line(depth + 1, f"if ({self.block_name(step.else_block)}(c)) return 1;")
        self._line(depth, "}")

    def _integer(self, step: IntegerStep, depth: int) -> None:
        hidden = {*self._program.bound.vars, *(index for index, _ in self._now.loops)}
        self._require_known((set(names(step.expr)) & self._program.sizes.keys()) - hidden, step.node, depth)
        found = self._integers.integer(step.expr)
        self._now.has_bad = self._now.has_bad or found.can_fail
        self._line(depth, f"*{self._pointer(step.value)} = {found.text};")
        if found.can_fail:
            self._line(depth, f"if (bad) {self._fail_bad(step.node)}")

    # --- tables and parts -----------------------------------------------------------------------------------------

    def _picked(self, found: Picks, node: int, depth: int) -> None:
        """The indices of an access, which must have values."""
        for line in found.lines:
            self._line(depth, line)
        if found.can_fail:
            self._now.has_bad = True
            self._line(depth, f"if (bad) {self._fail_bad(node)}")

    def _outside(self, found: Picks, bounds: str, keys: int, node: int) -> str:
        """What is wrong where indices are outside: the first of them that is may be negative."""
        if not found.can_be_negative:
            return self._fail(node, OUTSIDE)
        self.needs.add("oi_is_negative")
        return self._fail_either(node, f"oi_is_negative(pick, {found.axes}, {bounds}, {keys})", NEGATIVE, OUTSIDE)

    def _table(self, step: TableStep, depth: int) -> None:
        layout = self._placed.state.tables[step.table.variable.name]
        grid = f"grid{layout.number}"
        if step.action is Action.RESET and not step.indices:
            self.needs.add("oi_table_clear")
            self._line(depth, f"{{ const oi_grid grid = {grid}(c); oi_table_clear(&grid); }}")
            return
        access = TableAccess(layout, step)
        found = picks(access.ordered, access.grown, self._integers.integer)
        is_view = step.action is Action.READ and step.value in self._plan.views
        called = "oi_table_view" if is_view else _TABLE_CALLS.get(step.action)
        self.needs |= {"oi_select"} if called is None else {"oi_select", called}
        self._line(depth, "{")
        self._line(depth + 1, f"const oi_grid grid = {grid}(c);")
        self._picked(found, step.node, depth + 1)
        is_write = "true" if step.action is Action.WRITE else "false"
        fail = self._outside(found, "grid.table->bound", layout.table.keys, step.node)
        self._line(depth + 1, f"if (!oi_select(&grid, pick, {is_write}, &part)) {fail}")
        if step.action is Action.RESET:
            whole = "true" if access.is_whole_matrix else "false"
            self._line(depth + 1, f"{called}(&grid, &part, {whole});")
        else:
            assert step.value is not None
            self._lengths(step, step.value, found.kept, depth + 1)
            if step.action is Action.WRITE and layout.heap is not None:
                self.needs.add("oi_table_grow")
                fail = self._fail(step.node, NO_MEMORY)
                self._line(depth + 1, f"if (!oi_table_grow(&grid, &part)) {fail}")
            if is_view:
                self._line(depth + 1, f"{self._pointer(step.value)} = {called}(&grid, &part);")
            elif called is not None:
                self._line(depth + 1, f"{called}(&grid, &part, {self._pointer(step.value)});")
        self._line(depth, "}")

    def _part(self, step: PartStep, depth: int) -> None:
        whole = step.whole
        self.needs |= {"oi_inside"} if step.action is Action.CHECK else {"oi_inside", "oi_tensor_part"}
        axes = len(whole.shape)
        if isinstance(whole, Value):
            self._guard([whole], step.node, depth)
        found = picks(step.indices, [False] * axes, self._integers.integer)
        self._line(depth, "{")
        self._line(
            depth + 1, f"const int64_t shape[] = {{ {', '.join(self.extent(one).text for one in whole.shape)} }};"
        )
        self._picked(found, step.node, depth + 1)
        fail = self._outside(found, "shape", axes, step.node)
        self._line(depth + 1, f"if (!oi_inside(pick, shape, {axes}, &part)) {fail}")
        if isinstance(step.value, Value) and step.action is not Action.RESET:
            self._lengths(step, step.value, found.kept, depth + 1)
        if step.action is not Action.CHECK:
            self._part_access(step, axes, depth + 1)
        self._line(depth, "}")

    def _part_access(self, step: PartStep, axes: int, depth: int) -> None:
        whole = step.whole
        action, value, element = _PART_ACTIONS[step.action], "NULL", 0
        if step.value is not None:
            value = self._operand(step.value, step.node, depth)
        else:
            action = "OI_FILL"
            element = element_bits(whole.dtype, self._program.bound.vars[str(whole.variable)].origin)  # type: ignore[union-attr]
        own = self._operand(whole, step.node, depth)
        own = f"(void *)(uintptr_t){own}" if isinstance(whole, Weight) or self._is_constant(whole) else own
        facts = f"{own}, shape, {axes}, {whole.dtype.bits}, &part"
        undo = "c->undo" if self._placed.undo is not None and is_partly_written(step, self._plan) else "NULL"
        self._line(depth, f"oi_tensor_part({action}, {facts}, {value}, UINT64_C(0x{element:x}), {undo});")

    def _lengths(self, step: TableStep | PartStep, value: Value, kept: Iterable[int], depth: int) -> None:
        """The lengths of a part are those of a tensor; one that is read can be the first to have a dynamic size."""
        node, binds = step.node, step.action is not Action.WRITE
        for axis, extent in sorted(zip(kept, value.shape, strict=False), key=lambda pair: len(sizes_in(pair[1])) > 1):
            actual = Integer(f"part.count[{axis}]", 0, (1 << 63) - 1)
            if binds:
                self._agree(extent, actual, node, depth, is_exact=step.is_exact)
            else:
                self._require_known(sizes_in(extent), node, depth)
                fail = self._fail(node, BAD_LENGTH)
                self._line(depth, f"if ({actual.text} != {self.extent(extent).text}) {fail}")
        if binds:
            self._guard([value], node, depth)


def _in_columns(lines: list[str]) -> list[str]:
    """Declarations with their comments under each other, where these do not stand too far to the right."""
    ends = [line.find("; /*") + 1 for line in lines]
    column = max((end for end in ends if 0 < end <= 72), default=0)
    return [
        f"{line[:end]:<{column}}{line[end:]}" if 0 < end <= column else line
        for line, end in zip(lines, ends, strict=True)
    ]


def _executed(nodes: Sequence[Node]) -> int:
    """How many nodes are executed when these are, not counting the turns of loops among them."""
    todo, count = list(nodes), 0
    while todo:
        node = todo.pop()
        count += 1
        if not isinstance(node.kind, Loop):
            todo += node.body
    return count
