"""The step function and its surroundings in C: control flow, kernel calls, moves, tables, sizes."""

from collections.abc import Mapping
from dataclasses import dataclass

from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir.expr import Binary, Expr, Neg, Num, Ref
from openinfer.ir.text import node_head
from openinfer.loops.dim import Dim
from openinfer.loops.ir import Buffer, Kernel
from openinfer.loops.rewrite import with_buffers
from openinfer.loops.text import kernel_text
from openinfer.synth.c.kernels import Printed, printed
from openinfer.synth.c.scalars import size_text
from openinfer.synth.c.tables import TableLayout, TablePrinter, table_layout
from openinfer.synth.c.types import stored_type
from openinfer.synth.place import MemoryPlan
from openinfer.synth.program import (
    BranchStep,
    CallStep,
    Fence,
    KernelStep,
    LoopStep,
    Move,
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


@dataclass
class KernelLibrary:
    """Kernels by what they are: two calls of the same kernel are one function."""

    printed: dict[str, tuple[str, Printed]]

    def function(self, kernel: Kernel) -> tuple[str, Printed]:
        """The C function of a kernel: its name and its text."""
        key = kernel_text(kernel)
        if key not in self.printed:
            name = f"k{len(self.printed)}_{kernel.name}"
            self.printed[key] = (name, printed(kernel, name))
        return self.printed[key]


class StepPrinter:
    """Prints the blocks of a program."""

    def __init__(self, program: Program, plan: MemoryPlan, weights: WeightLayout, name: str) -> None:
        self._program = program
        self._plan = plan
        self._weights = weights
        self._name = name
        self._nodes = {node.index: node for node in program.bound.graph.walk()}
        self.kernels = KernelLibrary({})
        self._lines: list[str] = []
        self._loops: list[str] = []
        self.needs: set[str] = set()
        self.state_offsets, offset = _state_layout(program)
        self.tables: dict[str, TableLayout] = {}
        for number, (key, table) in enumerate(program.tables.items()):
            layout = table_layout(_bounded(table), number, offset)
            self.tables[key] = layout
            offset += layout.size
        self.state_size = offset

    def block(self, name: str) -> str:
        """A block as a C function."""
        self._lines = []
        self._loops = []
        self._body(self._program.blocks[name], 1)
        head = f"static int block_{name}({self._name}_context *c)"
        body = [] if any("c->" in line or "(c" in line for line in self._lines) else ["(void)c;"]
        return "\n".join([head, "{", *(PAD + line for line in body), *self._lines, f"{PAD}return 0;", "}"]) + "\n"

    def _line(self, depth: int, text: str) -> None:
        self._lines.append(PAD * depth + text)

    def _body(self, steps: list[Step], depth: int) -> None:
        last = -2
        for step in steps:
            if step.node != last and step.node >= 0 and not isinstance(step, LoopStep):
                self._line(depth, f"/* {step.node}: {comment(node_head(self._nodes[step.node]))} */")
            last = step.node
            self._step(step, depth)

    def _step(self, step: Step, depth: int) -> None:
        match step:
            case KernelStep():
                self._call(step, depth)
            case Move(src=src, dst=dst):
                if not (isinstance(src, Value) and self._plan.is_same(src, dst)):
                    size = self._nbytes(dst)
                    self._line(depth, f"memcpy({self.pointer(dst)}, {self.pointer(src)}, {size});")
            case LoopStep():
                self._loop(step, depth)
            case BranchStep():
                self._branch(step, depth)
            case Fence():
                pass
            case CallStep(block=block):
                self._line(depth, f"OI_TRY(block_{block}(c));")
            case TableStep():
                layout = self.tables[step.table.variable.name]
                for line in TablePrinter(layout, self._integer, self.pointer).access(step):
                    self._line(depth, line)
            case _:
                raise TypeError(step)

    def element_store(self, value: Value, pointer: str, text: str) -> str:
        """A statement that puts a number into element ``i``."""
        dtype = value.dtype
        if dtype.is_packed:
            self.needs.add(f"oi_store_{dtype.name}")
            return f"oi_store_{dtype.name}({pointer}, i, {text});"
        if dtype.name in ("f8", "bf16", "f16"):
            self.needs.add(f"oi_to_{dtype.name}")
            return f"{pointer}[i] = oi_to_{dtype.name}({text});"
        return f"{pointer}[i] = {text};"

    def _call(self, step: KernelStep, depth: int) -> None:
        kernel, inputs = self._unaliased(step)
        name, code = self.kernels.function(kernel)
        pointers = [*inputs, *(self.pointer(one) for one in (*step.outputs, *step.scratch))]
        sizes = [f"c->s_{size}" for size in code.sizes]
        call = f"{name}({', '.join([*pointers, *sizes])})"
        self._line(depth, f"if ({call}) return oi_fail(c, {step.node});" if code.can_fail else f"{call};")

    def _unaliased(self, step: KernelStep) -> tuple[Kernel, list[str]]:
        """The kernel with every memory as one parameter: an input that is also written is the output itself."""
        first: dict[str, Buffer] = {
            self.pointer(value): buffer for value, buffer in zip(step.outputs, step.kernel.outputs, strict=True)
        }
        merged: dict[str, Buffer] = {}
        pointers: list[str] = []
        for operand, buffer in zip(step.inputs, step.kernel.inputs, strict=True):
            text = self.pointer(operand)
            if text in first:
                merged[buffer.name] = first[text]
            else:
                first[text] = buffer
                pointers.append(text)
        return (with_buffers(step.kernel, merged) if merged else step.kernel), pointers

    def _loop(self, step: LoopStep, depth: int) -> None:
        index = f"i_{step.index}"
        start, end = self._integer(step.start), self._integer(step.end)
        self._line(depth, f"/* {step.node}: loop {comment(step.name)} */")
        self._line(depth, f"for (int64_t {index} = {start}, end_{index} = {end}; {index} < end_{index}; ++{index}) {{")
        self._loops.append(step.index)
        self._body(step.body, depth + 1)
        self._loops.pop()
        self._line(depth, "}")

    def _branch(self, step: BranchStep, depth: int) -> None:
        if step.cond is None:
            self._line(depth, f"OI_TRY(block_{step.then_block}(c));")
            return
        self._line(depth, f"if (*{self.pointer(step.cond)}) {{")
        self._line(depth + 1, f"OI_TRY(block_{step.then_block}(c));")
        if step.else_block is not None:
            self._line(depth, "} else {")
            self._line(depth + 1, f"OI_TRY(block_{step.else_block}(c));")
        self._line(depth, "}")

    # --- operands -------------------------------------------------------------------------------------------------

    def pointer(self, operand: Value | Weight) -> str:
        """A pointer to an operand's first element."""
        if isinstance(operand, Weight):
            return self._weight(operand)
        root = self._plan.classes.root(operand)
        kind = stored_type(operand.dtype)
        match root.store:
            case Store.INPUT:
                return f"c->in->v_{root.variable}"
            case Store.STATE:
                return f"({kind} *)(c->state + {self.state_offsets[root]})"
            case _:
                return f"({kind} *)(c->arena + {self._plan.offset(root)})"

    def _weight(self, weight: Weight) -> str:
        kind = stored_type(weight.dtype)
        if not weight.index:
            offset = str(self._weights.offset(weight, weight.names[0]))
        else:
            offsets = ", ".join(str(self._weights.offset(weight, name)) if name else "0" for name in weight.names)
            place = "0"
            for expr, extent, first in zip(weight.index, weight.extents, weight.firsts, strict=True):
                place = f"({place}) * {extent} + ({self._integer(expr)} - {first})"
            offset = f"((const size_t[]){{ {offsets} }})[{place}]"
        return f"(const {kind} *)(c->weights + {offset})"

    def _integer(self, expr: Expr) -> str:
        """An index expression: loop indices, then scalar variables, then sizes. Division floors."""
        match expr:
            case Num(value):
                return str(value) if value >= 0 else f"({value})"
            case Ref(name):
                return self._named(name)
            case Neg(operand):
                return f"(-{self._integer(operand)})"
            case Binary(op, left, right):
                one, other = self._integer(left), self._integer(right)
                if op in "/%":
                    return f"oi_{'div' if op == '/' else 'mod'}_floor({one}, {other})"
                return f"({one} {op} {other})"

    def _named(self, name: str) -> str:
        if name in self._loops:
            return f"i_{name}"
        if name in self._program.bound.vars:
            constant = self._program.bound.constants.get(name)
            if constant is not None:
                return str(constant)
            return f"(int64_t)*{self.pointer(self._program.homes[name])}"
        if name in self._program.sizes:
            return f"c->s_{name}"
        return str(self._program.bound.sizes[name])

    def _nbytes(self, value: Value) -> str:
        count: int = 1
        for extent in value.shape:
            count = extent * count
        if not isinstance(count, Dim):
            return str(value.dtype.nbytes(count))
        text = size_text(count.expr).replace("s_", "c->s_")
        return f"(size_t)({text} * {value.dtype.bits} + 7) / 8"


def comment(text: str) -> str:
    """Text that cannot end a comment and is plain ASCII."""
    plain = text.encode("ascii", "backslashreplace").decode("ascii")
    return plain.replace("*/", "* /").replace("\n", " ")


def _state_layout(program: Program) -> tuple[Mapping[Value, int], int]:
    offsets: dict[Value, int] = {}
    size = 0
    for home in program.homes.values():
        if home.store is Store.STATE:
            offsets[home] = size
            size += -(-home.nbytes // 64) * 64
    return offsets, size


def _bounded(table: Table) -> Table:
    """A table whose growing axes all have bounds; others need memory that is not there yet."""
    if None in table.bounds:
        decl = table.variable.decl
        message = f"the table {table.variable.name!r} can grow without bound"
        advice = "bound its indices with @fixed(...)"
        raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, decl.span if decl else None, advice))
    return table
