"""The blocks of a program as C functions: control flow, kernel calls, moves, tables, sizes.

Each function first names the memory it works on; then come its steps, each under the node it comes from.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from openinfer.errors import Code, Diagnostic, GraphError, Span
from openinfer.ir.expr import Binary, Expr, names
from openinfer.ir.text import node_head
from openinfer.loops.dim import Dim, expr_of, sizes_in
from openinfer.loops.ir import Buffer, Fail, Kernel, walk
from openinfer.loops.rewrite import with_buffers
from openinfer.loops.text import kernel_text
from openinfer.synth.c.integers import Integer, IntegerPrinter, number
from openinfer.synth.c.kernels import Printed, printed
from openinfer.synth.c.names import comment, field as field_name
from openinfer.synth.c.solve import solved
from openinfer.synth.c.tables import Picks, TableAccess, TableLayout, element_bits, picks, table_layout
from openinfer.synth.c.types import stored_type
from openinfer.synth.place import MemoryPlan
from openinfer.synth.program import (
    BindSize,
    BranchStep,
    CallStep,
    Fence,
    KernelStep,
    LoopStep,
    Move,
    PartStep,
    Program,
    Step,
    Store,
    Table,
    TableStep,
    Value,
    Weight,
)
from openinfer.synth.weights import WeightLayout

PAD = "    "
_BAD_INDEX = "an index is outside, or its expression divides by zero or needs more than 64 bits"
_BAD_SIZE = "an extent is not the one that its variable has, or a dynamic size has no value or one out of range"
_NO_MEMORY = "there is no memory for a table to grow"


@dataclass(frozen=True)
class Failure:
    """Something that can go wrong while running, and the node where it does."""

    node: int
    status: str
    reason: str


@dataclass
class UsedKernel:
    """A kernel as a function, and the calls of it."""

    name: str
    kernel: Kernel
    code: Printed
    steps: list[KernelStep] = field(default_factory=list)

    @property
    def prototype(self) -> str:
        """What a header says of it."""
        line = next(line for line in self.code.text.splitlines() if f" {self.name}(" in line and line.endswith(")"))
        return f"{line};"


@dataclass
class KernelLibrary:
    """Kernels by what they are: two calls of the same kernel are one function."""

    prefix: str
    used: dict[str, UsedKernel] = field(default_factory=dict)

    def function(self, kernel: Kernel, step: KernelStep) -> UsedKernel:
        """The C function of a kernel."""
        key = kernel_text(kernel)
        if key not in self.used:
            name = f"{self.prefix}_k{len(self.used)}_{kernel.name}"
            self.used[key] = UsedKernel(name, kernel, printed(kernel, name, linkage=""))
        self.used[key].steps.append(step)
        return self.used[key]


@dataclass
class _Function:
    """A C function in the making: what it names, its lines, and what is certain where the next line stands."""

    lines: list[str] = field(default_factory=list)
    pointers: dict[str, str] = field(default_factory=dict)
    loops: list[tuple[str, Integer]] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    """Sizes that have values, and extents that are in range."""
    count: int = 0
    has_bad: bool = False


class StepPrinter:
    """Prints the blocks of a program."""

    def __init__(self, program: Program, plan: MemoryPlan, weights: WeightLayout, name: str, *, heap: bool) -> None:
        self._program = program
        self._plan = plan
        self._weights = weights
        self._name = name
        self._nodes = {node.index: node for node in program.bound.graph.walk()}
        self.kernels = KernelLibrary(name)
        self.needs: set[str] = set()
        self.failures: dict[Failure, int] = {}
        self.size_fields = {size: field_name("s_", size, place) for place, size in enumerate(program.sizes)}
        self.size_fields |= {size: f"s_{size}" for size in program.sizes if not size.isidentifier()}
        self.input_fields = {key: field_name("v_", key, place) for place, key in enumerate(program.inputs)}
        self._integers = IntegerPrinter(self._named, self.needs)
        self.input_sizes = sorted(
            {size for value in program.inputs.values() for extent in value.shape for size in sizes_in(extent)}
        )
        self._lay_out(heap=heap)

    def _lay_out(self, *, heap: bool) -> None:
        """The state: plain variables, then tables; those without bounds have memory of their own."""
        self.state_offsets: dict[Value, int] = {}
        offset = 0
        for home in self._program.homes.values():
            if home.store is Store.STATE:
                self.state_offsets[home] = offset
                offset += -(-home.nbytes // 64) * 64
        self.tables: dict[str, TableLayout] = {}
        self.heaps = 0
        for place, (key, table) in enumerate(self._program.tables.items()):
            own = None
            if None in table.bounds:
                _require_heap(table, heap=heap)
                own = self.heaps
                self.heaps += 1
            self.tables[key] = table_layout(table, place, offset, own)
            offset += self.tables[key].size
        self.state_size = offset

    # --- functions ------------------------------------------------------------------------------------------------

    def block_name(self, name: str) -> str:
        """The C function of a block."""
        return field_name("block_", name, list(self._program.blocks).index(name))

    def block(self, name: str) -> str:
        """A block as a C function."""
        self._now = _Function(known=set(self.input_sizes))
        self._body(self._program.blocks[name], 1)
        now = self._now
        head = [f"static int {self.block_name(name)}({self._name}_context *c)", "{"]
        tops = list(now.pointers.values())
        if now.has_bad:
            tops.append("bool bad = false; /* an index expression has gone wrong */")
        if not tops and not any("c->" in line or "(c" in line for line in now.lines):
            tops.append("(void)c;")
        gap = [""] if now.pointers else []
        text = [*head, *(PAD + line for line in _in_columns(tops)), *gap, *now.lines, f"{PAD}return 0;", "}"]
        return "\n".join(text) + "\n"

    def _line(self, depth: int, text: str) -> None:
        self._now.lines.append(PAD * depth + text)

    def _body(self, steps: list[Step], depth: int) -> None:
        last: tuple[int, ...] = ()
        for step in steps:
            nodes = (step.nodes if isinstance(step, KernelStep) else ()) or (step.node,)
            if nodes != last:
                for node in nodes:
                    self._heading(node, depth)
            last = nodes
            self._step(step, depth)

    def _heading(self, node: int, depth: int) -> None:
        if node >= 0 and node in self._nodes:
            self._line(depth, f"/* {node}: {comment(node_head(self._nodes[node]))};{self._line_number(node)} */")

    def _line_number(self, node: int) -> str:
        line = self.source_line(node)
        return f" line {line}" if line is not None else ""

    def source_line(self, node: int) -> int | None:
        """The line of the source that a node stands on."""
        span = self._nodes[node].span if node in self._nodes else None
        return span.source.position(span.start)[0] if isinstance(span, Span) else None

    def where(self, node: int) -> str:
        """A node in words."""
        if node not in self._nodes:
            return ""
        line = self.source_line(node)
        place = f"node {node}" if line is None else f"node {node}, line {line}"
        return f"{place}: {node_head(self._nodes[node])}"

    def _fail(self, node: int, status: str, reason: str) -> str:
        failure = Failure(node, status, reason)
        place = self.failures.setdefault(failure, len(self.failures))
        return f"return fail(c, {self._name.upper()}_{status}, {place});"

    def input_checks(self) -> list[str]:
        """What must be true of the inputs before anything runs."""
        self._now = _Function(known=set(self.input_sizes))
        for size in self.input_sizes:
            fail = self._fail(-1, "ERROR_SIZE", f"the size {size} is not between 0 and {self._program.sizes[size]}")
            own = f"c->{self.size_fields[size]}"
            self._line(1, f"if ({own} < 0 || {own} > {self._program.sizes[size]}) {fail}")
        for key, value in self._program.inputs.items():
            fail = self._fail(-1, "ERROR_INPUT", f"the input {key} is missing")
            own = f"in->{self.input_fields[key]}"
            self._line(1, f"if ({own} == NULL) {fail}")
            fail = self._fail(-1, "ERROR_INPUT", f"the input {key} lies in the memory that a step works in: copy it")
            self._line(1, f"if (is_ours(c, {own})) {fail}")
            self._guard([value], -1, 1)
        return [f"{PAD}bool bad = false;"] * self._now.has_bad + self._now.lines

    # --- steps ----------------------------------------------------------------------------------------------------

    def _step(self, step: Step, depth: int) -> None:
        match step:
            case KernelStep():
                if not step.inputs and step.kernel.name == "fill":
                    self._if_known(step.outputs, depth, lambda inner: self._guarded_call(step, inner))
                else:
                    self._guarded_call(step, depth)
            case Move(src=src, dst=dst):
                if not (isinstance(src, Value) and self._plan.is_same(src, dst)):
                    self._if_known([dst], depth, lambda inner: self._move(step, inner))
            case LoopStep():
                self._loop(step, depth)
            case BranchStep():
                self._branch(step, depth)
            case Fence():
                pass
            case BindSize(declared, found):
                self._require_known(sizes_in(found), step.node, depth)
                self._agree(declared, self._extent(found), step.node, depth)
            case CallStep(block=block):
                self._line(depth, f"if ({self.block_name(block)}(c)) return 1;")
            case TableStep():
                self._table(step, depth)
            case PartStep():
                self._part(step, depth)
            case _:
                raise TypeError(step)

    def _if_known(self, values: list[Value], depth: int, then: Callable[[int], None]) -> None:
        """What is done only if the sizes have values: a variable that nobody could write yet needs no initial value."""
        unknown = sorted({size for value in values for one in value.shape for size in sizes_in(one)} - self._now.known)
        if not unknown:
            then(depth)
            return
        known = set(self._now.known)
        self._line(depth, f"if ({' && '.join(f'c->{self.size_fields[size]} >= 0' for size in unknown)}) {{")
        self._now.known |= set(unknown)
        then(depth + 1)
        self._now.known = known
        self._line(depth, "}")

    def _guarded_call(self, step: KernelStep, depth: int) -> None:
        self._guard([*step.outputs, *step.scratch], step.node, depth)
        self._call(step, depth)

    def _move(self, step: Move, depth: int) -> None:
        self._guard([step.dst], step.node, depth)
        source = self._operand(step.src, step.node, depth)
        self._line(depth, f"memcpy({self._pointer(step.dst)}, {source}, {self._nbytes(step.dst)});")

    def _call(self, step: KernelStep, depth: int) -> None:
        kernel, inputs = self._unaliased(step)
        arguments = [self._operand(one, step.node, depth) for one in inputs]
        arguments += [self._pointer(one) for one in (*step.outputs, *step.scratch)]
        used = self.kernels.function(kernel, step)
        arguments += [f"c->{self.size_fields[size]}" for size in used.code.sizes]
        call = f"{used.name}({', '.join(arguments)})"
        if not used.code.can_fail:
            self._line(depth, f"{call};")
            return
        reasons = dict.fromkeys(one.reason for one in walk(kernel.body) if isinstance(one, Fail))
        self._line(depth, f"if ({call}) {self._fail(step.node, 'ERROR_VALUE', '; or '.join(reasons))}")

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
        self._line(depth, f"/* {step.node}: {comment(node_head(self._nodes[step.node]))};{self._line_number(step.node)} */")
        if start.can_fail or end.can_fail:
            self._now.has_bad = True
            self._line(depth, f"const int64_t first_{index[2:]} = {start.text}, {last} = {end.text};")
            self._line(depth, f"if (bad) {self._fail(step.node, 'ERROR_INDEX', _BAD_INDEX)}")
            head = f"for (int64_t {index} = first_{index[2:]}; {index} < {last}; ++{index}) {{"
        elif end.text.lstrip("-").isdigit():
            head = f"for (int64_t {index} = {start.text}; {index} < {end.text}; ++{index}) {{"
        else:
            head = f"for (int64_t {index} = {start.text}, {last} = {end.text}; {index} < {last}; ++{index}) {{"
        self._line(depth, head)
        self._now.loops.append((step.index, Integer(index, start.least, max(end.most - 1, start.least))))
        known = set(self._now.known)
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

    # --- tables and parts -----------------------------------------------------------------------------------------

    def _picked(self, found: Picks, depth: int) -> str:
        """The indices of an access, and the condition that they have values."""
        for line in found.lines:
            self._line(depth, line)
        self._now.has_bad = self._now.has_bad or found.can_fail
        return "bad || " if found.can_fail else ""

    def _table(self, step: TableStep, depth: int) -> None:
        layout = self.tables[step.table.variable.name]
        grid = f"grid{layout.number}"
        if step.action == "reset" and not step.indices:
            self.needs.add("oi_table_clear")
            self._line(depth, f"{{ const oi_grid grid = {grid}(c); oi_table_clear(&grid); }}")
            return
        access = TableAccess(layout, step)
        found = picks(access.ordered, access.grown, self._integers.integer)
        self.needs |= {"oi_select", f"oi_table_{step.action}"}
        self._line(depth, "{")
        self._line(depth + 1, f"const oi_grid grid = {grid}(c);")
        bad = self._picked(found, depth + 1)
        is_write = "true" if step.action == "write" else "false"
        fail = self._fail(step.node, "ERROR_INDEX", _BAD_INDEX)
        self._line(depth + 1, f"if ({bad}!oi_select(&grid, pick, {is_write}, &part)) {fail}")
        if step.action == "reset":
            whole = "true" if access.is_whole_matrix else "false"
            self._line(depth + 1, f"oi_table_reset(&grid, &part, {whole});")
        else:
            assert step.value is not None
            self._lengths(step.value, found.kept, step.node, depth + 1, binds=step.action == "read")
            if step.action == "write" and layout.heap is not None:
                self.needs.add("oi_table_grow")
                fail = self._fail(step.node, "ERROR_MEMORY", _NO_MEMORY)
                self._line(depth + 1, f"if (!oi_table_grow(&grid, &part)) {fail}")
            self._line(depth + 1, f"oi_table_{step.action}(&grid, &part, {self._pointer(step.value)});")
        self._line(depth, "}")

    def _part(self, step: PartStep, depth: int) -> None:
        whole = step.whole
        self.needs |= {"oi_inside", "oi_tensor_part"}
        axes = len(whole.shape)
        if isinstance(whole, Value):
            self._guard([whole], step.node, depth)
        found = picks(step.indices, [False] * axes, self._integers.integer)
        self._line(depth, "{")
        self._line(depth + 1, f"const int64_t shape[] = {{ {', '.join(self._extent(one).text for one in whole.shape)} }};")
        bad = self._picked(found, depth + 1)
        fail = self._fail(step.node, "ERROR_INDEX", _BAD_INDEX)
        self._line(depth + 1, f"if ({bad}!oi_inside(pick, shape, {axes}, &part)) {fail}")
        if isinstance(step.value, Value) and step.action != "reset":
            self._lengths(step.value, found.kept, step.node, depth + 1, binds=step.action == "read")
        action, value, element = {"read": "OI_READ", "write": "OI_WRITE", "reset": "OI_COPY"}[step.action], "NULL", 0
        if step.value is not None:
            value = self._operand(step.value, step.node, depth + 1)
        else:
            action = "OI_FILL"
            element = element_bits(whole.dtype, self._program.bound.vars[str(whole.variable)].origin)  # type: ignore[union-attr]
        own = self._operand(whole, step.node, depth + 1)
        own = f"(void *)(uintptr_t){own}" if isinstance(whole, Weight) or self._is_input(whole) else own
        facts = f"{own}, shape, {axes}, {whole.dtype.bits}, &part"
        self._line(depth + 1, f"oi_tensor_part({action}, {facts}, {value}, UINT64_C(0x{element:x}));")
        self._line(depth, "}")

    def _is_input(self, value: Value) -> bool:
        return self._plan.classes.root(value).store is Store.INPUT

    def _lengths(self, value: Value, kept: Iterable[int], node: int, depth: int, *, binds: bool) -> None:
        """The lengths of a part are those of a tensor; one that is read can be the first to have a dynamic size."""
        for axis, extent in zip(kept, value.shape, strict=False):
            actual = Integer(f"part.count[{axis}]", 0, (1 << 63) - 1)
            if binds:
                self._agree(extent, actual, node, depth)
            else:
                self._require_known(sizes_in(extent), node, depth)
                fail = self._fail(node, "ERROR_SIZE", _BAD_SIZE)
                self._line(depth, f"if ({actual.text} != {self._extent(extent).text}) {fail}")
        if binds:
            self._guard([value], node, depth)

    # --- sizes ----------------------------------------------------------------------------------------------------

    def extent_text(self, extent: int) -> str:
        """An extent in C, anywhere a context is at hand."""
        return self._extent(extent).text

    def _extent(self, extent: int) -> Integer:
        return self._sizes_only.integer(expr_of(extent))

    @property
    def _sizes_only(self) -> IntegerPrinter:
        return IntegerPrinter(self._size, self.needs)

    def _size(self, name: str) -> Integer:
        return Integer(f"c->{self.size_fields[name]}", 0, self._program.sizes[name])

    def _agree(self, extent: int, actual: Integer, node: int, depth: int) -> None:
        """An extent is what was found; a size that has no value yet gets it from there."""
        fail = self._fail(node, "ERROR_SIZE", _BAD_SIZE)
        unknown = sorted(sizes_in(extent) - self._now.known)
        if len(sizes_in(extent)) == 1 and unknown:
            (size,) = unknown
            self._bind(size, extent, actual, fail, depth)
            self._now.known.add(size)
            if not size.isidentifier():
                return
        else:
            self._require_known(unknown, node, depth)
        self._line(depth, f"if ({actual.text} != {self._extent(extent).text}) {fail}")

    def _bind(self, size: str, extent: int, actual: Integer, fail: str, depth: int) -> None:
        most, place = self._program.sizes[size], f"c->{self.size_fields[size]}"
        if not size.isidentifier():
            # The length of a slice belongs to its node alone: it is another one whenever the node runs.
            self._line(depth, f"if ({actual.text} > {min(most, int(extent))}) {fail}")
            self._line(depth, f"{place} = {actual.text};")
            return
        found = solved(expr_of(extent), size, actual.text, most)
        if found is None:
            message = f"the size {size!r} is to be found from '{extent!r}'"
            raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, "let a dimension be the size itself"))
        self._line(depth, f"if ({place} < 0 && {found.condition}) {place} = {found.value};")
        self._line(depth, f"if ({place} < 0) {fail}")

    def _require_known(self, sizes: Iterable[str], node: int, depth: int) -> None:
        for size in sorted(set(sizes) - self._now.known):
            fail = self._fail(node, "ERROR_SIZE", _BAD_SIZE)
            self._line(depth, f"if (c->{self.size_fields[size]} < 0) {fail}")
            self._now.known.add(size)

    def _guard(self, values: Iterable[Value], node: int, depth: int) -> None:
        """Values about to be written have extents, and no more elements than there is memory for."""
        for value in values:
            for extent in value.shape:
                self._require_known(sizes_in(extent), node, depth)
                self._require_range(extent, node, depth)
            for quotient in self._quotients(value):
                self._require_even(quotient, node, depth)

    def _require_range(self, extent: int, node: int, depth: int) -> None:
        key = f"{extent!r} <= {int(extent)}"
        if not isinstance(extent, Dim) or key in self._now.known:
            return
        self._now.known.add(key)
        found = self._extent(extent)
        checks = [f"{found.text} < 0"] * (found.least < 0)
        checks += [f"{found.text} > {int(extent)}"] * (found.most > int(extent))
        checks += ["bad"] * found.can_fail
        self._now.has_bad = self._now.has_bad or found.can_fail
        if checks:
            self._line(depth, f"if ({' || '.join(checks)}) {self._fail(node, 'ERROR_SIZE', _BAD_SIZE)}")

    def _quotients(self, value: Value) -> Iterator[Binary]:
        """The divisions in the declared dimensions of a variable, which must be even."""
        variable = self._program.bound.vars.get(value.variable or "")
        if variable is None or not variable.is_dynamic or variable.is_table:
            return
        stack: list[Expr] = list(variable.dims or ())
        while stack:
            expr = stack.pop()
            if isinstance(expr, Binary):
                stack += [expr.left, expr.right]
                if expr.op == "/" and set(names(expr)) & self._program.sizes.keys():
                    yield expr

    def _require_even(self, quotient: Binary, node: int, depth: int) -> None:
        key = f"{quotient} is even"
        if key in self._now.known:
            return
        self._now.known.add(key)
        printer = IntegerPrinter(self._any_size, self.needs)
        self._require_known(set(names(quotient)) & self._program.sizes.keys(), node, depth)
        left = printer.integer(Binary("%", quotient.left, quotient.right))
        self._now.has_bad = self._now.has_bad or left.can_fail
        check = f"{left.text} != 0" + (" || bad" if left.can_fail else "")
        self._line(depth, f"if ({check}) {self._fail(node, 'ERROR_SIZE', _BAD_SIZE)}")

    def _any_size(self, name: str) -> Integer:
        return self._size(name) if name in self._program.sizes else number(self._program.bound.sizes[name])

    def _nbytes(self, value: Value) -> str:
        count: int = 1
        for extent in value.shape:
            count = extent * count
        if not isinstance(count, Dim):
            return str(value.dtype.nbytes(count))
        text, bits = self._extent(count).text, value.dtype.bits
        if bits % 8 == 0:
            return f"(size_t){text}" if bits == 8 else f"(size_t){text} * {bits // 8}"
        return f"((size_t){text} * {bits} + 7) / 8"

    # --- operands -------------------------------------------------------------------------------------------------

    def location(self, value: Value) -> str:
        """A pointer to a value's first element, without regard to any function."""
        root = self._plan.classes.root(value)
        kind = stored_type(value.dtype)
        match root.store:
            case Store.INPUT:
                return f"c->in->{self.input_fields[str(root.variable)]}"
            case Store.STATE:
                return f"({kind} *)(c->state + {self.state_offsets[root]})"
            case _:
                return f"({kind} *)(c->arena + {self._plan.offset(root)})"

    def _pointer(self, value: Value) -> str:
        """The name of a value's memory in this function."""
        if value.name not in self._now.pointers:
            kind = f"{'const ' if self._is_input(value) else ''}{stored_type(value.dtype)}"
            shape = ", ".join(map(repr, value.shape))
            about = comment(f"{value.variable}: {value.dtype.name}[{shape}]")
            self._now.pointers[value.name] = f"{kind} *const {value.name} = {self.location(value)}; /* {about} */"
        return value.name

    def _operand(self, operand: Value | Weight, node: int, depth: int) -> str:
        if isinstance(operand, Value):
            return self._pointer(operand)
        kind, where = stored_type(operand.dtype), self._weight_place(operand, node, depth)
        about = operand.names[0] if len(operand.names) == 1 else f"{operand.names[0]} and {len(operand.names) - 1} more"
        shape = ", ".join(map(repr, operand.shape))
        part = "" if operand.part == "data" else f"{operand.part} of "
        about = comment(f"{part}{about}: {operand.dtype.name}[{shape}]")
        text = f"= (const {kind} *)(c->weights + {where}); /* {about} */"
        if not operand.index:
            key = f"{operand.dtype.name} {where}"
            if key not in self._now.pointers:
                self._now.pointers[key] = f"const {kind} *const w{len(self._now.pointers)} {text}"
            return self._now.pointers[key].split("*const ", 1)[1].split(" ", 1)[0]
        self._now.count += 1
        name = f"wi{self._now.count}"
        self._line(depth, f"const {kind} *const {name} {text}")
        return name

    def _weight_place(self, weight: Weight, node: int, depth: int) -> str:
        """The offset of a weight; of one that indices choose, the expression of it."""
        offsets = [self._weights.offset(weight, name) if name else None for name in weight.names]
        if not weight.index:
            return str(offsets[0])
        self._now.count += 1
        place = f"at{self._now.count}"
        parts, checks, is_bad = [], [], False
        for expr, extent, first in zip(weight.index, weight.extents, weight.firsts, strict=True):
            found = self._integers.integer(expr)
            is_bad = is_bad or found.can_fail
            if not found.is_within(first, first + extent - 1):
                checks.append(f"{found.text} < {first} || {found.text} > {first + extent - 1}")
            parts.append(found.text if first == 0 else f"({found.text} - {first})")
        self._now.has_bad = self._now.has_bad or is_bad
        checks += ["bad"] * is_bad
        fail = self._fail(node, "ERROR_INDEX", "the model has no tensor for these indices")
        if checks:
            self._line(depth, f"if ({' || '.join(checks)}) {fail}")
        index = parts[0]
        for part, extent in zip(parts[1:], weight.extents[1:], strict=True):
            index = f"({index} * {extent} + {part})"
        known = [offset for offset in offsets if offset is not None]
        stride = known[1] - known[0] if len(known) > 1 else 0
        if offsets == [known[0] + stride * place for place in range(len(offsets))]:
            return f"{known[0]} + {index} * {stride}" if stride else str(known[0])
        listed = ", ".join(str(-1 if offset is None else offset) for offset in offsets)
        self._line(depth, f"static const int64_t offsets_{place}[] = {{ {listed} }};")
        self._line(depth, f"const int64_t {place} = offsets_{place}[{index}];")
        if None in offsets:
            self._line(depth, f"if ({place} < 0) {fail}")
        return place

    # --- integers -------------------------------------------------------------------------------------------------

    def _named(self, name: str) -> Integer:
        """A name in an index expression: a loop index, then a scalar variable, then a size."""
        for index, found in reversed(self._now.loops):
            if index == name:
                return found
        if name in self._program.bound.vars:
            constant = self._program.bound.constants.get(name)
            return self._scalar(self._program.homes[name]) if constant is None else number(int(constant))
        return self._any_size(name)

    def _scalar(self, home: Value) -> Integer:
        dtype, pointer = home.dtype, self._pointer(home)
        if dtype.is_packed:
            self.needs.add(f"oi_load_{dtype.name}")
            values = dtype.values or (-(1 << (dtype.bits - 1)), (1 << dtype.bits) - 1)
            return Integer(f"(int64_t)oi_load_{dtype.name}({pointer}, 0)", min(values), max(values))
        if dtype.name == "u64":
            self.needs.add("oi_index_u64")
            return Integer(f"oi_index_u64(*{pointer}, &bad)", 0, (1 << 63) - 1, can_fail=True)
        least, most = (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.kind == "int" else (0, 0)
        most = most if dtype.kind == "int" else (1 << dtype.bits) - 1
        return Integer(f"(int64_t)*{pointer}", least, most)


def _in_columns(lines: list[str]) -> list[str]:
    """Declarations with their comments under each other, where these do not stand too far to the right."""
    ends = [line.find("; /*") + 1 for line in lines]
    column = max((end for end in ends if 0 < end <= 72), default=0)
    return [
        f"{line[:end]:<{column}}{line[end:]}" if 0 < end <= column else line
        for line, end in zip(lines, ends, strict=True)
    ]


def _require_heap(table: Table, *, heap: bool) -> None:
    if heap:
        return
    decl = table.variable.decl
    message = f"the table {table.variable.name!r} can grow without bound, and there is no heap"
    advice = "bound its indices with @fixed(...)"
    raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, decl.span if decl else None, advice))
