"""The fusion pass: merges kernels so that the values between them need no memory.

Rules say how two kernels become one, this pass decides where that is legal, and the ledger records what was fused and
what was not, with reasons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from openinfer.loops.ir import Kernel
from openinfer.loops.rewrite import with_buffers
from openinfer.synth.passes.fuse.body import Body, values_read
from openinfer.synth.passes.fuse.ledger import Ledger, LedgerEntry
from openinfer.synth.passes.fuse.naming import renamed_apart, with_plain_outputs
from openinfer.synth.passes.fuse.one_launch import IsLaunch, is_cheap, one_launch
from openinfer.synth.passes.fuse.pair import FusionRule, Pair
from openinfer.synth.passes.fuse.read_elsewhere import read_elsewhere
from openinfer.synth.passes.fuse.relayout import reads_weight, widens_weight
from openinfer.synth.passes.fuse.rules import RULES, joined
from openinfer.synth.program.constraints import ProgramConstraints
from openinfer.synth.program.ir import (
    KernelStep,
    LoopStep,
    Program,
    Step,
    StepOperand,
    Steps,
    Storage,
    TableStep,
    Value,
    with_body,
)
from openinfer.synth.program.refusal import Refusal

_SEVERAL_RESULTS = Refusal("the producer has several results")
_KEPT = Refusal("the value is the memory of a variable, which other blocks, iterations or steps read")
_RETURNED = Refusal("the graph returns the value")


@dataclass(frozen=True)
class Fuse:
    """The pass: fuses kernels of one body wherever that is legal."""

    max_kernel_ops: int = 64
    max_recomputed: int = 8
    """The most operations per element to recompute at each of several reads."""
    is_launch: IsLaunch | None = None
    """Set by targets that launch kernels: whether a kernel runs in one launch."""
    rules: tuple[FusionRule, ...] = ()
    """The target's rules, tried after the shared ones; the ledger reports only the reasons of the shared ones."""

    def run(self, program: Program) -> tuple[Program, tuple[LedgerEntry, ...]]:
        """The program with fused kernels, and the ledger."""
        ledger, constraints = Ledger(), ProgramConstraints(program)
        needed = set(program.outputs.values())
        blocks = {
            name: _Fusion(self, constraints, ledger, needed).fused(steps) for name, steps in program.blocks.items()
        }
        return replace(program, blocks=blocks), ledger.entries


@dataclass(frozen=True)
class _Apart:
    """Why a kernel was not fused with the reader of its result."""

    refusals: tuple[Refusal, ...]
    is_general: bool = False
    """Whether it applies to all readers of the result, not to one kernel."""


