"""One model: imported, compared with ONNX Runtime step by step, and timed beside it."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from bench.imported.floats import float_model
from bench.imported.models import Feeds, RealModel, feeds_of, fetched, tied

from openinfer import ModelLoader, Simulator, Synthesizer, load_graph
from openinfer.importing import Imported, import_onnx
from openinfer.synth.devices.description import arch_of
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.target import Passes

TOLERANCE = 1e-3
"""The largest difference from ONNX Runtime, as a part of the largest value of an output."""
_MARGIN = 1.25
"""How much farther from the result in floats a chaotic model may be than ONNX Runtime is."""
_LEAST_SECONDS = 0.3
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """What the table says of a model."""

    name: str
    nodes: int
    lines: int
    loops: int
    import_s: float
    steps: int
    simulator: float
    compiled: float
    compiled_ms: float
    runtime_ms: float
    runtime: float | None = None
    """How far ONNX Runtime is from the result in floats; then the other two are, too."""

    @property
    def agrees(self) -> bool:
        """Whether simulator and C are as near as they have to be."""
        limit = TOLERANCE if self.runtime is None else max(TOLERANCE, self.runtime * _MARGIN)
        return max(self.simulator, self.compiled) <= limit

    def facts(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Step:
    """What ONNX Runtime takes and gives in a step, and what the outputs are near to."""

    feeds: Feeds
    outputs: Feeds
    floats: Feeds | None


def measured(model: RealModel, folder: Path, rounds: int, tell: Tell) -> Result:
    """Import a model, compare it, and only then time it."""
    import onnx

    tell("fetching")
    path = fetched(model, folder)
    nodes = node_count(onnx.load(path, load_external_data=False).graph)
    tell("importing")
    start = time.perf_counter()
    found = import_onnx(
        path, folder / "imported" / model.name, sizes=model.sizes, fixed=model.fixed, states=model.states
    )
    seconds = time.perf_counter() - start
    tell("ONNX Runtime")
    session = _session(path)
    steps = _steps(model, session, _float_session(model, path, folder))
    text = Path(found.graph).read_text()
    with ModelLoader.open(found.model) as weights:
        graph = load_graph(found.graph)
        tell("simulating")
        executor = Simulator(weights).with_trace("off").make_executor(graph)
        simulator = max(_differences(executor, found, steps))
        tell("compiling")
        module = Synthesizer(passes=_on_one_thread()).synthesize(weights, graph).build()
        compiled, state = 0.0, b""
        for at, difference in enumerate(_differences(module, found, steps)):
            compiled = max(compiled, difference)
            state = module.save_state() or b"" if at == len(steps) - 2 else state
        tell("timing")
        last = steps[-1].feeds
        inserted = _inserted(found, last)

        def step() -> float:
            if model.growing:
                module.load_state(state)
            start = time.perf_counter()
            module.insert_view(inserted)
            module.run_step()
            return time.perf_counter() - start

        def reference() -> float:
            start = time.perf_counter()
            session.run(None, last)
            return time.perf_counter() - start

        times = interleaved([step, reference], rounds)
    apart = None if not model.is_chaotic else max(_apart(one.outputs, one.floats or {}) for one in steps)
    counts = (nodes, len(text.splitlines()), text.count("    loop "))
    return Result(model.name, *counts, seconds, len(steps), simulator, compiled, times[0], times[1], apart)


def interleaved(steps: list[Callable[[], float]], rounds: int) -> list[float]:
    """The median times of steps in milliseconds: a few of one, a few of the other, in turn."""
    counts = []
    for step in steps:
        step()
        counts.append(max(1, min(200, int(_LEAST_SECONDS / rounds / max(step(), 1e-6)))))
    times: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for at, step in enumerate(steps):
            step()
            times[at] += [step() for _ in range(counts[at])]
    return [float(np.median(one)) * 1e3 for one in times]


def _on_one_thread() -> Passes:
    return replace(Passes.preferred(arch_of("cpu")), divide=Divide(1))


def _session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return onnxruntime.InferenceSession(str(path), options)


def _float_session(model: RealModel, path: Path, folder: Path) -> Any:
    if not model.is_chaotic:
        return None
    written = folder / "imported" / f"{model.name}_floats.onnx"
    float_model(path, written)
    session = _session(written)
    written.unlink()
    return session


def _steps(model: RealModel, session: Any, floats: Any) -> list[Step]:
    """All steps of ONNX Runtime; a state is what the step before gave."""
    found: list[Step] = []
    for at in range(model.steps):
        feeds = feeds_of(model, session.get_inputs(), at, tied(model, found[-1].outputs) if found else {})
        exact = None
        if floats is not None:
            before = tied(model, found[-1].floats or {}) if found else {}
            exact = _run(floats, feeds | before)
        found.append(Step(feeds, _run(session, feeds), exact))
    return found


def _run(session: Any, feeds: Feeds) -> Feeds:
    return dict(zip([one.name for one in session.get_outputs()], session.run(None, feeds), strict=True))


def _inserted(found: Imported, feeds: Feeds) -> Feeds:
    return {found.inputs[name]: np.ascontiguousarray(value) for name, value in feeds.items() if name in found.inputs}


def _differences(machine: Any, found: Imported, steps: list[Step]) -> Iterator[float]:
    """How far the outputs are off in each step: from ONNX Runtime, or from the result in floats."""
    for step in steps:
        machine.insert(**_inserted(found, step.feeds))
        machine.run_step()
        outputs = {name: machine.fetch(variable) for name, variable in found.outputs.items()}
        if step.floats is not None:
            yield _apart(outputs, step.floats)
        else:
            yield max(_difference(outputs[name], np.asarray(step.outputs[name])) for name in outputs)


def _difference(result: Any, wanted: Any) -> float:
    """The largest difference, as a part of the largest value."""
    if result.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    scale = max(float(np.abs(wanted).max()), 1e-30)
    return float(np.abs(result.astype(np.float64) - wanted).max()) / scale


def _apart(outputs: Mapping[str, Any], wanted: Mapping[str, Any]) -> float:
    """The root of the mean square of differences over that of values, of the output that is farthest off."""
    worst = 0.0
    for name, result in outputs.items():
        exact = np.asarray(wanted[name], np.float64)
        if result.shape != exact.shape:
            return float("inf")
        if exact.size:
            worst = max(worst, float(np.linalg.norm(result - exact)) / max(float(np.linalg.norm(exact)), 1e-30))
    return worst


def node_count(graph: Any) -> int:
    """How many nodes a graph has, those inside of nodes included."""
    inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g"))
    return len(graph.node) + sum(map(node_count, inner))
