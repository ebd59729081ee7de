"""Times steps of compiled code for ``plan.profile``."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.synth.program.cost import cost_of
from openinfer.synth.report.profile import KernelProfile, NodePlace, Profile, Times, joined
from openinfer.synth.report.report import node_facts
from openinfer.synth.report.roofline import Roofline
from openinfer.synth.run.build import library_of
from openinfer.synth.run.library import FLAGS
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.run.roofline import measured_roofline
from openinfer.synth.targets.cpu.machine import CpuMachine
from openinfer.synth.targets.project import RunnableProject


@dataclass(frozen=True)
class StepTimes:
    """The seconds of a step, and for each call site the number of calls and their seconds."""

    seconds: float
    calls: tuple[tuple[int, float], ...]


class TimedModule(CompiledModule):
    """A compiled module whose steps are timed, in C. The timers belong to the library: one such module at a time."""

    def __init__(self, project: RunnableProject, cc: str) -> None:
        flags = (*FLAGS, *project.build_options.flags)
        code, sources = project.timed_code()
        library = library_of(
            code, sources, cc, flags, project.libraries, project.shaders, kernel_flags=project.kernel_flags
        )
        super().__init__(project, library)
        name, numbers = project.name, ctypes.c_int64 * max(len(project.kernels.calls), 1)
        self._step = getattr(library, f"{name}_clocked_step")
        self._is_timed = ctypes.c_int32.in_dll(library, f"{name}_is_timed")
        self._took = ctypes.c_int64.in_dll(library, f"{name}_step_nanoseconds")
        self._spent = numbers.in_dll(library, f"{name}_nanoseconds")
        self._counts = numbers.in_dll(library, f"{name}_calls")

    def timed_step(self) -> StepTimes:
        """Run a step, and time every kernel call."""
        for counts in (self._spent, self._counts):
            ctypes.memset(counts, 0, ctypes.sizeof(counts))
        self._is_timed.value = 1
        try:
            self.run_step()
        finally:
            self._is_timed.value = 0
        places = range(len(self._project.kernels.calls))
        return StepTimes(self.seconds, tuple((self._counts[place], self._spent[place] * 1e-9) for place in places))

    @property
    def seconds(self) -> float:
        """The seconds of the last step."""
        return self._took.value * 1e-9

    @property
    def sizes(self) -> dict[str, int]:
        """The dynamic sizes of the last step; sizes that it did not use are at their bounds."""
        bounds = self._program.sizes
        return {size: value if value >= 0 else bounds[size] for size, value in self._sizes.items()}


@dataclass(frozen=True)
class TimedRun:
    """What to time, and how often: every step has the same inputs and starts from the same state."""

    inputs: Mapping[str, Any]
    steps: int
    warmup: int
    state: Any = None
    """An argument for ``load_state``, or None for the initial state."""
    after_step: Callable[[float], None] = lambda _seconds: None
    """Called after each step with its seconds."""

    def __post_init__(self) -> None:
        if type(self.steps) is not int or type(self.warmup) is not int or self.steps < 1 or self.warmup < 0:
            message = f"steps are at least 1, not {self.steps!r}, and warm-up steps at least 0, not {self.warmup!r}"
            raise ExecutionError(Diagnostic(Code.BAD_VALUE, message))


def profiled(
    project: RunnableProject, cc: str, trial: TimedRun, measured: Callable[[], Roofline] | None = None
) -> Profile:
    """Time the steps of a project, and measure the roofline; without ``measured`` its best kernels are the roofline.

    Steps with and without kernel timers alternate in the same memory, so that other load on the machine affects both.
    """
    module = TimedModule(project, cc)
    if trial.state is not None:
        module.load_state(trial.state)
    has_state = project.placed.has_state
    begin = module.save_state() if has_state else None
    first = None if measured is None else measured()

    def prepare() -> None:
        if begin is not None:
            module.load_state(begin)
        module.insert(trial.inputs)

    def untimed() -> float:
        prepare()
        module.run_step()
        trial.after_step(module.seconds)
        return module.seconds

    def timed() -> StepTimes:
        prepare()
        step = module.timed_step()
        trial.after_step(step.seconds)
        return step

    for _ in range(trial.warmup):
        untimed()
    pairs = [(untimed(), timed()) for _ in range(trial.steps)]
    steps = [step for _, step in pairs]
    if first is None or measured is None:
        roofline = _seen_roofline(project, steps, module.sizes)
    else:
        roofline = first.best(measured())
    calls = call_profiles(project, steps, module.sizes, roofline)
    by_kernel: dict[str, list[KernelProfile]] = {}
    for one in calls:
        by_kernel.setdefault(one.name, []).append(one)
    return Profile(
        name=project.name,
        device=project.options.device,
        isa=project.options.isa,
        roofline=roofline,
        kernels=tuple(map(joined, by_kernel.values())),
        calls=tuple(calls),
        timed=Times(tuple(step.seconds for step in steps)),
        untimed=Times(tuple(seconds for seconds, _ in pairs)),
        restores_state=has_state,
    )


def roofline_of(project: RunnableProject, machine: CpuMachine, cc: str, inputs: Mapping[str, Any]) -> Roofline:
    """The roofline for the threads of a project, and a working set as large as that of a step."""
    return measured_roofline(machine, project.options.flags, cc, project.placed.threads, _step_bytes(project, inputs))


def _step_bytes(project: RunnableProject, inputs: Mapping[str, Any]) -> int:
    given = sum(value.nbytes for name, value in project.program.inputs.items() if name in inputs)
    return sum(project.placed.memory_bytes.values()) + given


def _seen_roofline(project: RunnableProject, steps: Sequence[StepTimes], sizes: Mapping[str, int]) -> Roofline:
    """The highest rates of operations and bytes that any kernel of the project reached."""
    operations = bandwidth = 1.0
    for place, (_, step) in enumerate(project.kernels.calls):
        cost = cost_of(step.kernel, sizes)
        for taken in steps:
            count, seconds = taken.calls[place]
            if seconds > 0:
                operations = max(operations, cost.operations * count / seconds)
                bandwidth = max(bandwidth, cost.nbytes * count / seconds)
    return Roofline(operations, bandwidth, 1, sum(project.placed.memory_bytes.values()))


def call_profiles(
    project: RunnableProject, steps: Sequence[StepTimes], sizes: Mapping[str, int], roofline: Roofline
) -> list[KernelProfile]:
    """The profile of each call in the source, in the order of the nodes."""
    nodes = {node.index: node for node in project.program.bound.graph.walk()}
    found = []
    for place, (used, step) in enumerate(project.kernels.calls):
        own = [taken.calls[place] for taken in steps]
        count = own[-1][0]
        indices = [index for index in step.nodes or (step.node,) if index in nodes]
        found.append(
            KernelProfile(
                name=used.name,
                nodes=tuple(NodePlace(**node_facts(nodes[index])) for index in indices),
                calls=count,
                threads=step.parts,
                cost=cost_of(step.kernel, sizes).times(count),
                times=Times(tuple(seconds for _, seconds in own)),
                shares=tuple(mine / whole.seconds for (_, mine), whole in zip(own, steps, strict=True)),
                roofline=roofline,
            )
        )
    return sorted(found, key=lambda one: one.nodes[0].index if one.nodes else -1)
