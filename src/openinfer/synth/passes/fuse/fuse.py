"""Kernels joined so that values between them need no memory.

A value that is computed element by element is computed where it is read (``inline``), or what is done to each element
of a result is done before it is stored (``sink``); what is only put into another order is read or written there
(``synth.through``). Every op still rounds as it does alone. The ledger says what was joined and what was not, and why.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from openinfer.loops.build import rounded
from openinfer.loops.dim import is_same, is_same_shape
from openinfer.loops.ir import (
    INDEX,
    Buffer,
    Const,
    Contraction,
    Fail,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Math,
    Scalar,
    Statement,
    Store,
    Var,
    While,
    scalars,
    visit,
    walk,
)
from openinfer.loops.rewrite import changed, changed_statements, renamed, with_buffers, without_unused
from openinfer.synth.passes.fuse.body import Body, values_read
from openinfer.synth.passes.fuse.pointwise import expanded_size, expression, pointwise_form, with_names
from openinfer.synth.passes.fuse.relayout import has_long_rows, read_through, stored_through, with_stores
from openinfer.synth.program.constraints import Limits
from openinfer.synth.program.ir import KernelStep, LoopStep, Operand, Program, Step, Steps, TableStep, Value, with_body
from openinfer.synth.program.ir import Store as Memory

_MOST_PARTS = 2000
"""An expression with more parts is no longer worth the memory that it saves."""


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: two nodes, whether they were joined, why (not), and the bytes that need no memory."""

    producer: int
    consumer: int
    is_fused: bool
    reason: str
    bytes_saved: int = 0


@dataclass(frozen=True)
class Fuse:
    """The pass: kernels of one body are joined where nothing forbids it."""

    max_kernel_ops: int = 64
    max_recomputed: int = 8
    """An element that is read several times is computed again each time only if that takes so few operations."""

    def run(self, program: Program) -> tuple[Program, tuple[Entry, ...]]:
        """The program with fused kernels, and the ledger."""
        ledger: list[Entry] = []
        refused: set[Entry] = set()
        limits = Limits(program)
        needed = set(program.outputs.values())
        blocks = {
            name: _Fusion(self, limits, ledger, refused, needed).fused(steps) for name, steps in program.blocks.items()
        }
        return replace(program, blocks=blocks), tuple(ledger)


@dataclass
class _Fusion:
    """The kernels of one block."""

    options: Fuse
    limits: Limits
    ledger: list[Entry]
    refused: set[Entry]
    """Those of the ledger that say why not, each of them once."""
    needed: set[Value]
    parts: set[Operand | None] = field(default_factory=set)
    """What has been read from tables."""
    inside: dict[int, set[Value]] = field(default_factory=dict)
    """By the identity of a loop, what its body reads."""

    def fused(self, steps: Steps) -> Steps:
        """The steps of one body, with loops' bodies done first.

        Kernels are tried in their order; when two are joined, those that make what the new one reads are tried again.
        """
        body = Body([self._with_fused_body(step) for step in steps], self.inside, self.limits)
        todo = body.kernels()
        waiting = set(todo)
        while todo:
            place = heappop(todo)
            waiting.discard(place)
            producer = body.kernel(place)
            if producer is None or len(producer.outputs) != 1:
                continue
            for other in self._try(body, place, producer):
                if other not in waiting:
                    heappush(todo, other)
                    waiting.add(other)
        return body.steps

    def _with_fused_body(self, step: Step) -> Step:
        if isinstance(step, LoopStep):
            step = with_body(step, self.fused(step.body))
            self.inside[id(step)] = values_read(step.body, self.inside)
        if isinstance(step, TableStep):
            self.parts.add(step.value)
        return step

    def _try(self, body: Body, place: int, producer: KernelStep) -> list[int]:
        """Join a kernel with the one that reads its result, if that may be; the places to look at again."""
        value = producer.outputs[0]
        if value.is_home or value in self.needed or value.store is not Memory.ARENA:
            return []
        reader = body.only_reader(value, place)
        if reader is None:
            return []
        consumer = body.kernel(reader)
        assert consumer is not None
        reason = self._refusal(body, place, reader, producer, consumer)
        if reason is None:
            made = self._joined(producer, consumer, value)
            if made is not None:
                saved = 2 * value.nbytes
                entry = Entry(producer.node, consumer.node, is_fused=True, reason="one kernel", bytes_saved=saved)
                self.ledger.append(entry)
                return body.join(place, reader, made)
            reason = "neither computes its elements one by one"
        entry = Entry(producer.node, consumer.node, is_fused=False, reason=reason)
        if entry not in self.refused:
            self.refused.add(entry)
            self.ledger.append(entry)
        return []

    def _refusal(self, body: Body, first: int, last: int, producer: KernelStep, consumer: KernelStep) -> str | None:
        nodes, others = producer.nodes or (producer.node,), consumer.nodes or (consumer.node,)
        inputs = {operand for operand in producer.inputs if isinstance(operand, Value)} | set(producer.scalars)
        refusal = (
            self.limits.joined_refusal(nodes, others)
            or body.passed_refusal(nodes, first, last)
            or body.obstacle(inputs, first, last)
        )
        if refusal is None and len(nodes) + len(others) > self.options.max_kernel_ops:
            return f"a kernel would have more than {self.options.max_kernel_ops} ops"
        return refusal

    def _joined(self, producer: KernelStep, consumer: KernelStep, value: Value) -> KernelStep | None:
        one, other = _apart(producer.kernel, consumer.kernel)
        places = [place for place, operand in enumerate(consumer.inputs) if operand is value]
        target = other.inputs[places[0]]
        kept = [buffer for place, buffer in enumerate(other.inputs) if place not in places]
        other = replace(
            with_buffers(other, {other.inputs[place].name: target for place in places[1:]}), inputs=other.inputs
        )
        made = self._made(one, other, target, is_part=bool(producer.inputs) and producer.inputs[0] in self.parts)
        if made is None:
            return None
        others = [operand for operand in consumer.inputs if operand is not value]
        merged = replace(
            made, inputs=(*one.inputs, *kept), outputs=other.outputs, scratch=(*one.scratch, *other.scratch)
        )
        nodes = (*(producer.nodes or (producer.node,)), *(consumer.nodes or (consumer.node,)))
        if made.name == other.name and len(one.inputs) == 1:
            # What is read in place of another one is called like it.
            merged = with_buffers(merged, {one.inputs[0].name: replace(one.inputs[0], name=target.name)})
        merged = _with_plain_outputs(merged)
        return KernelStep(
            replace(merged, doc=(*one.doc, *other.doc)),
            (*producer.inputs, *others),
            consumer.outputs,
            consumer.node,
            (*producer.scratch, *consumer.scratch),
            (*producer.scalars, *consumer.scalars),
            nodes,
        )

    def _made(self, one: Kernel, other: Kernel, target: Buffer, *, is_part: bool) -> Kernel | None:
        """Two kernels as one, called after both, or after the only one that computes something."""
        made = _sunk(one, other, target)
        if made is None:
            made = _inlined(one, other, target, self.options.max_recomputed)
        if made is not None:
            return replace(made, name=_joined_name(one.name, other.name))
        # Of a table nobody moves anything, as of a cache of keys.
        if is_part or has_long_rows(target):
            made = read_through(one, other, target)
        if made is None and has_long_rows(target):
            made = stored_through(one, other, target)
        return made


