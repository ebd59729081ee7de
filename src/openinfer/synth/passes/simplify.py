"""Less to do for the same result: what the model alone decides, what is computed twice, what nothing reads.

Every result stays what the simulator says it is, bit for bit, but for those of batch norms, which stay within the bound
of their op (``norms``).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from openinfer.loops.dim import form
from openinfer.loops.text import kernel_text
from openinfer.ops import Array, OpError, ReferenceKernel
from openinfer.synth.passes.dead_steps import without_dead_steps
from openinfer.synth.passes.fuse.relayout import widens_weight
from openinfer.synth.passes.norms import folded_norm
from openinfer.synth.program.constraints import ProgramConstraints
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
    PartStep,
    Program,
    Step,
    StepOperand,
    Steps,
    TableStep,
    Value,
    Weight,
    with_body,
)
from openinfer.synth.program.liveness import definitions, uses
from openinfer.tensor import Tensor

_ALWAYS_FOLDED = 4096
"""Results of at most this many bytes are stored, however small their operands are; but no matrix as a wider one."""


@dataclass(frozen=True)
class Simplify:
    """The pass. Without any of its parts, every node keeps its kernel; only unused moves are left out.

    ``fold``: ops on nothing but model tensors are computed now. ``share``: the same op on the same operands is computed
    once. ``drop``: ops whose results nothing reads are left out. ``norms``: batch norms whose statistics are tensors of
    the model are a product and a sum for each channel.
    """

    fold: bool = True
    share: bool = True
    drop: bool = True
    norms: bool = True

    def run(self, program: Program) -> Program:
        """The program with less in it."""
        if self.fold or self.norms:
            program = _Folding(program, self.fold, self.norms).run()
        if self.share:
            program = _shared(program)
        kinds = (Move, KernelStep, IntegerStep) if self.drop else (Move,)
        return without_dead_steps(replace(program, keeps_marked=not self.drop), kinds)


def _substituted(step: Step, known: Mapping[Value, StepOperand]) -> Step:
    """A step that reads other operands in place of some values; what an index reads stays."""

    def operand(one: StepOperand) -> StepOperand:
        return known.get(one, one) if isinstance(one, Value) else one

    def value(one: Value) -> Value:
        found = known.get(one)
        return found if isinstance(found, Value) else one

    match step:
        case KernelStep(inputs=inputs) if any(one in known for one in inputs):
            return replace(step, inputs=tuple(map(operand, inputs)))
        case Move(src=src) if src in known:
            return replace(step, src=operand(src))
        case PartStep(whole=whole, value=one) if whole in known or one in known:
            return replace(step, whole=operand(whole), value=None if one is None else operand(one))
        case TableStep(value=Value() as one) if one in known:
            return replace(step, value=value(one))
        case EntryStep(value=one) if one in known:
            return replace(step, value=value(one))
        case CallStep(args=args) if any(one in known for one in args):
            return replace(step, args=tuple(map(operand, args)))
        case BranchStep(cond=Value() as one) if one in known:
            return replace(step, cond=value(one))
        case Mark(values=values) if any(one in known for one in values):
            return replace(step, values=tuple(map(operand, values)))
        case _:
            return step


# --- what the model alone decides -------------------------------------------------------------------------------------


class _Folding:
    """Ops whose operands are all tensors of the model, computed as the simulator computes them."""

    def __init__(self, program: Program, folds: bool, norms: bool) -> None:  # noqa: FBT001  (as its pass has them)
        self._program, self._folds, self._norms = program, folds, norms
        self._constraints = ProgramConstraints(program)
        self._outputs = set(program.outputs.values())
        self._readers: dict[Value, list[Step]] = {}
        for step in program.steps():
            for value in dict.fromkeys(uses(step)):
                self._readers.setdefault(value, []).append(step)
        self._folded = dict(program.folded)
        self._known: dict[Value, StepOperand] = {}
        """The results that were computed, as tensors of the program's own."""

    def run(self) -> Program:
        # A value is read behind the step that makes it: by then it is known whether that step is still there.
        program = self._program.map_steps(self._step)
        return replace(program, folded=self._folded)

    def _step(self, before: Step) -> tuple[Step, ...]:
        step = _substituted(before, self._known)
        if not isinstance(step, KernelStep):
            return (step,)
        results = self._results(step) if self._folds else None
        if results is not None:
            self._known |= results
            return ()
        return (self._norm(step),) if self._norms else (step,)

    def _norm(self, step: KernelStep) -> KernelStep:
        """A batch norm as a product and a sum, where the model has its statistics; all others as they are."""
        found = folded_norm(self._program, step, lambda one: self._array(one) if self._is_tensor(one) else None)
        if found is None:
            return step
        self._folded |= found[1]
        return found[0]

    def _is_tensor(self, operand: StepOperand) -> bool:
        return isinstance(operand, Weight) and self._is_known(operand)

    def _results(self, step: KernelStep) -> dict[Value, StepOperand] | None:
        own = self._program.bound.ops.get(step.node)
        if own is None or own.call is None or own.is_dynamic or self._constraints.is_bound(step.node):
            return None
        if not self._is_worth_it(step):
            return None
        if not all(map(self._takes_weights, step.outputs)):
            return None
        loaded = iter(step.inputs)
        arrays = [None if operand is None else self._array(next(loaded)) for operand in own.operands]
        try:
            with np.errstate(all="ignore"):
                results = ReferenceKernel(own.record, own.call, own.stored)(arrays)
        except OpError:
            return None
        made: dict[Value, StepOperand] = {}
        for number, (value, result) in enumerate(zip(step.outputs, results, strict=True)):
            name = f"node {step.node}" if len(results) == 1 else f"node {step.node}, result {number}"
            self._folded[name] = Tensor.from_numpy(result, value.dtype)
            made[value] = Weight((name,), value.dtype, value.shape, part=FOLDED)
        return made

    def _is_worth_it(self, step: KernelStep) -> bool:
        """Whether all operands are known, and storing the result takes no more memory than they do."""
        weights = [one for one in step.inputs if isinstance(one, Weight) and self._is_known(one)]
        if not step.inputs or len(weights) < len(step.inputs):
            return False
        taken = sum(one.dtype.nbytes(prod(one.shape)) for one in weights)
        is_wider_matrix = len(step.outputs[0].shape) > 1 and widens_weight(step)
        return sum(value.nbytes for value in step.outputs) <= (0 if is_wider_matrix else max(taken, _ALWAYS_FOLDED))

    def _is_known(self, weight: Weight) -> bool:
        model = self._program.bound.model
        is_tensor = model is not None and weight.names[0] in model.tensors
        return not weight.index and (weight.part == FOLDED or is_tensor)

    def _array(self, operand: StepOperand) -> Array:
        assert isinstance(operand, Weight)
        if operand.part == FOLDED:
            return self._folded[operand.names[0]].to_numpy()
        assert self._program.bound.model is not None
        return self._program.bound.model.load(operand.names[0]).to_numpy()

    def _takes_weights(self, value: Value) -> bool:
        """Whether all that read a value can as well read a tensor of the model."""
        return value not in self._outputs and all(
            isinstance(step, KernelStep | Move | PartStep) and value not in step.scalars
            for step in self._readers.get(value, ())
        )


