"""Joins short launches that do not depend on each other: one launch, some of whose groups do the work of each.

A graph then has one node where it had several, and the next launch waits for one in place of several.
"""

from dataclasses import dataclass, replace

from openinfer.loops.build import index, pair
from openinfer.loops.dim import most_elements
from openinfer.loops.ir import Alloc, Bind, Buffer, Const, For, If, Kernel, Let, Ready, ScalarVar, Space, Unfailed, walk
from openinfer.loops.rewrite import Statements, renamed, variables_of, with_buffers
from openinfer.synth.passes.fuse.naming import buffers_of, free_name, joined_name
from openinfer.synth.program.constraints import ProgramConstraints
from openinfer.synth.program.ir import KernelStep, LoopStep, Mark, Program, Step, Steps, Storage, with_body
from openinfer.synth.program.liveness import definitions, uses
from openinfer.synth.targets.simt.launches import Launch, Launches


@dataclass(frozen=True)
class SideBySide:
    """The pass."""

    shared_bytes: int
    """Shared memory per group."""

    def run(self, program: Program) -> Program:
        """The program with launches joined, where only marks lie between them."""
        constraints = ProgramConstraints(program)
        blocks = {name: self._joined(steps, constraints) for name, steps in program.blocks.items()}
        return replace(program, blocks=blocks)

    def _joined(self, steps: Steps, constraints: ProgramConstraints) -> Steps:
        found: list[Step] = []
        place: int | None = None
        for step in steps:
            if isinstance(step, LoopStep):
                found.append(with_body(step, self._joined(step.body, constraints)))
                place = None
            elif isinstance(step, KernelStep) and _groups(step) is not None:
                first = None if place is None else found[place]
                made = self._both(first, step, constraints) if isinstance(first, KernelStep) else None
                if place is not None and made is not None:
                    found[place] = made
                    continue
                place = len(found)
                found.append(step)
            else:
                place = place if isinstance(step, Mark) and not constraints.must_stay(step.node) else None
                found.append(step)
        return tuple(found)

    def _both(self, one: KernelStep, other: KernelStep, constraints: ProgramConstraints) -> KernelStep | None:
        """Two steps as one, at the place of the first; None if they must stay apart."""
        nodes, others = one.nodes or (one.node,), other.nodes or (other.node,)
        if not _are_independent(one, other) or constraints.joined_refusal(nodes, others) is not None:
            return None
        kernel, launch = _beside(one, other, self.shared_bytes) or (None, None)
        if kernel is None or launch is None:
            return None
        return KernelStep(
            kernel,
            (*one.inputs, *other.inputs),
            (*one.outputs, *other.outputs),
            other.node,
            scalars=tuple(dict.fromkeys((*one.scalars, *other.scalars))),
            nodes=(*nodes, *others),
            schedule=Launches(kernel, (launch,), ()),
        )


@dataclass(frozen=True)
class _Groups:
    """The parts of a launch of groups."""

    launch: Launch
    group: For
    memory: tuple[Buffer, ...]
    threads: For
    count: int


def _groups(step: KernelStep) -> _Groups | None:
    """The only launch of a step; None unless it is short, cannot fail, and has the same groups in every step."""
    found = step.schedule
    if not isinstance(found, Launches) or len(found.launches) != 1 or found.scratch or step.is_initial:
        return None
    (launch,) = found.launches
    *before, group = launch.kernel.body
    if not launch.is_short or launch.is_guarded or launch.kernel.can_fail:
        return None
    if not all(isinstance(one, Ready) for one in before):
        return None
    if not isinstance(group, For) or group.bind is not Bind.GROUP or not isinstance(group.extent, Const):
        return None
    *memory, threads = group.body
    if not isinstance(threads, For) or threads.bind is not Bind.THREAD or not isinstance(group.extent.value, int):
        return None
    buffers = tuple(one.buffer for one in memory if isinstance(one, Alloc))
    if len(buffers) < len(memory) or any(one.space is not Space.GROUP for one in buffers):
        return None
    return _Groups(launch, group, buffers, threads, group.extent.value)


