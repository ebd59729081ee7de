"""Less to do for the same result: what the model alone decides, what is computed twice, what nobody reads.

Every result stays what the simulator says it is, bit for bit. Rewrites that round differently (a batch_norm taken into
the weights of a convolution) are therefore not among these.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

import numpy as np

from openinfer.loops.dim import form
from openinfer.loops.text import kernel_text
from openinfer.ops import Array, Kernel, OpError
from openinfer.synth.passes.dead_steps import without_dead_steps
from openinfer.synth.program.constraints import Limits
from openinfer.synth.program.ir import (
    FOLDED,
    BranchStep,
    CallStep,
    EntryStep,
    Fence,
    IntegerStep,
    KernelStep,
    LoopStep,
    Mark,
    Move,
    Operand,
    PartStep,
    Program,
    Step,
    TableStep,
    Value,
    Weight,
    steps_in,
)
from openinfer.synth.program.liveness import definitions, uses
from openinfer.tensor import Tensor

_ALWAYS_FOLDED = 4096
"""Results of so few bytes are stored, however small their operands are."""


@dataclass(frozen=True)
class Simplify:
    """The pass. Without any of its parts, every node keeps its kernel; only moves that nobody needs are left out.

    ``fold``: ops on nothing but model tensors are computed now. ``share``: the same op on the same operands is computed
    once. ``drop``: ops whose results nobody reads are left out.
    """

    fold: bool = True
    share: bool = True
    drop: bool = True

    def run(self, program: Program) -> Program:
        """The program with less in it; its steps are changed in place."""
        if self.fold:
            _Folding(program).run()
        if self.share:
            _share(program)
        program.keeps_marked = not self.drop
        return without_dead_steps(program, (Move, KernelStep, IntegerStep) if self.drop else (Move,))


# --- what the model alone decides -------------------------------------------------------------------------------------


class _Folding:
    """Ops whose operands are all tensors of the model, computed as the simulator computes them."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._limits = Limits(program)
        self._outputs = set(program.outputs.values())

    def run(self) -> None:
        for name, steps in self._program.blocks.items():
            self._program.blocks[name] = self._folded(steps, Mentions(steps))

    def _folded(self, steps: list[Step], mentions: "Mentions") -> list[Step]:
        found: list[Step] = []
        for step in steps:
            if isinstance(step, LoopStep):
                step.body = self._folded(step.body, mentions)
            results = self._results(step, mentions) if isinstance(step, KernelStep) else None
            if results is None:
                found.append(step)
                continue
            for value, weight in results.items():
                mentions.substitute(value, weight)
        return found

    def _results(self, step: KernelStep, mentions: "Mentions") -> dict[Value, Operand] | None:
        own = self._program.bound.ops.get(step.node)
        if own is None or own.call is None or own.is_dynamic or self._limits.is_bound(step.node):
            return None
        if not self._is_worth_it(step):
            return None
        if not all(self._takes_weights(mentions, value) for value in step.outputs):
            return None
        loaded = iter(step.inputs)
        arrays = [None if operand is None else self._array(next(loaded)) for operand in own.operands]
        try:
            with np.errstate(all="ignore"):
                results = Kernel(own.record, own.call, own.stored)(arrays)
        except OpError:
            return None
        made: dict[Value, Operand] = {}
        for number, (value, result) in enumerate(zip(step.outputs, results, strict=True)):
            name = f"node {step.node}" if len(results) == 1 else f"node {step.node}, result {number}"
            self._program.folded[name] = Tensor.from_numpy(result, value.dtype)
            made[value] = Weight((name,), value.dtype, value.shape, part=FOLDED)
        return made

    def _is_worth_it(self, step: KernelStep) -> bool:
        """Whether all operands are known, and storing the result takes no more memory than they do."""
        weights = [operand for operand in step.inputs if isinstance(operand, Weight) and self._is_known(operand)]
        if not step.inputs or len(weights) < len(step.inputs):
            return False
        taken = sum(one.dtype.nbytes(prod(one.shape)) for one in weights)
        return sum(value.nbytes for value in step.outputs) <= max(taken, _ALWAYS_FOLDED)

    def _is_known(self, weight: Weight) -> bool:
        model = self._program.bound.model
        is_tensor = model is not None and weight.names[0] in model.tensors
        return not weight.index and (weight.part == FOLDED or is_tensor)

    def _array(self, operand: Operand) -> Array:
        assert isinstance(operand, Weight)
        if operand.part == FOLDED:
            return self._program.folded[operand.names[0]].to_numpy()
        assert self._program.bound.model is not None
        return self._program.bound.model.load(operand.names[0]).to_numpy()

    def _takes_weights(self, mentions: "Mentions", value: Value) -> bool:
        """Whether all that read a value can as well read a tensor of the model."""
        return value not in self._outputs and all(
            isinstance(step, KernelStep | Move | PartStep) and value not in step.scalars
            for step in mentions.of(value)
            if value in uses(step)
        )


