"""What ``openinfer synth`` needs of the simulator: self-test values, and a comparison with compiled code."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from openinfer.check.bound import BoundGraph
from openinfer.check.sizes import trial_sizes
from openinfer.cli.feeds import Feed, Generated, parsed_inputs
from openinfer.cli.inputs import InputSource
from openinfer.cli.stepping import Progress, step_bar, step_count
from openinfer.errors import Code, Diagnostic, ExecutionError, GraphError, counted, printable
from openinfer.ir import MemoryKind
from openinfer.sim import Executor
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.targets.cpu.machine import cpu_machine, host, runnable
from openinfer.synth.targets.project import Golden


@dataclass(frozen=True)
class SimulatedStep:
    """A step as the simulator ran it."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    seconds: float
    begins: bool = False
    """Whether it starts from the initial state, as the first of several steps at other sizes does."""
    refused: Code | None = None
    """Why the step is refused and has no outputs."""
    is_trial: bool = False
    """Whether it only tries sizes below their bounds."""

    def golden(self) -> Golden:
        """The step as data of a self-test."""
        return Golden(self.inputs, self.outputs, begins=self.begins, is_refused=self.refused is not None)


def simulated(
    executor: Executor, outputs: Sequence[str], inputs: Iterable[str] | None, steps: int | None, progress: Progress
) -> list[SimulatedStep]:
    """Run steps in the simulator from a fresh start; inputs that are not given are made up.

    Dynamic sizes that the given inputs leave open are at their bounds. After that, the steps run again from a fresh
    start at sizes below the bounds, at 1 and at 0, as far as the graph has a result for them.
    """
    feeds = parsed_inputs(inputs)
    with InputSource(executor.bound, made_up(executor.bound, feeds) | feeds) as source:
        count = step_count(source, steps)
        first, *others = trial_sizes(source.open_sizes())
        progress.steps = count * (1 + len(others))
        run = _Simulation(executor, source, outputs, progress)
        with step_bar(progress.steps) as advance:
            done = [run.step(number, first, advance) for number in range(count)]
            for sizes in others:
                done += run.trial(count, sizes, advance)
        # Where a failed step is not rolled back, nothing is known about later steps: refused ones come last.
        return sorted(done, key=lambda one: one.refused is not None)


@dataclass(frozen=True)
class _Simulation:
    """Runs the steps in the simulator."""

    executor: Executor
    source: InputSource
    outputs: Sequence[str]
    progress: Progress

    def step(self, number: int, sizes: Mapping[str, int], advance: Callable[[], None]) -> SimulatedStep:
        inputs = self.source.values(number, sizes)
        self.executor.insert(inputs)
        self.progress.is_inside_step = True
        seconds = _timed(self.executor.run_step)
        self.progress.is_inside_step = False
        self.progress.seconds.append(seconds)
        advance()
        return SimulatedStep(inputs, {name: self.executor.fetch(name) for name in self.outputs}, seconds)

    def trial(self, count: int, sizes: Mapping[str, int], advance: Callable[[], None]) -> Iterator[SimulatedStep]:
        """Steps at other sizes, up to the first that is refused; none if an input has no shape at these sizes."""
        self.executor.reset()
        for number in range(count):
            try:
                inputs = self.source.values(number, sizes)
            except ExecutionError:
                return
            try:
                done = self.step(number, sizes, advance)
            except ExecutionError as error:
                self.progress.is_inside_step = False
                if number == 0:  # later ones depend on earlier steps, and refused steps come last
                    yield SimulatedStep(inputs, {}, 0.0, begins=True, refused=error.diagnostics[0].code, is_trial=True)
                return
            yield replace(done, begins=number == 0, is_trial=True)


def made_up(bound: BoundGraph, given: Mapping[str, Feed]) -> dict[str, Feed]:
    """Values for the inputs that have none: random floats, otherwise zeros, which are valid as positions."""
    return {
        one.name: Generated("randn" if one.dtype.kind == "float" else "zeros")
        for one in bound.vars.values()
        if one.kind is MemoryKind.DYNAMIC and one.name not in given
    }


def require_runnable(arch: DeviceArch) -> None:
    """Reject code for another machine; drivers themselves report which devices they have."""
    if arch.api in ("cuda", "vulkan"):
        return
    known = [target.isa for target in runnable()]
    if arch.cpu.isa not in known or not set(cpu_machine(arch).flags) <= set(host().flags):
        message = f"code for {arch.title!r} ({arch.cpu.isa}) does not run on this machine"
        raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, f"this machine runs {', '.join(known)}"))


# --- comparing --------------------------------------------------------------------------------------------------------


