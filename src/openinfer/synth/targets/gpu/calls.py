"""How steps work on device memory: by launches, which are recorded.

The host selects what launches work on. Where that means reading memory that a launch writes, it waits for the launches
recorded so far.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from openinfer.loops.dim import is_symbolic, most_elements
from openinfer.loops.ir import (
    For,
    Kernel,
    Let,
    Load,
    Local,
    SetLocal,
    Space,
    Store,
    TileStep,
    While,
    WideLoad,
    WideStore,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import with_buffers
from openinfer.loops.used import used_buffers
from openinfer.synth.memory.checks.records import ChosenTensor, EntryChecks, KernelChecks, MoveChecks, SliceChecks
from openinfer.synth.memory.state import element_bits
from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.program.ir import (
    Action,
    EntryStep,
    KernelStep,
    Move,
    PartStep,
    StepOperand,
    Storage,
    TableStep,
    Value,
    WeightCheck,
)
from openinfer.synth.targets.c.calls import CCalls
from openinfer.synth.targets.c.memory_calls import MemoryCalls
from openinfer.synth.targets.c.operands import Operands
from openinfer.synth.targets.cstyle.host.indices import IndexPrinter
from openinfer.synth.targets.cstyle.host.sizes import SizePrinter
from openinfer.synth.targets.cstyle.library import KernelLibrary, PrintKernel, UsedKernel
from openinfer.synth.targets.cstyle.names import comment
from openinfer.synth.targets.gpu.arguments import Argument, Given, arguments_of
from openinfer.synth.targets.gpu.handed_over import handed_over
from openinfer.synth.targets.gpu.waits import Waits
from openinfer.synth.targets.simt.launches import Launch, Launches, group_of
from openinfer.synth.targets.simt.machine import SimtMachine

_NO_FAILURE, _NO_MATTER = -1, -2
"""In place of a failure: a launch that cannot fail, and one that may also run after others have failed."""
FIRST_LAUNCHED = 2
"""The number of the first kernel of the program; the ones before it move memory."""
MEMORY_CALLS = MemoryCalls(
    queue="c->device, ",
    copy="oi_copy",
    tables={Action.READ: "oi_read_there", Action.WRITE: "oi_write_there", Action.RESET: "oi_reset_there"},
    clear="oi_clear_there",
    part="oi_part_there",
)


class DeviceCalls:
    """The ``HostCalls`` of targets whose kernels are launched; ``printed`` prints a kernel in their language."""

    def __init__(
        self, sizes: SizePrinter, indices: IndexPrinter, waits: Waits, machine: SimtMachine, printed: PrintKernel
    ) -> None:
        file, pointers = waits.file, waits.pointers
        self.kernels = KernelLibrary(file.name, printed)
        """The launches."""
        self._file = file
        self._sizes = sizes
        self._pointers = pointers
        self._waits = waits
        self._machine = machine
        self._numbers: dict[str, int] = {}
        self._handed_over = handed_over(file.placed)
        self._operands = Operands(file, pointers, indices)
        # What the host selects, it selects as in C.
        self._host = CCalls(file, sizes, indices, pointers, printed, MEMORY_CALLS)

    def pointer(self, value: Value) -> str:
        """The name of a value's memory in the current function."""
        return self._pointers.pointer(value)

    def pointer_type(self, value: Value) -> str:
        """The pointee type of a parameter that takes the address of a value."""
        return self._host.pointer_type(value)

    def address(self, operand: StepOperand, checks: ChosenTensor | None, depth: int) -> str:
        """The name of an operand's memory in the current function; a block that is called with it does the waiting."""
        return self._operands.operand(operand, checks, depth)

    def looked_at(self, value: Value, depth: int) -> None:
        """Makes a scalar visible to the host."""
        self._waits.looked_at(value, depth)

    def changed(self, value: Value, depth: int) -> None:
        """Makes a scalar visible to the device."""
        self._waits.changed(value, depth)

    # --- launches -------------------------------------------------------------------------------------------------

    def kernel(self, step: KernelStep, checks: KernelChecks, depth: int) -> None:
        """Records the launches of a kernel."""
        launches = step.schedule
        assert isinstance(launches, Launches), "kernels have launches"
        touched = {name for one in launches.launches for name in used_buffers(one.kernel)}
        operands: dict[str, StepOperand] = {}
        memory: dict[str, str] = {}
        for buffer, operand, chosen in zip(step.kernel.inputs, step.inputs, checks.inputs, strict=True):
            operands[buffer.name] = operand
            if buffer.name in touched:
                memory[buffer.name] = self._operands.operand(operand, chosen, depth)
            elif chosen is not None:
                # Nothing is read, but the indices must still name a tensor.
                self._file.line(depth, f"(void){self._operands.operand(operand, chosen, depth)};")
            elif isinstance(operand, Value) and operand in self._file.placed.memory.views:
                # A view of a table that was looked up for this kernel alone.
                self._file.line(depth, f"(void){self.pointer(operand)};")
        written = zip(step.kernel.outputs, step.outputs, strict=True)
        for buffer, value in (*written, *zip(launches.scratch, step.scratch, strict=True)):
            operands[buffer.name] = value
            if buffer.name in touched:
                memory[buffer.name] = self.pointer(value)
        for launch in launches.launches:
            # The cost of a kernel is known best before it is scheduled.
            call = step if len(launches.launches) == 1 else _call(step, launch, operands)
            used = self.kernels.function(self._marked(launch.kernel, operands), call)
            sizes = {name: _nbytes(one) for name, one in operands.items()}
            failure = checks.failure if launch.kernel.can_fail else None
            if not launch.kernel.can_fail and self._is_harmless(launch.kernel, operands):
                failure = _NO_MATTER
            self._launch(used, launch, memory, sizes, failure, depth)

    def _is_harmless(self, kernel: Kernel, operands: Mapping[str, StepOperand]) -> bool:
        """Whether a launch may run after another one has failed: it writes nothing that outlives the step.

        Such a launch need not wait for the word that records a failure.
        """
        classes = self._file.placed.memory.classes
        written = [operands[one.name] for one in kernel.outputs]
        stays = (isinstance(one, Value) and classes.root(one).storage is Storage.ARENA for one in written)
        return all(stays) and _reads_in_place(kernel)

    def _marked(self, kernel: Kernel, operands: Mapping[str, StepOperand]) -> Kernel:
        """A kernel with the results marked that it may compute in cells of a table, somewhere else in every step."""
        moved = {one.name: one for one in kernel.outputs if operands[one.name] in self._handed_over}
        return with_buffers(kernel, {name: replace(one, space=Space.STATE) for name, one in moved.items()})

    def _launch(
        self,
        used: UsedKernel,
        launch: Launch,
        memory: Mapping[str, str],
        nbytes: Mapping[str, int],
        failure: int | None,
        depth: int,
    ) -> None:
        number = self._numbers.setdefault(used.name, FIRST_LAUNCHED + len(self._numbers))
        written = {one.name for one in launch.kernel.outputs}
        given = []
        for one in _arguments(used):
            match one.kind:
                case Given.MEMORY:
                    flag = "true" if one.name in written else "false"
                    given.append(f"{{ {memory[one.name]}, {nbytes[one.name]}, {flag} }}")
                case Given.SIZE:
                    given.append(f"{{ NULL, {self._sizes.place(one.name)}, false }}")
        groups = self._groups(launch.threads, group_of(launch.kernel, self._machine.group))
        own = _NO_FAILURE if failure is None else failure
        arguments = f"(const oi_argument[]){{ {', '.join(given)} }}" if given else "NULL"
        self._file.line(depth, f"LAUNCH({number}, {groups}, {own}, {len(given)}, {arguments}); /* {used.name} */")

    def _groups(self, threads: int, group: int) -> str:
        if not is_symbolic(threads):
            return str(-(-threads // group))
        return f"({self._sizes.extent(threads).text} + {group - 1}) / {group}"

    def move(self, step: Move, checks: MoveChecks, depth: int, *, is_whole: bool) -> None:
        """Records the copy of a value; with ``is_whole``, of all the memory that it can need."""
        source, target = self._operands.operand(step.src, checks.source, depth), self.pointer(step.dst)
        nbytes = str(step.dst.nbytes) if is_whole else self._sizes.nbytes(step.dst)
        about = "" if step.dst.variable is None else f" /* {comment(str(step.dst.variable))} */"
        self._file.line(depth, f"oi_copy(c->device, {target}, {source}, {nbytes});{about}")

    def fill(self, value: Value, depth: int) -> None:
        """Fills all the memory that a variable can need with its initial value."""
        element = element_bits(value.dtype, self._file.program.bound.vars[str(value.variable)].origin)
        facts = f"{value.dtype.bits}, {most_elements(value.shape)}, UINT64_C(0x{element:x})"
        self._file.line(depth, f"oi_set(c->device, {self.pointer(value)}, {facts});")

    # --- what the host selects ------------------------------------------------------------------------------------

    def table(self, step: TableStep, checks: SliceChecks | None, depth: int) -> None:
        """Accesses a slice of a table; a table that grows is in host memory."""
        is_here = self._file.placed.state.tables[step.table.variable.name].heap is not None
        if is_here and step.action is Action.WRITE and step.value is not None:
            self._waits.looked_at(step.value, depth)
        if not is_here and step.action is Action.WRITE and step.value in self._handed_over:
            self._file.line(depth, f"oi_hand_over(c->device, {self.pointer(step.value)});")
        self._host.table(step, checks, depth)

    def part(self, step: PartStep, checks: SliceChecks, depth: int) -> None:
        """Accesses a slice of a tensor."""
        self._host.part(step, checks, depth)

    def entry(self, step: EntryStep | WeightCheck, checks: EntryChecks, depth: int) -> None:
        """Accesses an entry of a prefix table, or checks that it exists."""
        is_access = isinstance(step, EntryStep) and step.action is not Action.CHECK
        if isinstance(step, EntryStep) and is_access:
            self._waits.looked_at(step.family.written, depth)
        self._host.entry(step, checks, depth)
        if isinstance(step, EntryStep) and step.action is Action.WRITE:
            self._waits.changed(step.family.written, depth)

    def marked(self, rows: Sequence[Reported], first: int) -> list[str]:
        """Trace lines, empty unless compiled with traces; with traces, no launch is in flight at these lines."""
        lines = self._host.marked(rows, first)
        values = dict.fromkeys(row.value for row in rows if isinstance(row.value, Value))
        looks = [f"TRACE_LOOK({self.pointer(value)}, {value.nbytes});" for value in values]
        return ["TRACE_SETTLED;", *looks, *lines] if lines else []


def _call(step: KernelStep, launch: Launch, operands: Mapping[str, StepOperand]) -> KernelStep:
    """A launch as a call of its own kernel."""
    outputs = [operands[one.name] for one in launch.kernel.outputs]
    return replace(
        step,
        kernel=launch.kernel,
        inputs=tuple(operands[one.name] for one in launch.kernel.inputs),
        outputs=tuple(one for one in outputs if isinstance(one, Value)),
        scratch=(),
    )


def _reads_in_place(kernel: Kernel) -> bool:
    """Whether the elements that a kernel accesses, and its control flow, do not depend on what is in memory."""
    inside = [*walk(kernel.body)]
    values = (part for one in inside for value in scalars(one) for part in visit(value))
    places = [place for part in values if isinstance(part, Load) for place in part.index]
    places += [place for one in inside if isinstance(one, Store | WideLoad | WideStore) for place in one.index]
    places += [place for one in inside if isinstance(one, TileStep) for place in one.scalars]
    places += [one.extent for one in inside if isinstance(one, For)]
    named = [one for one in inside if isinstance(one, Let | Local | SetLocal) and one.var.dtype.kind != "float"]
    found = {one.var for one in named if any(isinstance(part, Load) for part in visit(one.value))}
    is_indirect = any(isinstance(part, Load) or part in found for place in places for part in visit(place))
    return not is_indirect and not any(isinstance(one, While) for one in inside)


def _arguments(used: UsedKernel) -> tuple[Argument, ...]:
    return arguments_of(used.kernel, used.code, is_guarded=True)


def _nbytes(operand: StepOperand) -> int:
    """The most bytes of an operand; for a weight, the bytes of the tensor that indices select."""
    return operand.dtype.nbytes(most_elements(operand.shape))
