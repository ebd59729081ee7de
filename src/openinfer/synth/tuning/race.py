"""Races kernels that compute the same in different ways: one program runs all of them and times each.

The program consists of calls alone: all calls of one candidate, then those of the next. Candidates are thus interleaved
and run equally often, and each finds its weights as cold as in the program that it is chosen for.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from openinfer.loops.dim import most_elements
from openinfer.synth.program.ir import KernelStep, Program, StepOperand, Value, Weight
from openinfer.synth.run.timed import StepTimes, TimedModule
from openinfer.synth.targets.cstyle.statements import kernel_sizes
from openinfer.synth.targets.project import RunnableProject

_MOST_CALLS = 6
_MOST_BYTES = 24 << 20
"""The most bytes of weights that the calls of one candidate read."""
_LEAST_ROUNDS = 9


@dataclass(frozen=True)
class Race:
    """A program that runs candidates one after the other, and the positions of each candidate's counted calls."""

    project: RunnableProject
    counted: tuple[range, ...]

    def times(self, step: StepTimes) -> list[float]:
        """The seconds of each candidate in one step."""
        return [sum(step.calls[place][1] for place in places) for places in self.counted]


MakeProject = Callable[[Program], RunnableProject]
Measure = Callable[[Race, float], Sequence[Sequence[float]]]
"""Runs a race for a number of seconds; returns the times of all candidates in each round."""


def raced(race: Race, seconds: float) -> list[list[float]]:
    """Run rounds on this machine. The first one warms up, and does not count."""
    module = TimedModule(race.project, race.project.options.cc or "gcc")
    module.timed_step()
    rounds: list[list[float]] = []
    end = perf_counter() + seconds
    while len(rounds) < _LEAST_ROUNDS or perf_counter() < end:
        rounds.append(race.times(module.timed_step()))
    return rounds


def race_of(
    program: Program, candidates: Sequence[Sequence[KernelStep]], project: MakeProject, *, is_warm: bool
) -> Race:
    """A race of kernels with the weights of a program.

    ``is_warm``: the weights stay in the L2 cache, so calls are made twice and only the second time counts.
    """
    memory = _CallMemory()
    steps: list[KernelStep] = []
    counted = []
    for calls in candidates:
        for _ in range(1 + is_warm):
            first = len(steps)
            steps += [memory.placed(call) for call in calls]
        counted.append(range(first, len(steps)))
    bound = replace(program.bound, vars={}, bounds={})
    made = Program(bound, {"entry": (*steps,)}, {}, {}, {}, {}, {}, folded=program.folded)
    return Race(project(made), tuple(counted))


class _CallMemory:
    """Values for calls outside of their program. All candidates read the same memory, as they would in a step."""

    def __init__(self) -> None:
        self._read: dict[tuple[int, str, tuple[int, ...]], Value] = {}
        self._count = 0

    def placed(self, call: KernelStep) -> KernelStep:
        return replace(
            call,
            inputs=tuple(self._input(number, operand) for number, operand in enumerate(call.inputs)),
            outputs=tuple(self._new(value) for value in call.outputs),
            scratch=tuple(self._new(value) for value in call.scratch),
        )

    def _input(self, number: int, operand: StepOperand) -> StepOperand:
        if isinstance(operand, Weight):
            return operand
        key = (number, operand.dtype.name, operand.shape)
        if key not in self._read:
            self._read[key] = self._new(operand)
        return self._read[key]

    def _new(self, value: Value) -> Value:
        self._count += 1
        return Value(f"v{self._count}", value.dtype, value.shape)


# --- calls of a program -----------------------------------------------------------------------------------------------


def calls_in(program: Program) -> Iterator[KernelStep]:
    """The calls of a program that can run in isolation: all sizes are known, and nothing fails.

    A call whose weights are selected by a loop becomes one call for each of them.
    """
    for step in program.steps():
        if isinstance(step, KernelStep) and _is_alone(step):
            yield from _with_fixed_weights(step)


def _is_alone(step: KernelStep) -> bool:
    return not kernel_sizes(step.kernel) and not step.kernel.can_fail


def _with_fixed_weights(step: KernelStep) -> Iterator[KernelStep]:
    families = [operand.names for operand in step.inputs if isinstance(operand, Weight)]
    for number in range(max(map(len, families), default=1)):
        names = [family[number % len(family)] for family in families]
        if all(names):
            yield replace(step, inputs=tuple(_fixed(operand, number) for operand in step.inputs), scalars=())


def _fixed(operand: StepOperand, number: int) -> StepOperand:
    if not isinstance(operand, Weight):
        return operand
    name = operand.names[number % len(operand.names)]
    return replace(operand, names=(name,), index=(), extents=(), firsts=())


def fewer(calls: Sequence[KernelStep]) -> Sequence[KernelStep]:
    """A sample of the calls of a product, evenly spaced: as many as needed and as fit in memory."""
    each = max(weight_bytes([call]) for call in calls)
    most = max(1, min(_MOST_CALLS, _MOST_BYTES // max(each, 1)))
    return calls[:: -(-len(calls) // most)]


def weight_bytes(calls: Iterable[KernelStep]) -> int:
    """The bytes of weights that some calls read."""
    weights = {
        (operand.names, operand.part): operand
        for call in calls
        for operand in call.inputs
        if isinstance(operand, Weight)
    }
    return sum(weight.dtype.nbytes(most_elements(weight.shape)) for weight in weights.values())
