"""Dead step elimination: removes steps whose results are unused."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from openinfer.ir.expr import Ref
from openinfer.synth.program.ir import (
    Action,
    EntryStep,
    IntegerStep,
    KernelStep,
    Move,
    PartStep,
    Program,
    Step,
    TableStep,
    Value,
    Weight,
    WeightCheck,
)
from openinfer.synth.program.liveness import Liveness, Touch, uses

_PARTS = TableStep | PartStep | EntryStep


def _is_pure(step: Step) -> bool:
    """Whether a step has no effect but its results, apart from checking the indices of the weights it reads."""
    if isinstance(step, KernelStep):
        return not step.kernel.can_fail
    if isinstance(step, IntegerStep):
        return isinstance(step.expr, Ref) and not step.scalars  # reading a loop index cannot fail
    return isinstance(step, Move)


def _is_idle(step: Step, owned: Collection[Value]) -> bool:
    """Whether a step has nothing to write: its results are empty, and none is one that some step must own."""
    match step:
        case KernelStep(outputs=results):
            return all(one.is_empty and one not in owned for one in results)
        case Move(dst=result):
            return result.is_empty and result not in owned
        case _:
            return False


def _weight_checks(step: Step) -> tuple[Step, ...]:
    """The index checks of the weights that a step reads, one per index even if several parts of a tensor are read."""
    if not isinstance(step, KernelStep | Move):
        return ()
    operands = step.inputs if isinstance(step, KernelStep) else (step.src,)
    chosen = {(one.names[0], one.index): one for one in operands if isinstance(one, Weight) and one.can_miss}
    return tuple(WeightCheck(one, step.node, step.scalars) for one in chosen.values())


def without_dead_steps(program: Program, kinds: tuple[type, ...] = (Move, KernelStep, IntegerStep)) -> Program:
    """The program without moves and kernels whose results are unused or empty, and without steps that only these used.

    A dead read whose indices can be out of bounds is reduced to its bounds check.
    """
    found = _DeadSteps(program, kinds)
    found.find()
    return program.map_steps(found.kept)


class _DeadSteps:
    """Finds the dead steps of a program."""

    def __init__(self, program: Program, kinds: tuple[type, ...]) -> None:
        self._kinds = kinds
        self._liveness = Liveness(program)
        self._owned = {
            *program.outputs.values(),
            *(one for params in program.params.values() for one in params.results),
        }
        self._needed: dict[int, set[Value]] = {}
        """By the ``id`` of a step: the values it writes that are live after it."""
        self._instead: dict[int, tuple[Step, ...]] = {}
        """By the ``id`` of a dead step: its replacement, which is empty or the check of its indices."""

    def find(self) -> None:
        """Find all dead steps, then those that only these used, and so on."""
        touches = self._liveness.touches
        writers = [step for found in touches.values() for step in _writers(found.values())]
        self._without(step for step in writers if _is_idle(step, self._owned))
        changed: Iterable[Value] = list(touches)
        while changed:
            suspects: dict[int, Step] = {}
            for value in changed:
                behind = {id(step) for step in self._liveness.life(value).needed_behind}
                for step in _writers(touches[value].values()):
                    needed = self._needed.setdefault(id(step), set())
                    (needed.add if id(step) in behind else needed.discard)(value)
                    suspects[id(step)] = step
            changed = self._without([step for step in suspects.values() if not self._needed[id(step)]])

    def _without(self, suspects: Iterable[Step]) -> list[Value]:
        """Remove those steps that have no other effect; returns the values that these have read."""
        gone: dict[Value, set[int]] = {}
        for step in suspects:
            stays = self._left_of(step) if id(step) not in self._instead else None
            if stays is None:
                continue
            self._instead[id(step)] = stays
            still = {value for one in stays for value in uses(one)}
            for value in dict.fromkeys(uses(step)):
                if value not in still:
                    gone.setdefault(value, set()).add(id(step))
        touches = self._liveness.touches
        for value, steps in gone.items():
            touches[value] = {name: _without_steps(found, steps) for name, found in touches[value].items()}
        return list(gone)

    def _left_of(self, step: Step) -> tuple[Step, ...] | None:
        """The replacement of a step whose results are unused; None if it must stay as it is."""
        if isinstance(step, self._kinds) and _is_pure(step):
            return _weight_checks(step)
        if KernelStep in self._kinds and isinstance(step, _PARTS) and step.action is Action.READ:
            return (replace(step, action=Action.CHECK),)
        return None

    def kept(self, step: Step) -> tuple[Step, ...]:
        """What remains of a step."""
        return self._instead.get(id(step), (step,))


def _writers(blocks: Iterable[Iterable[Touch]]) -> Iterable[Step]:
    for touches in blocks:
        for touch in touches:
            if touch.is_written:
                yield touch.step
            yield from _writers([touch.inner])


def _without_steps(touches: Iterable[Touch], gone: set[int]) -> tuple[Touch, ...]:
    return tuple(
        replace(touch, inner=_without_steps(touch.inner, gone)) if touch.inner else touch
        for touch in touches
        if id(touch.step) not in gone
    )
