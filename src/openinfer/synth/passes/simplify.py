"""Simplification: constant folding, common subexpression elimination, dead code elimination.

Results stay bit-identical to the simulator's, except for batch norms, which stay within their op's error bound
(``norms``).
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
"""Results of at most this many bytes are folded even if their operands are smaller, unless they are widened
matrices.
"""


@dataclass(frozen=True)
class Simplify:
    """The pass. With all parts disabled, every node keeps its kernel, and only unused moves are removed.

    ``fold`` computes ops whose operands are all model tensors at compile time. ``share`` computes the same op on the
    same operands once. ``drop`` removes ops whose results are unused. ``norms`` turns batch norms whose statistics are
    model tensors into a product and a sum per channel.
    """

    fold: bool = True
    share: bool = True
    drop: bool = True
    norms: bool = True

    def run(self, program: Program) -> Program:
        """The simplified program."""
        if self.fold or self.norms:
            program = _Folding(program, self.fold, self.norms).run()
        if self.share:
            program = _shared(program)
        kinds = (Move, KernelStep, IntegerStep) if self.drop else (Move,)
        return without_dead_steps(replace(program, keeps_marked=not self.drop), kinds)


def _substituted(step: Step, known: Mapping[Value, StepOperand]) -> Step:
    """The step with operands substituted for some values; scalars that an index reads stay."""

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


# --- constant folding -------------------------------------------------------------------------------------------------


class _Folding:
    """Folds ops whose operands are all model tensors, with the simulator's arithmetic."""

    def __init__(self, program: Program, folds: bool, norms: bool) -> None:  # noqa: FBT001  (options of the pass)
        self._program, self._folds, self._norms = program, folds, norms
        self._constraints = ProgramConstraints(program)
        self._outputs = set(program.outputs.values())
        self._readers: dict[Value, list[Step]] = {}
        for step in program.steps():
            for value in dict.fromkeys(uses(step)):
                self._readers.setdefault(value, []).append(step)
        self._folded = dict(program.folded)
        self._known: dict[Value, StepOperand] = {}
        """The folded results, as weights of the program's own."""

    def run(self) -> Program:
        # A step reads values of steps before it: whether those were folded is known by then.
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
        """A batch norm with constant statistics as a product and a sum; other steps unchanged."""
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
        if not all(map(self._accepts_weight, step.outputs)):
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
        """Whether all operands are constant, and the result needs no more memory than they do."""
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

    def _accepts_weight(self, value: Value) -> bool:
        """Whether every reader of a value can read a weight instead."""
        return value not in self._outputs and all(
            isinstance(step, KernelStep | Move | PartStep) and value not in step.scalars
            for step in self._readers.get(value, ())
        )


# --- common subexpression elimination ---------------------------------------------------------------------------------


def _shared(program: Program) -> Program:
    constraints, known = ProgramConstraints(program), dict[Value, Value]()
    blocks = {name: _Sharing(constraints, known).shared(steps) for name, steps in program.blocks.items()}
    outputs = {name: known.get(value, value) for name, value in program.outputs.items()}
    return replace(program, blocks=blocks, outputs=outputs)


@dataclass
class _Sharing:
    """The available kernel calls of one body: those whose operands have not changed since."""

    constraints: ProgramConstraints
    instead: dict[Value, Value]
    """For each redundant value, the value that was computed first."""
    known: dict[object, KernelStep] = field(default_factory=dict)
    readers: dict[Value, set[object]] = field(default_factory=dict)
    """For each value, the available calls that read it."""
    at_home: set[object] = field(default_factory=set)
    """The available calls that read from homes."""

    def shared(self, steps: Steps) -> Steps:
        """The steps without redundant calls."""
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
        """An earlier call with the same results, unless the graph keeps the two apart."""
        if any(value.is_home for value in step.outputs) or self.constraints.is_bound(step.node):
            return None
        first = self.known.get(key)
        return None if first is None or self.constraints.refusal(first.node, step.node) is not None else first

    def _remember(self, key: object, step: KernelStep) -> None:
        if any(value.is_home for value in step.outputs):
            return  # a home is overwritten later, so its current value cannot be shared
        self.known[key] = step
        for value in uses(step):
            self.readers.setdefault(value, set()).add(key)
            if value.is_home:
                self.at_home.add(key)

    def _forget(self, step: Step) -> None:
        """Drop calls that read what this step changes. Blocks and loops may change every home."""
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
    """What a call computes: equal keys mean equal results. Values have identity; weights compare by what they name."""
    shapes = tuple(tuple(map(form, value.shape)) for value in step.outputs)
    return kernel_text(step.kernel), tuple(step.inputs), tuple(step.scalars), shapes