# --- what is computed twice -------------------------------------------------------------------------------------------


def _shared(program: Program) -> Program:
    constraints, known = ProgramConstraints(program), dict[Value, Value]()
    blocks = {name: _Sharing(constraints, known).shared(steps) for name, steps in program.blocks.items()}
    outputs = {name: known.get(value, value) for name, value in program.outputs.items()}
    return replace(program, blocks=blocks, outputs=outputs)


@dataclass
class _Sharing:
    """The kernel calls of one body, as long as their operands are what they were."""

    constraints: ProgramConstraints
    instead: dict[Value, Value]
    """For values that were computed again, those of the first time."""
    known: dict[object, KernelStep] = field(default_factory=dict)
    readers: dict[Value, set[object]] = field(default_factory=dict)
    """For each value the known calls that read it."""
    at_home: set[object] = field(default_factory=set)
    """The known calls that read from homes."""

    def shared(self, steps: Steps) -> Steps:
        """The steps without calls that would compute a value again."""
        found: list[Step] = []
        for before in steps:
            step = _substituted(before, self.instead)
            if isinstance(step, LoopStep):
                step = with_body(step, _Sharing(self.constraints, self.instead).shared(step.body))
            if isinstance(step, Fence) or self.constraints.must_stay(step.node):
                self._forget_all(list(self.known))
            key = _key(step) if isinstance(step, KernelStep) else None
            if isinstance(step, KernelStep) and (first := self._same(step, key)) is not None:
                self.instead.update(zip(step.outputs, first.outputs, strict=True))
                continue
            self._forget(step)
            if isinstance(step, KernelStep) and key not in self.known:
                self._remember(key, step)
            found.append(step)
        return tuple(found)

    def _same(self, step: KernelStep, key: object) -> KernelStep | None:
        """An earlier call that gave what this one would give, unless the graph keeps the two apart."""
        if any(value.is_home for value in step.outputs) or self.constraints.is_bound(step.node):
            return None
        first = self.known.get(key)
        return None if first is None or self.constraints.refusal(first.node, step.node) is not None else first

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
        written = [*definitions(step)]
        if isinstance(step, PartStep) and step.action.is_change and isinstance(step.whole, Value):
            written.append(step.whole)
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
