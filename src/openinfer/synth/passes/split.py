"""Splits kernels that compute several things in sequence, so that each can be parallelized on its own."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from openinfer.loops.ir import (
    Alloc,
    Buffer,
    Contraction,
    For,
    Kernel,
    Load,
    Space,
    Statement,
    Store,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import with_buffers
from openinfer.synth.program.ir import KernelStep, StepOperand, Value


def split(step: KernelStep, is_large: Callable[[Kernel], bool]) -> list[KernelStep]:
    """One call per large statement and per run of small ones in between; the original call if it cannot be split.

    Scratch memory that one part writes and another reads becomes a value.
    """
    kernel = step.kernel
    if kernel.can_fail or not all(isinstance(one, Alloc | For | Contraction) for one in kernel.body):
        return [step]
    parts = [_Part.of(body) for body in _bodies(kernel, is_large)]
    written = frozenset[str]().union(*(part.written for part in parts))
    # An empty output is never written, but some part must own it.
    if len(parts) == 1 or not written >= {one.name for one in kernel.outputs} or not _are_apart(parts):
        return [step]
    calls = [_call(step, parts, place) for place in range(len(parts))]
    # Results that are never read, such as factors that a transform of few points does not need, are not computed.
    return [call for call in calls if call.outputs]


def written_by(statement: Statement) -> str | None:
    """The name of the buffer that a statement itself writes."""
    match statement:
        case Store(buffer=buffer) | Contraction(out=buffer):
            return buffer.name
        case _:
            return None


def _bodies(kernel: Kernel, is_large: Callable[[Kernel], bool]) -> Iterator[tuple[Statement, ...]]:
    """A body per large statement and per run of small ones; statements that write the same buffer stay together."""
    group: tuple[Statement, ...] = ()
    was_large = False
    for statement in kernel.body:
        if isinstance(statement, Alloc):
            continue
        large = is_large(replace(kernel, body=(statement,)))
        is_shared = bool(_Part.of(group).written & _Part.of((statement,)).written)
        if group and (large or was_large) and not is_shared:
            yield group
            group, was_large = (), False
        group, was_large = (*group, statement), was_large or large
    if group:
        yield group


@dataclass(frozen=True)
class _Part:
    """Statements, and the names of the buffers that they read, write, or use as private copies."""

    body: tuple[Statement, ...]
    read: frozenset[str]
    written: frozenset[str]

    @classmethod
    def of(cls, body: tuple[Statement, ...]) -> "_Part":
        read: set[str] = set()
        written: set[str] = set()
        for statement in walk(body):
            values = (one for value in scalars(statement) for one in visit(value))
            read |= {one.buffer.name for one in values if isinstance(one, Load)}
            name = written_by(statement)
            written |= {name} if name is not None else set()
            if isinstance(statement, Contraction) and statement.template is not None:
                written |= {buffer.name for buffer in statement.template.memory}
        return cls(body, frozenset(read), frozenset(written))


def _are_apart(parts: Sequence[_Part]) -> bool:
    """Whether each buffer is written by one part only, before other parts read it."""
    known: set[str] = set()
    for place, part in enumerate(parts):
        later = frozenset[str]().union(*(one.written for one in parts[place + 1 :]))
        if part.written & known or part.read & later:
            return False
        known |= part.written
    return True


def _call(step: KernelStep, parts: Sequence[_Part], place: int) -> KernelStep:
    """The call of one part."""
    kernel, part = step.kernel, parts[place]
    others = [one for number, one in enumerate(parts) if number != place]
    foreign = frozenset[str]().union(*(one.read | one.written for one in others))
    inputs: list[tuple[Buffer, StepOperand]] = []
    outputs: list[tuple[Buffer, Value]] = []
    inputs += [pair for pair in zip(kernel.inputs, step.inputs, strict=True) if pair[0].name in part.read]
    for buffer, value in zip(kernel.outputs, step.outputs, strict=True):
        if buffer.name in part.written:
            outputs.append((buffer, value))
        elif buffer.name in part.read:
            inputs.append((buffer, value))
    shared = {one.buffer for one in kernel.body if isinstance(one, Alloc)}
    memory = dict(zip(kernel.scratch, step.scratch, strict=True))
    own: list[Alloc] = []
    for buffer in kernel.scratch:
        if buffer not in shared or buffer.name not in part.read | part.written:
            continue
        if buffer.name not in foreign:
            own.append(Alloc(buffer))
        else:
            (outputs if buffer.name in part.written else inputs).append((buffer, memory[buffer]))
    made = Kernel(
        f"{kernel.name}_{place + 1}",
        tuple(_outside(buffer) for buffer, _ in inputs),
        tuple(_outside(buffer) for buffer, _ in outputs),
        (*own, *part.body),
        (*kernel.doc, f"Part {place + 1} of {len(parts)}."),
    )
    moved = {buffer.name: _outside(buffer) for buffer, _ in (*inputs, *outputs)}
    return replace(
        step,
        kernel=with_buffers(made, moved),
        inputs=tuple(operand for _, operand in inputs),
        outputs=tuple(value for _, value in outputs),
        scratch=tuple(memory[buffer] for buffer in made.scratch),
    )


def _outside(buffer: Buffer) -> Buffer:
    return replace(buffer, space=Space.ARENA) if buffer.space is Space.SCRATCH else buffer
