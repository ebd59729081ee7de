"""How steps work on memory, in C: function calls, and copies."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from openinfer.loops.dim import most_elements
from openinfer.loops.ir import Buffer, Kernel
from openinfer.loops.rewrite import with_buffers
from openinfer.loops.used import used_buffers
from openinfer.synth.memory.checks.records import ChosenTensor, EntryChecks, KernelChecks, MoveChecks, SliceChecks
from openinfer.synth.memory.state import element_bits
from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.program.ir import EntryStep, KernelStep, Move, PartStep, StepOperand, TableStep, Value, WeightCheck
from openinfer.synth.targets.c.dialect import stored_type
from openinfer.synth.targets.c.entries import Entries
from openinfer.synth.targets.c.memory_calls import MemoryCalls
from openinfer.synth.targets.c.operands import Operands
from openinfer.synth.targets.c.parts import Parts
from openinfer.synth.targets.c.pointers import Pointers
from openinfer.synth.targets.cstyle.host.file import HostFile
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter
from openinfer.synth.targets.cstyle.library import KernelLibrary, PrintKernel
from openinfer.synth.targets.cstyle.names import comment


class CCalls:
    """The ``HostCalls`` of the C target."""

    def __init__(
        self,
        file: HostFile,
        sizes: SizePrinter,
        indices: IndexPrinter,
        pointers: Pointers,
        printed: PrintKernel,
        memory: MemoryCalls | None = None,
    ) -> None:
        memory = memory or MemoryCalls()
        self.kernels = KernelLibrary(file.name, printed)
        self._file = file
        self._sizes = sizes
        self._pointers = pointers
        self._operands = Operands(file, pointers, indices)
        self._parts = Parts(file, sizes, indices, pointers, self._operands, memory)
        self._entries = Entries(file, pointers, self._operands, memory)

    def pointer(self, value: Value) -> str:
        """The name of a value's memory in the current function."""
        return self._pointers.pointer(value)

    def looked_at(self, value: Value, depth: int) -> None:
        """Does nothing: C has no pending work, so a scalar is always up to date."""

    def changed(self, value: Value, depth: int) -> None:
        """Does nothing: everything that reads the scalar reads this memory."""

    def pointer_type(self, value: Value) -> str:
        """The pointee type of a parameter that takes the address of a value."""
        return f"{'const ' if value.storage.is_read_only else ''}{stored_type(value.dtype)}"

    def address(self, operand: StepOperand, checks: ChosenTensor | None, depth: int) -> str:
        """The name of an operand's memory in the current function."""
        return self._operands.operand(operand, checks, depth)

    def kernel(self, step: KernelStep, checks: KernelChecks, depth: int) -> None:
        """Calls the function of a kernel, which can fail; all threads run the parts of a divided kernel."""
        kernel, inputs = self._unaliased(step, checks)
        arguments = [self._operands.operand(one, chosen, depth) for one, chosen in inputs]
        arguments += [self.pointer(one) for one in (*step.outputs, *step.scratch)]
        used = self.kernels.function(kernel, step)
        arguments += [self._sizes.place(size) for size in used.code.sizes]
        assert used.code.can_fail is (checks.failure is not None), "what is printed fails as it was planned"
        given = ", ".join(arguments)
        if step.parts > 1:
            self._file.needs.add("oi_team")
            call = f"&(const {used.name}_call){{ {given} }}"
            self._file.line(depth, f"oi_run(c->team, {step.parts}, {used.name}_part, {call});")
        elif checks.failure is None:
            self._file.line(depth, f"{used.name}({given});")
        else:
            self._file.line(depth, f"if ({used.name}({given})) {self._file.fail(checks.failure)}")

    def _unaliased(
        self, step: KernelStep, checks: KernelChecks
    ) -> tuple[Kernel, list[tuple[StepOperand, ChosenTensor | None]]]:
        """The kernel with one parameter for each memory: an input that is also written becomes the output itself.

        Values of which the kernel only uses the shape are not parameters.
        """
        root = self._file.placed.memory.classes.root
        written = {root(value): buffer for value, buffer in zip(step.outputs, step.kernel.outputs, strict=True)}
        touched = used_buffers(step.kernel)
        merged: dict[str, Buffer] = {}
        inputs: list[tuple[StepOperand, ChosenTensor | None]] = []
        kept: list[Buffer] = []
        for operand, chosen, buffer in zip(step.inputs, checks.inputs, step.kernel.inputs, strict=True):
            out = written.get(root(operand)) if isinstance(operand, Value) else None
            if out is None:
                if buffer.name in touched or not isinstance(operand, Value):
                    inputs.append((operand, chosen))
                    kept.append(buffer)
                continue
            assert out.dtype is buffer.dtype, "two types in one memory"
            merged[buffer.name] = out
        kernel = with_buffers(step.kernel, merged) if merged else step.kernel
        return replace(kernel, inputs=tuple(kept)), inputs

    def fill(self, value: Value, depth: int) -> None:
        """Fills all the memory that a variable can need with its initial value."""
        element = element_bits(value.dtype, self._file.program.bound.vars[str(value.variable)].origin)
        self._file.needs.add("oi_fill")
        memory, count = f"(unsigned char *){self.pointer(value)}", most_elements(value.shape)
        self._file.line(depth, f"oi_fill({memory}, {value.dtype.bits}, 0, {count}, UINT64_C(0x{element:x}));")

    def move(self, step: Move, checks: MoveChecks, depth: int, *, is_whole: bool) -> None:
        """Copies a value; with ``is_whole``, all the memory that it can need."""
        source, target = self._operands.operand(step.src, checks.source, depth), self.pointer(step.dst)
        if is_whole:
            self._file.line(depth, f"memcpy({target}, {source}, {step.dst.nbytes});")
            return
        about = "" if step.dst.variable is None else f" /* {comment(str(step.dst.variable))} */"
        self._file.line(depth, f"memcpy({target}, {source}, {self._sizes.nbytes(step.dst)});{about}")

    def table(self, step: TableStep, checks: SliceChecks | None, depth: int) -> None:
        """Accesses a slice of a table."""
        self._parts.table(step, checks, depth)

    def part(self, step: PartStep, checks: SliceChecks, depth: int) -> None:
        """Accesses a slice of a tensor."""
        self._parts.part(step, checks, depth)

    def entry(self, step: EntryStep | WeightCheck, checks: EntryChecks, depth: int) -> None:
        """Accesses an entry of a prefix table, or checks that it exists."""
        if isinstance(step, WeightCheck):
            self._entries.check(step, checks.chosen, depth)
        else:
            self._entries.entry(step, checks.chosen, depth)

    def marked(self, rows: Sequence[Reported], first: int) -> list[str]:
        """Trace lines, empty unless compiled with traces: one for a node, or for several nodes without values."""
        lines = []
        for _, group in groupby(enumerate(rows, first), lambda one: -1 if one[1].value is None else one[1].node):
            numbered = list(group)
            (begin, row), (end, _) = numbered[0], numbered[-1]
            if row.value is None and begin < end:
                lines.append(f"TRACE_NODES({begin}, {end}, {self._numbers(row)});")
            else:
                lines.append(" ".join(self._traced(one, number) for number, one in numbered))
        return lines

    def _traced(self, row: Reported, number: int) -> str:
        """The trace call for a row: its value, its extents, and the loop indices."""
        data = self.pointer(row.value) if isinstance(row.value, Value) else "NULL"
        return f"TRACE({number}, {data}, {self._numbers(row)});"

    def _numbers(self, row: Reported) -> str:
        extents = [] if row.value is None else [self._sizes.extent(extent).text for extent in row.value.shape]
        return ", ".join([*extents, *(found.text for _, found in self._file.now.loops)]) or "0"