def _joined_name(one: str, other: str) -> str:
    name = f"{one}_{other}"
    return name if len(name) <= 40 else f"{name[:36]}_etc"


def _apart(one: Kernel, other: Kernel) -> tuple[Kernel, Kernel]:
    """Two kernels with no variable or buffer of the same name: those of the second make way."""
    taken = {buffer.name for buffer in _buffers(one)} | {var.name for var in _variables(one.body)}
    buffers = {buffer.name: replace(buffer, name=_free(buffer.name, "_", taken)) for buffer in _buffers(other)}
    names = {var.name: Var(_free(var.name, "", taken), var.type) for var in _variables(other.body)}
    moved = with_buffers(replace(other, body=renamed(other.body, names)), buffers)
    inputs, scratch = (tuple(buffers[buffer.name] for buffer in kind) for kind in (other.inputs, other.scratch))
    return one, replace(moved, inputs=inputs, scratch=scratch)


def _with_plain_outputs(kernel: Kernel) -> Kernel:
    """The kernel with outputs called as before they made way, where that name has become free."""
    taken = {buffer.name for buffer in _buffers(kernel)} | {var.name for var in _variables(kernel.body)}
    names = {}
    for buffer in kernel.outputs:
        plain = re.sub(r"_\d+$", "", buffer.name)
        if plain not in taken:
            names[buffer.name] = replace(buffer, name=plain)
            taken.add(plain)
    return with_buffers(kernel, names)


def _buffers(kernel: Kernel) -> tuple[Buffer, ...]:
    return (*kernel.inputs, *kernel.outputs, *kernel.scratch)


def _free(name: str, mark: str, taken: set[str]) -> str:
    """A name that is not taken, which it then is: the name itself, or with another number."""
    stem, found, number = re.sub(rf"{mark}\d+$", "", name), name, 1
    while found in taken:
        number += 1
        found = f"{stem}{mark}{number}"
    taken.add(found)
    return found


def _variables(body: tuple[Statement, ...]) -> Iterator[Var]:
    for statement in walk(body):
        match statement:
            case For(index=index):
                yield index
            case Let(var=var) | Local(var=var):
                yield var
            case Contraction():
                yield from (*statement.free, *statement.bound)


# --- what is done to each element of a result, before it is stored ----------------------------------------------------