class Mentions:
    """The steps of a block that name each value: other than those that make it, the places where it can be replaced."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps: dict[Value, list[Step]] = {}
        for step in steps_in(steps):
            for value in dict.fromkeys(_mentioned(step)):
                self._steps.setdefault(value, []).append(step)

    def of(self, value: Value) -> list[Step]:
        """The steps that name a value."""
        return self._steps.get(value, [])

    def substitute(self, old: Value, new: Operand) -> None:
        """Let everything that reads one value read another operand instead."""
        steps = self._steps.pop(old, [])
        for step in steps:
            _substitute(step, old, new)
        if isinstance(new, Value):
            self._steps.setdefault(new, []).extend(steps)


def _mentioned(step: Step) -> list[Value]:
    match step:
        case Mark(values=values):
            return [value for value in values if isinstance(value, Value)]
        case PartStep(whole=whole, value=value):
            return [*(one for one in (whole, value) if isinstance(one, Value)), *step.scalars]
        case _:
            return uses(step)


def _substitute(step: Step, old: Value, new: Operand) -> None:
    match step:
        case KernelStep():
            step.inputs = [new if one is old else one for one in step.inputs]
        case Move() if step.src is old:
            step.src = new
        case PartStep():
            step.whole = new if step.whole is old else step.whole
            step.value = new if step.value is old else step.value
        case TableStep() | EntryStep() if step.value is old and isinstance(new, Value):
            step.value = new
        case Mark():
            step.values = tuple(new if one is old else one for one in step.values)
        case BranchStep() if step.cond is old and isinstance(new, Value):
            step.cond = new


# --- what is computed twice -------------------------------------------------------------------------------------------


def _share(program: Program) -> None:
    limits = Limits(program)
    outputs: dict[Value, list[str]] = {}
    for name, value in program.outputs.items():
        outputs.setdefault(value, []).append(name)
    for name, steps in program.blocks.items():
        program.blocks[name] = _Sharing(program, limits, outputs, Mentions(steps)).shared(steps)


@dataclass
class _Sharing:
    """The kernel calls of one body, as long as their operands are what they were."""

    program: Program
    limits: Limits
    outputs: dict[Value, list[str]]
    """The names under which values are outputs."""
    mentions: Mentions
    known: dict[object, KernelStep] = field(default_factory=dict)
    readers: dict[Value, set[object]] = field(default_factory=dict)
    """For each value the known calls that read it."""
    at_home: set[object] = field(default_factory=set)
    """The known calls that read from homes."""

    def shared(self, steps: list[Step]) -> list[Step]:
        """The steps without calls that would compute a value again."""
        found: list[Step] = []
        for step in steps:
            if isinstance(step, LoopStep):
                step.body = _Sharing(self.program, self.limits, self.outputs, self.mentions).shared(step.body)
            if isinstance(step, Fence) or self.limits.must_stay(step.node):
                self._forget_all(list(self.known))
            key = _key(step) if isinstance(step, KernelStep) else None
            if isinstance(step, KernelStep) and (first := self._same(step, key)) is not None:
                for old, new in zip(step.outputs, first.outputs, strict=True):
                    self._use_instead(old, new)
                continue
            self._forget(step)
            if isinstance(step, KernelStep) and key not in self.known:
                self._remember(key, step)
            found.append(step)
        return found

    def _same(self, step: KernelStep, key: object) -> KernelStep | None:
        """An earlier call that gave what this one would give, unless the graph keeps the two apart."""
        if any(value.is_home for value in step.outputs) or self.limits.is_bound(step.node):
            return None
        first = self.known.get(key)
        return None if first is None or self.limits.refusal(first.node, step.node) is not None else first

    def _use_instead(self, old: Value, new: Value) -> None:
        self.mentions.substitute(old, new)
        names = self.outputs.pop(old, [])
        self.program.outputs.update(dict.fromkeys(names, new))
        self.outputs.setdefault(new, []).extend(names)

    def _remember(self, key: object, step: KernelStep) -> None:
        if any(value.is_home for value in step.outputs):
            return  # a home is written again, and nothing else may be what it is now
        self.known[key] = step
        for value in uses(step):
            self.readers.setdefault(value, set()).add(key)
            if value.is_home:
                self.at_home.add(key)

    def _forget(self, step: Step) -> None:
        """Calls that have read what this step changes. Blocks and loops can change everything that has a home."""
        written = definitions(step)
        if isinstance(step, PartStep) and step.action in ("write", "reset") and isinstance(step.whole, Value):
            written = [*written, step.whole]
        for value in written:
            self._forget_all(self.readers.pop(value, ()))
        if isinstance(step, LoopStep | BranchStep | CallStep):
            self._forget_all(self.at_home)
            self.at_home = set()

    def _forget_all(self, keys: Iterable[object]) -> None:
        for key in keys:
            self.known.pop(key, None)


def _key(step: KernelStep) -> object:
    """What a call computes: equal keys, equal results. Values are themselves; weights are what they name."""
    shapes = tuple(tuple(map(form, value.shape)) for value in step.outputs)
    return kernel_text(step.kernel), tuple(step.inputs), tuple(step.scalars), shapes
