"""What every example says of itself for the table that ``python -m examples`` prints, and how it is measured."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from openinfer import CompiledModule, Executor, Graph, ModelLoader, Plan, Simulator, Synthesizer
from openinfer.cli.compiled import difference

Inputs = Mapping[str, Any]
Machine = Executor | CompiledModule
"""What runs a graph: both have the same verbs."""


@dataclass(frozen=True)
class Figures:
    """One row of the table. Times are the median of one step, in milliseconds."""

    model: str
    """What the model is, in a few words."""
    weight_bytes: int
    """The weights as generated code holds them."""
    arena_bytes: int
    """The memory that a step works in."""
    simulator_ms: float
    c_ms: float
    agreement: str
    """How well the two agree, in a few words: ``128 of 128 tokens``, ``at most 2.4e-07 apart``."""
    agrees: bool
    """Whether that is good enough; ``make examples`` fails where it is not."""


def measured(run: Callable[[], None]) -> float:
    """How long a call takes, in milliseconds."""
    start = perf_counter()
    run()
    return (perf_counter() - start) * 1e3


def side_by_side(
    about: str, graph: Graph, model: ModelLoader | None, steps: Sequence[Inputs], tolerance: float = 1e-4
) -> Figures:
    """Run the same steps in the simulator and in compiled C, and compare everything the graph returns.

    Integers must be equal; floats may differ by ``tolerance * max(1, |a|, |b|)``.
    """
    plan = Synthesizer().synthesize(model, graph)
    executor = Simulator(model).with_trace("off").make_executor(graph)
    module = plan.build()
    machines: tuple[Machine, Machine] = (executor, module)
    times: tuple[list[float], list[float]] = ([], [])
    found = []
    for inputs in steps:
        for machine, taken in zip(machines, times, strict=True):
            machine.insert(inputs)
            taken.append(measured(machine.run_step))
        found += [difference(executor.fetch(name), module.fetch(name), tolerance) for name in outputs_of(plan)]
    return Figures(
        about,
        plan.placed.weights.size,
        plan.placed.arena_bytes,
        statistics.median(times[0]),
        statistics.median(times[1]),
        _said(found),
        all(one["ok"] for one in found),
    )


def outputs_of(plan: Plan) -> list[str]:
    """The variables that a graph returns."""
    return list(plan.project.program.outputs)


def _said(found: Sequence[Mapping[str, Any]]) -> str:
    gaps = [one["largest"] for one in found]
    if None in gaps:
        return "beyond all measure"
    return f"at most {max(gaps):.1e} apart" if any(gaps) else "the same bits"