def _sunk(producer: Kernel, consumer: Kernel, target: Buffer) -> Kernel | None:
    """The producer, storing what the consumer makes of each element; the consumer reads it once, where it stands."""
    form = pointwise_form(consumer)
    if form is None or not _stores_once(producer):
        return None
    loads = [
        one for value in _values(consumer) for one in visit(value) if isinstance(one, Load) and one.buffer == target
    ]
    if not is_same_shape(target.shape, consumer.outputs[0].shape):
        return None
    if not loads or not all(_is_here(one, form.indices) for one in loads):
        return None
    out, result = producer.outputs[0], consumer.outputs[0]
    taken = {buffer.name for kernel in (producer, consumer) for buffer in _buffers(kernel)}
    taken |= {var.name for kernel in (producer, consumer) for var in _variables(kernel.body)}

    def change(where: tuple[Scalar, ...], own: Scalar) -> Callable[[Scalar], Scalar | None]:
        places = dict(zip(form.indices, where, strict=True))
        return lambda one: (
            places.get(one) if isinstance(one, Var) else own if isinstance(one, Load) and one.buffer == target else None
        )

    def stored(store: Store) -> list[Statement]:
        own = rounded(store.value, out.dtype)
        name = Var(_free("v", "", taken), own.dtype)
        is_named = len(loads) > 1 and not isinstance(own, Var | Const)
        there = change(store.index, name if is_named else own)
        kept = with_names(form)
        lets = [Let(name, own)] * is_named + [Let(let.var, changed(let.value, there)) for let in kept.lets]
        return [*lets, Store(result, store.index, changed(kept.value, there))]

    def finished(one: Contraction) -> Contraction:
        own = rounded(one.epilogue, out.dtype)
        return replace(one, out=result, epilogue=changed(expression(form), change(one.out_index, own)))

    if any(isinstance(statement, Contraction) and statement.out == out for statement in walk(producer.body)):
        # An epilogue is one expression, without names for its parts.
        grown = [one.epilogue for one in walk(producer.body) if isinstance(one, Contraction) and one.out == out]
        if expanded_size(form) * sum(1 for value in grown for _ in visit(value)) > _MOST_PARTS:
            return None
    return replace(producer, body=with_stores(producer.body, out, stored, finished))


def _is_here(element: Load, indices: tuple[Var, ...]) -> bool:
    """Whether an element is the one at the loops' indices; along an axis of extent 1 it may be said to be the first."""
    return all(
        one == index or (one == Const(0, INDEX) and is_same(extent, 1))
        for one, index, extent in zip(element.index, indices, element.buffer.shape, strict=True)
    )


def _values(kernel: Kernel) -> Iterator[Scalar]:
    for statement in walk(kernel.body):
        yield from scalars(statement)


def _stores_once(kernel: Kernel) -> bool:
    """Whether each element of the output is written by one statement, exactly once, and never read."""
    out = kernel.outputs[0]
    if any(isinstance(one, Load) and one.buffer == out for value in _values(kernel) for one in visit(value)):
        return False
    writers = [
        statement
        for statement in walk(kernel.body)
        if (isinstance(statement, Store) and statement.buffer == out)
        or (isinstance(statement, Contraction) and statement.out == out)
    ]
    if len(writers) != 1 or any(isinstance(statement, While | Fail) for statement in walk(kernel.body)):
        return False
    (writer,) = writers
    index = writer.index if isinstance(writer, Store) else writer.out_index
    if not all(isinstance(one, Var) for one in index) or len(set(index)) < len(index):
        return False
    return isinstance(writer, Contraction) or _is_unconditional(kernel.body, writer)


def _is_unconditional(body: tuple[Statement, ...], writer: Statement) -> bool:
    return not any(isinstance(statement, If) and writer in tuple(walk((statement,))) for statement in walk(body))


# --- elements computed where they are read ----------------------------------------------------------------------------


def _inlined(producer: Kernel, consumer: Kernel, target: Buffer, most: int) -> Kernel | None:
    """The consumer, computing the producer's elements itself."""
    form = pointwise_form(producer)
    if form is None or any(
        isinstance(statement, Contraction) and target in (statement.a, statement.b) for statement in walk(consumer.body)
    ):
        return None
    if expanded_size(form) > _MOST_PARTS:
        return None
    element = rounded(expression(form), producer.outputs[0].dtype)
    loads = [
        one for value in _values(consumer) for one in visit(value) if isinstance(one, Load) and one.buffer == target
    ]
    operations = sum(10 if isinstance(one, Math) else 1 for one in visit(element) if not isinstance(one, Var | Load))
    if len(loads) > 1 and operations > most:
        return None
    if not loads:
        return None

    def change(one: Scalar) -> Scalar | None:
        if not isinstance(one, Load) or one.buffer != target:
            return None
        places = dict(zip(form.indices, one.index, strict=True))
        return changed(element, lambda part: places.get(part) if isinstance(part, Var) else None)

    # An element that does not depend on where it is read leaves names for places behind.
    return replace(consumer, body=without_unused(changed_statements(consumer.body, change)))
