"""What ``openinfer synth`` needs of the simulator: values for the self-test, and a comparison with compiled code."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from openinfer.check.bound import BoundGraph
from openinfer.cli.feeds import Feed, Generated, parsed_inputs
from openinfer.cli.inputs import InputSource
from openinfer.cli.stepping import Progress, run_steps, step_count
from openinfer.errors import Code, Diagnostic, GraphError, printable
from openinfer.ir import MemoryKind
from openinfer.sim import Executor
from openinfer.synth.c.selftest import Golden
from openinfer.synth.devices import DeviceArch, cpu_target
from openinfer.synth.module import CompiledModule
from openinfer.synth.target import host, runnable


@dataclass(frozen=True)
class SimulatedStep:
    """A step as the simulator ran it."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    seconds: float

    def golden(self) -> Golden:
        """The step for a self-test."""
        return Golden(self.inputs, self.outputs)


def simulated(
    executor: Executor, outputs: Sequence[str], inputs: Iterable[str] | None, steps: int | None, progress: Progress
) -> list[SimulatedStep]:
    """Steps of the simulator, from a fresh start; inputs that are not given are made up."""
    feeds = parsed_inputs(inputs)
    with InputSource(executor.bound, made_up(executor.bound, feeds) | feeds) as source:
        progress.steps = step_count(source, steps)
        results: list[Mapping[str, Any]] = []
        run_steps(
            executor, source, progress, lambda _: results.append({name: executor.fetch(name) for name in outputs})
        )
        return [
            SimulatedStep(source.values(number), result, progress.seconds[number])
            for number, result in enumerate(results)
        ]


def made_up(bound: BoundGraph, given: Mapping[str, Feed]) -> dict[str, Feed]:
    """Values for the inputs that have none: random floats; zeros for all else, which as positions always exist."""
    return {
        one.name: Generated("randn" if one.dtype.kind == "float" else "zeros")
        for one in bound.vars.values()
        if one.kind is MemoryKind.DYNAMIC and one.name not in given
    }


def require_runnable(arch: DeviceArch) -> None:
    """Refuse to run code here that is for another machine."""
    known = [target.isa for target in runnable()]
    if arch.cpu.isa not in known or not set(cpu_target(arch).flags) <= set(host().flags):
        message = f"code for {arch.title!r} ({arch.cpu.isa}) does not run on this machine"
        raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, f"this machine runs {', '.join(known)}"))


# --- comparing --------------------------------------------------------------------------------------------------------


def compared(module: CompiledModule, steps: Sequence[SimulatedStep], tolerance: float) -> dict[str, Any]:
    """Run the same steps in compiled code, and say by how much results differ."""
    worst: dict[str, dict[str, Any]] = {}
    seconds = []
    for number, step in enumerate(steps):
        module.insert(step.inputs)
        seconds.append(_timed(module.run_step))
        for name, expected in step.outputs.items():
            found = difference(expected, module.fetch(name), tolerance)
            if name not in worst or _badness(found) > _badness(worst[name]):
                worst[name] = {"name": name, "step": number, **found}
    return {
        "ok": all(one["ok"] for one in worst.values()),
        "steps": len(steps),
        "tolerance": tolerance,
        "simulator_seconds": min((step.seconds for step in steps), default=0.0),
        "compiled_seconds": min(seconds, default=0.0),
        "outputs": list(worst.values()),
    }


def _timed(step: Callable[[], None]) -> float:
    start = perf_counter()
    step()
    return perf_counter() - start


def difference(expected: Any, actual: Any, tolerance: float) -> dict[str, Any]:
    """By how much two arrays differ at most, and whether that is within a tolerance.

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
    """The comparison, for people."""
    count = facts["steps"]
    times = f"{facts['compiled_seconds'] * 1e3:.3f} ms compiled, {facts['simulator_seconds'] * 1e3:.3f} ms simulated"
    lines = [f"{count} step{'s' * (count != 1)}: {times}"]
    for one in facts["outputs"]:
        if not one["differing"]:
            said = "the same"
        else:
            gap = "beyond all measure" if one["largest"] is None else f"by at most {one['largest']:.3g}"
            verdict = "" if one["ok"] else f", more than the tolerance of {facts['tolerance']:g}"
            said = f"{one['differing']} elements differ, {gap} in step {one['step']}{verdict}"
        lines.append(f"  {printable(one['name'])}: {one['dtype']}{one['shape']}  {said}")
    return "\n".join(lines)
