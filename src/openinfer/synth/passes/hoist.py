"""Loop-invariant code motion: hoists what a kernel computes identically in every iteration of a graph's loop.

The leading statements of a kernel that read nothing the loop changes, and write only the kernel's own memory, become a
kernel in front of the loop: the angles of a rotary embedding, for example, which are the same in every layer. Kernels
with the same leading statements share it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

from openinfer.loops.ir import (
    Alloc,
    Buffer,
    Const,
    Contraction,
    Fail,
    For,
    Kernel,
    Load,
    ScalarVar,
    Space,
    Statement,
    Store,
    Structure,
    assigned_by,
    factors_of,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import Statements, variables_of, with_buffers
from openinfer.loops.text import kernel_text
from openinfer.synth.program.ir import (
    BranchStep,
    CallStep,
    KernelStep,
    LoopStep,
    Program,
    Step,
    StepOperand,
    Value,
    Weight,
    steps_in,
    with_body,
)
from openinfer.synth.program.liveness import definitions


def hoisted(program: Program) -> Program:
    """The program with invariant leading statements in kernels in front of loops."""
    names = (f"once{number}" for number in count())
    return program.map_steps(lambda step: _Loop(step, names).steps() if isinstance(step, LoopStep) else (step,))


@dataclass(frozen=True)
class _Split:
    """A kernel split into loop-invariant leading statements and the rest."""

    before: Statements
    after: Statements
    own: tuple[Buffer, ...]
    """Scratch memory that only the invariant statements use."""
    handed_on: tuple[Buffer, ...]
    """Scratch memory that passes values to the remaining statements."""


class _Loop:
    """A loop, and the kernels that are hoisted out of it."""

    def __init__(self, loop: LoopStep, names: Iterator[str]) -> None:
        self._loop, self._names = loop, names
        inside = [*steps_in(loop.body)]
        self._written = {value for step in inside for value in definitions(step)}
        self._has_calls = any(isinstance(step, CallStep | BranchStep) for step in inside)
        self._made: dict[tuple[object, ...], tuple[KernelStep, tuple[Value, ...]]] = {}

    def steps(self) -> Iterator[Step]:
        """The hoisted kernels, then the loop."""
        body = tuple(self._rest(step) if isinstance(step, KernelStep) else step for step in self._loop.body)
        yield from (step for step, _ in self._made.values())
        yield with_body(self._loop, body)

    def _rest(self, step: KernelStep) -> KernelStep:
        given = dict(zip((one.name for one in step.kernel.inputs), step.inputs, strict=True))
        same = {name for name, operand in given.items() if self._is_same(operand)}
        split = None if step.scalars or step.is_initial else _split_invariant(step.kernel, same)
        return step if split is None else self._without(step, split)

    def _is_same(self, operand: StepOperand) -> bool:
        if isinstance(operand, Weight):
            return not operand.index
        return operand not in self._written and not (operand.is_home and self._has_calls)

    def _without(self, step: KernelStep, split: _Split) -> KernelStep:
        """The call without its invariant statements, which are hoisted once for all calls that share them."""
        kernel = step.kernel
        read = _loaded(split.before)
        pairs = [pair for pair in zip(kernel.inputs, step.inputs, strict=True) if pair[0].name in read]
        outside = {one.name: replace(one, space=Space.ARENA) for one in split.handed_on}
        inputs, outputs = tuple(buffer for buffer, _ in pairs), tuple(outside.values())
        body = (*map(Alloc, split.own), *split.before)
        before = with_buffers(Kernel(f"{kernel.name}_once", inputs, outputs, body, kernel.doc), outside)
        key = (kernel_text(replace(before, name="", doc=())), *(id(one) for _, one in pairs))
        if key not in self._made:
            values = tuple(Value(f"{next(self._names)}_{one.name}", one.dtype, one.shape) for one in outputs)
            memory = dict(zip((one.name for one in kernel.scratch), step.scratch, strict=True))
            scratch = tuple(memory[one.name] for one in before.scratch)
            own = replace(step, kernel=before, inputs=tuple(one for _, one in pairs), outputs=values, scratch=scratch)
            self._made[key] = own, values
        _, made = self._made[key]
        return _rest(step, split, outside, made)


def _rest(step: KernelStep, split: _Split, outside: Mapping[str, Buffer], made: tuple[Value, ...]) -> KernelStep:
    kernel = step.kernel
    gone = {one.name for one in (*split.own, *split.handed_on)}
    kept = [one for one in kernel.scratch if one.name not in gone]
    memory = dict(zip((one.name for one in kernel.scratch), step.scratch, strict=True))
    read = _loaded(split.after)
    pairs = [pair for pair in zip(kernel.inputs, step.inputs, strict=True) if pair[0].name in read]
    inputs = (*(buffer for buffer, _ in pairs), *outside.values())
    tops = {one.buffer for one in kernel.body if isinstance(one, Alloc)}
    body = (*(Alloc(one) for one in kept if one in tops), *split.after)
    after = with_buffers(replace(kernel, inputs=inputs, body=body), outside)
    scratch = tuple(memory[one.name] for one in after.scratch)
    return replace(step, kernel=after, inputs=(*(one for _, one in pairs), *made), scratch=scratch)


def _split_invariant(kernel: Kernel, same: set[str]) -> _Split | None:
    """The invariant leading statements of a kernel, if they contain a loop."""
    memory = [one.buffer for one in kernel.body if isinstance(one, Alloc)]
    body = tuple(one for one in kernel.body if not isinstance(one, Alloc))
    known = same | {one.name for one in memory}
    length = 0
    while length < len(body) and _is_invariant(body[length], known, {one.name for one in memory}):
        length += 1
    before, after = body[:length], body[length:]
    if not after or not any(isinstance(one, For) for one in before):
        return None
    changed = {var for one in walk(after) for var in assigned_by(one)}
    left = {*variables_of(before)} & (_used(after) | changed)
    written, touched = _stored(before), _stored(after) | _loaded(after)
    if left or written & _stored(after):
        return None
    handed_on = tuple(one for one in memory if one.name in written & touched)
    own = tuple(one for one in memory if one.name in (written | _loaded(before)) - touched)
    return _Split(before, after, own, handed_on) if handed_on else None


def _is_invariant(statement: Statement, known: set[str], memory: set[str]) -> bool:
    """Whether a statement is invariant: it reads only invariant buffers, and writes only memory of the kernel."""
    inside = [*walk((statement,))]
    if any(isinstance(one, Alloc | Fail | Contraction | Structure) for one in inside):
        return False
    extents = [one.extent for one in inside if isinstance(one, For)]
    is_fixed = all(isinstance(one, Const) and type(one.value) is int for one in extents)
    return is_fixed and _loaded((statement,)) <= known and _stored((statement,)) <= memory


def _used(body: Statements) -> set[ScalarVar]:
    values = (value for one in walk(body) for value in scalars(one))
    return {part for value in values for part in visit(value) if isinstance(part, ScalarVar)}


def _loaded(body: Statements) -> set[str]:
    values = (part for one in walk(body) for value in scalars(one) for part in visit(value))
    factors = (buffer for one in walk(body) for buffer in factors_of(one))
    return {part.buffer.name for part in values if isinstance(part, Load)} | {one.name for one in factors}


def _stored(body: Statements) -> set[str]:
    found = {one.buffer.name for one in walk(body) if isinstance(one, Store)}
    found |= {one.out.name for one in walk(body) if isinstance(one, Contraction)}
    return found | {made.buffer.name for one in walk(body) if isinstance(one, Structure) for made in one.results}