@dataclass
class _Fusion:
    """Fuses the kernels of one block."""

    options: Fuse
    constraints: ProgramConstraints
    ledger: Ledger
    needed: set[Value]
    slices: set[StepOperand | None] = field(default_factory=set)
    """The values read from tables."""
    inside: dict[int, set[Value]] = field(default_factory=dict)
    """By the ``id`` of a loop: the values that its body reads."""

    def fused(self, steps: Steps) -> Steps:
        """The fused steps of one body, inner loops first.

        Kernels are tried in order; after a fusion, the producers of what the new kernel reads are tried again.
        """
        body = Body([self._with_fused_body(step) for step in steps], self.inside, self.constraints)
        apart = self._join_all(body, body.kernels(), {}, RULES)
        own = self.options.is_launch
        if own is not None:
            # Fusions that need no memory come before those that need memory within a launch.
            apart, todo = {}, body.kernels()
            while todo:
                self._join_all(body, todo, apart, (*RULES, one_launch(own)))
                # Fusion may leave a value with a single reader, so duplicating producers comes last.
                todo = self._copied(body)
        self._enter(body, apart)
        return body.steps

    def _join_all(
        self, body: Body, todo: list[int], apart: "dict[int, _Apart]", rules: Sequence[FusionRule]
    ) -> "dict[int, _Apart]":
        """Fuse the kernels at sorted positions with their readers; returns why others stay apart."""
        waiting = set(todo)
        while todo:
            place = heappop(todo)
            waiting.discard(place)
            producer = body.kernel(place)
            if producer is None:
                continue
            tried = self._try(body, place, producer, rules)
            if isinstance(tried, _Apart):
                # Keep the reason given for two single nodes over one for a kernel that has since grown.
                apart[place] = tried if place not in apart or apart[place].is_general else apart[place]
                continue
            for other in tried:
                if other not in waiting:
                    heappush(todo, other)
                    waiting.add(other)
        return apart

    def _copied(self, body: Body) -> list[int]:
        """Duplicate one kernel into all readers of its result, if any qualifies; returns the positions to try again."""
        for place in body.kernels() if self.options.is_launch is not None else ():
            producer = body.kernel(place)
            found = None if producer is None or self._kept(producer) else self._try_copies(body, place, producer)
            if found:
                return sorted(found)
        return []

    def _enter(self, body: Body, apart: "Mapping[int, _Apart]") -> None:
        """Record why kernels of a finished body are not fused with the readers of their results."""
        for place in body.kernels():
            producer = body.kernel(place)
            assert producer is not None
            for reader in (node for value in producer.outputs for node in body.reading_nodes(value, place)):
                self.ledger.refused(producer.node, reader, apart[place].refusals)

    def _with_fused_body(self, step: Step) -> Step:
        if isinstance(step, LoopStep):
            step = with_body(step, self.fused(step.body))
            self.inside[id(step)] = values_read(step.body, self.inside)
        if isinstance(step, TableStep):
            self.slices.add(step.value)
        return step

    def _try(self, body: Body, place: int, producer: KernelStep, rules: Sequence[FusionRule]) -> "list[int] | _Apart":
        """Fuse a kernel with its result's only reader; returns the positions to try again, or why not."""
        value = producer.outputs[0]
        refusal = self._kept(producer)
        if refusal is not None:
            return _Apart((refusal,), is_general=True)
        reader = body.only_reader(value, place)
        if isinstance(reader, Refusal):
            # Reading a weight in its stored form costs none of its readers anything.
            copied = self._copies(body, place, producer, (read_elsewhere,)) if widens_weight(producer) else None
            return copied or _Apart((reader,), is_general=True)
        consumer = body.kernel(reader)
        assert consumer is not None
        refusal = self._refusal(body, place, reader, producer, consumer)
        if refusal is not None:
            return _Apart((refusal,))
        made = self._joined(producer, consumer, value, rules)
        if not isinstance(made, KernelStep):
            return _Apart(made)
        self.ledger.fused(producer.node, consumer.node, 2 * value.nbytes)
        return body.join(place, reader, made)

    def _try_copies(self, body: Body, place: int, producer: KernelStep) -> "list[int] | None":
        """Fuse a cheap kernel with each reader of its result into one launch, if that works for all of them."""
        is_launch = self.options.is_launch
        if is_launch is None or not is_cheap(producer.kernel):
            return None
        return self._copies(body, place, producer, (one_launch(is_launch),))

    def _copies(self, body: Body, place: int, producer: KernelStep, rules: Sequence[FusionRule]) -> "list[int] | None":
        """Fuse a kernel with each reader of its result by some rules, if that works for all of them."""
        (value,) = producer.outputs
        readers = body.readers(value, place)
        if not readers:
            return None
        made: dict[int, KernelStep] = {}
        for reader in readers:
            consumer = body.kernel(reader)
            assert consumer is not None
            if self._refusal(body, place, reader, producer, consumer) is not None:
                return None
            one = self._joined(producer, consumer, value, rules)
            if not isinstance(one, KernelStep):
                return None
            made[reader] = one
        for one in made.values():
            self.ledger.fused(producer.node, one.node, 2 * value.nbytes // len(made))
        return body.copy(place, made)

    def _kept(self, producer: KernelStep) -> Refusal | None:
        """Why a kernel's results must be in memory whatever reads them; None if they need not."""
        if len(producer.outputs) != 1:
            return _SEVERAL_RESULTS
        (value,) = producer.outputs
        if value.is_home or value.storage is not Storage.ARENA:
            return _KEPT
        return _RETURNED if value in self.needed else None

    def _refusal(self, body: Body, first: int, last: int, producer: KernelStep, consumer: KernelStep) -> Refusal | None:
        nodes, others = producer.nodes or (producer.node,), consumer.nodes or (consumer.node,)
        inputs = {operand for operand in producer.inputs if isinstance(operand, Value)} | set(producer.scalars)
        refusal = (
            self.constraints.joined_refusal(nodes, others)
            or body.passed_refusal(nodes, first, last)
            or body.obstacle(inputs, first, last)
        )
        if refusal is None and len(nodes) + len(others) > self.options.max_kernel_ops:
            return Refusal("a kernel would have more than {} ops", (self.options.max_kernel_ops,))
        return refusal

    def _joined(
        self, producer: KernelStep, consumer: KernelStep, value: Value, rules: Sequence[FusionRule]
    ) -> KernelStep | tuple[Refusal, ...]:
        one, other = renamed_apart(producer.kernel, consumer.kernel)
        places = [place for place, operand in enumerate(consumer.inputs) if operand is value]
        target = other.inputs[places[0]]
        kept = [buffer for place, buffer in enumerate(other.inputs) if place not in places]
        other = replace(
            with_buffers(other, {other.inputs[place].name: target for place in places[1:]}), inputs=other.inputs
        )
        is_slice = bool(producer.inputs) and producer.inputs[0] in self.slices
        is_weight = reads_weight(producer)
        pair = Pair(one, other, target, is_slice, is_weight, self.options.max_recomputed)
        made = joined(pair, rules)
        if not isinstance(made, Kernel):
            own = joined(pair, self.options.rules)
            if not isinstance(own, Kernel):
                return made
            made = own
        others = [operand for operand in consumer.inputs if operand is not value]
        merged = replace(made, inputs=(*one.inputs, *kept), outputs=other.outputs)
        nodes = (*(producer.nodes or (producer.node,)), *(consumer.nodes or (consumer.node,)))
        if made.name == other.name and len(one.inputs) == 1:
            # The operand that replaces the value takes over its name.
            merged = with_buffers(
                merged, {one.inputs[0].name: replace(one.inputs[0], name=target.name, stem=target.stem)}
            )
        merged = with_plain_outputs(merged)
        scratch = (*producer.scratch, *consumer.scratch)
        if len(merged.scratch) > len(scratch):
            # The value between them becomes scratch memory of the kernel.
            scratch = (Value(value.name, value.dtype, value.shape), *scratch)
        return KernelStep(
            replace(merged, doc=(*one.doc, *other.doc)),
            (*producer.inputs, *others),
            consumer.outputs,
            consumer.node,
            scratch,
            (*producer.scalars, *consumer.scalars),
            nodes,
        )