def _are_independent(one: KernelStep, other: KernelStep) -> bool:
    """Whether neither reads or writes what the other writes, and only steps of this body see the results."""
    made, also = set(definitions(one)), set(definitions(other))
    if not made.isdisjoint((*uses(other), *also)) or not also.isdisjoint(uses(one)):
        return False
    return all(value.storage is Storage.ARENA and not value.is_home for value in (*made, *also))


def _beside(one: KernelStep, other: KernelStep, shared_bytes: int) -> tuple[Kernel, Launch] | None:
    """Both kernels in sequence; and their launches as one, whose first groups belong to the first."""
    left, right = _groups(one), _groups(other)
    assert left is not None, "the first has groups"
    assert right is not None, "the second has groups"
    if left.threads.extent != right.threads.extent or _marks(left) != _marks(right):
        return None
    taken = {buffer.name for each in (one.kernel, left.launch.kernel) for buffer in buffers_of(each)}
    taken |= {var.name for each in (one.kernel, left.launch.kernel) for var in variables_of(each.body)}
    used = [*buffers_of(other.kernel), *buffers_of(right.launch.kernel)]
    names = {name: free_name(name, f"{name}_", taken) for name in dict.fromkeys(buffer.name for buffer in used)}
    memory = dict(names)
    # A group belongs to one of them, so both can use the same shared memory.
    free = list(left.memory)
    for buffer in right.memory:
        alike = next((each for each in free if (each.dtype, each.shape) == (buffer.dtype, buffer.shape)), None)
        if alike is not None:
            free.remove(alike)
            memory[buffer.name] = alike.name
    plain, then = (_renamed(each, memory, taken) for each in (other.kernel, right.launch.kernel))
    again = then.body[-1]
    assert isinstance(again, For)
    shared = dict.fromkeys((*left.memory, *(each.buffer for each in again.body if isinstance(each, Alloc))))
    if sum(each.dtype.nbytes(most_elements(each.shape)) for each in shared) > shared_bytes:
        return None
    name = joined_name(one.kernel.name, other.kernel.name)
    doc = tuple(dict.fromkeys((*one.kernel.doc, *other.kernel.doc)))
    kernel = Kernel(
        name,
        (*one.kernel.inputs, *plain.inputs),
        (*one.kernel.outputs, *plain.outputs),
        (*one.kernel.body, *plain.body),
        doc,
    )
    loop = _split(left, again, right.count, tuple(map(Alloc, shared)))
    first = left.launch.kernel
    body = (*first.body[:-1], loop)
    joined = Kernel(name, (*first.inputs, *then.inputs), (*first.outputs, *then.outputs), body, doc)
    count = left.launch.threads + right.launch.threads
    return kernel, replace(left.launch, kernel=joined, threads=count, form=f"{left.launch.form}, {right.launch.form}")


def _split(left: _Groups, again: For, right: int, memory: Statements) -> For:
    """The loop over all groups."""
    group, count, threads = left.group.index, left.count, again.body[-1]
    assert isinstance(threads, For)
    most = right - 1
    body = renamed(threads.body, {threads.index.name: left.threads.index})
    place = Let(again.index, pair("min", pair("max", group - count, index(0)), index(most)))
    choice = If(group < count, left.threads.body, (place, *body))
    inner = replace(left.threads, body=(choice,))
    return replace(left.group, extent=index(count + most + 1), body=(*memory, inner))


def _marks(one: _Groups) -> tuple[bool, ...]:
    """Whether it waits for earlier launches itself, at its start or later, and whether it checks late if one failed."""
    inside, before = [*walk(one.threads.body)], len(one.launch.kernel.body) > 1
    return before, *(any(isinstance(each, kind) for each in inside) for kind in (Ready, Unfailed))


def _renamed(kernel: Kernel, memory: dict[str, str], taken: set[str]) -> Kernel:
    """A kernel with other names for its buffers, and fresh ones for its variables."""
    names: dict[str, ScalarVar] = {}
    for var in variables_of(kernel.body):
        if var.name not in names:
            names[var.name] = replace(var, name=free_name(var.name, var.stem or var.name, taken))
    buffers = {one.name: replace(one, name=memory[one.name]) for one in buffers_of(kernel)}
    return with_buffers(replace(kernel, body=renamed(kernel.body, names)), buffers)