def rerun(module: CompiledModule, steps: Sequence[SimulatedStep]) -> list[SimulatedStep]:
    """The same steps with the results of compiled code, as a reference for other code."""
    found = []
    for step in steps:
        if step.begins:
            module.reset()
        module.insert(step.inputs)
        if step.refused is not None:
            found.append(replace(step, refused=_refusal(module)))
            continue
        seconds = _timed(module.run_step)
        found.append(replace(step, outputs={name: module.fetch(name) for name in step.outputs}, seconds=seconds))
    return found


def compared(module: CompiledModule, steps: Sequence[SimulatedStep], tolerance: float) -> dict[str, Any]:
    """Run the same steps in compiled code, and report how far results differ."""
    worst: dict[str, dict[str, Any]] = {}
    seconds: list[float] = []
    unrefused: list[int] = []
    for number, step in enumerate(steps):
        if step.begins:
            module.reset()
        module.insert(step.inputs)
        if step.refused is not None:
            unrefused += [] if _refusal(module) is step.refused else [number]
            continue
        taken = _timed(module.run_step)
        seconds += [] if step.is_trial else [taken]
        for name, expected in step.outputs.items():
            found = difference(expected, module.fetch(name), tolerance)
            if name not in worst or _badness(found) > _badness(worst[name]):
                worst[name] = {"name": name, "step": number, **found}
    return {
        "ok": all(one["ok"] for one in worst.values()) and not unrefused,
        "steps": len(steps),
        "trials": sum(step.is_trial for step in steps),
        "unrefused": unrefused,
        "tolerance": tolerance,
        "simulator_seconds": min((step.seconds for step in steps if not step.is_trial), default=0.0),
        "compiled_seconds": min(seconds, default=0.0),
        "outputs": list(worst.values()),
    }


def _refusal(module: CompiledModule) -> Code | None:
    """Why compiled code refuses a step, or None if it does not."""
    try:
        module.run_step()
    except ExecutionError as error:
        return error.diagnostics[0].code
    return None


def _timed(step: Callable[[], None]) -> float:
    start = perf_counter()
    step()
    return perf_counter() - start


def difference(expected: Any, actual: Any, tolerance: float) -> dict[str, Any]:
    """The largest difference between two arrays, and whether it is within a tolerance.

    >>> difference(np.array([1.0, 2.0]), np.array([1.0, 2.5]), 1e-3)["largest"]
    0.5
    """
    facts: dict[str, Any] = {"dtype": str(expected.dtype), "shape": list(expected.shape)}
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return facts | {"ok": False, "largest": None, "differing": int(expected.size)}
    if expected.dtype.kind in "biu":
        apart = expected != actual
        gaps = [abs(int(one) - int(other)) for one, other in zip(expected[apart], actual[apart], strict=True)]
        return facts | {"ok": not gaps, "largest": max(gaps, default=0), "differing": len(gaps)}
    one, other = expected.astype(np.float64), actual.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        gap = np.where(same, 0.0, np.abs(one - other))
        near = gap <= tolerance * np.maximum(1, np.maximum(np.abs(one), np.abs(other)))
    beyond = ~(same | (near & np.isfinite(gap)))
    largest = float(gap.max(initial=0.0)) if np.isfinite(gap).all() else None
    return facts | {"ok": not beyond.any(), "largest": largest, "differing": int((~same).sum())}


def _badness(found: Mapping[str, Any]) -> tuple[bool, float]:
    return not found["ok"], float("inf") if found["largest"] is None else found["largest"]


def run_text(facts: Mapping[str, Any]) -> str:
    """The comparison as text."""
    count, is_simulated = facts["steps"], facts["against"] == "simulator"
    other = "simulated" if is_simulated else "in C"
    times = f"{facts['compiled_seconds'] * 1e3:.3f} ms compiled, {facts['simulator_seconds'] * 1e3:.3f} ms {other}"
    trials = f", {facts['trials']} of them at smaller sizes" if facts["trials"] else ""
    lines = [f"{count} step{'s' * (count != 1)}{trials}: {times}"]
    lines += [
        f"  step {number} fails in {'the simulator' if is_simulated else 'C'}, but not in the code"
        for number in facts["unrefused"]
    ]
    for one in facts["outputs"]:
        if not one["differing"]:
            said = "the same"
        else:
            gap = "by an infinity or NaN" if one["largest"] is None else f"by at most {one['largest']:.3g}"
            verdict = "" if one["ok"] else f", more than the tolerance of {facts['tolerance']:g}"
            said = f"{counted(one['differing'], 'element')} differ, {gap} in step {one['step']}{verdict}"
        lines.append(f"  {printable(one['name'])}: {one['dtype']}{one['shape']}  {said}")
    return "\n".join(lines)
