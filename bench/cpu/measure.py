"""One model on all engines: outputs compared first, then rounds in turns, then memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from bench.ceilings import Ceilings, handover_ns
from bench.cpu.cases import Case
from bench.cpu.engines.base import CannotError
from bench.cpu.llama_files import llama_files
from bench.cpu.prepare import Prepared, prepared, tidied
from bench.cpu.process import Worker
from bench.cpu.turns import Outcome, Turns, noted
from bench.models import Model, disagreement

TOLERANCE = 1e-3
COSINE = 0.01
"""How much farther from the f32 output than ours that of another quantized model may be."""
ALIKE = 0.99
"""The least cosine of llama.cpp's logits, which rounds what it multiplies to 8 bits, and keys and values to 16."""
Array = Any


@dataclass(frozen=True)
class Row:
    """A model with the outcomes of all engines, and the shortest time that a step could take."""

    key: str
    name: str
    threads: int
    multiply_adds: int
    read_bytes: int
    built_s: float | None
    flops_bound_ms: float
    read_bound_ms: float
    outcomes: dict[str, Outcome]
    original: str | None = None
    """The row of the same model in f32."""
    handover_ns: float | None = None
    """What a number took to another thread and back, before the rounds; None on one thread."""

    @property
    def bound_ms(self) -> float:
        return max(self.flops_bound_ms, self.read_bound_ms)

    @property
    def best_peer(self) -> str | None:
        times = {name: one.median_ms for name, one in self.outcomes.items() if name != "ours" and one.median_ms}
        return min(times, key=lambda name: times[name] or 0.0, default=None)

    def speed(self, engine: str) -> float | None:
        """The speed of an engine as a multiple of that of the best peer."""
        own = self.outcomes[engine].median_ms if engine in self.outcomes else None
        best = self.outcomes[self.best_peer].median_ms if self.best_peer else None
        return best / own if own and best else None

    def facts(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "name": self.name,
            "threads": self.threads,
            "multiply_adds": self.multiply_adds,
            "read_bytes": self.read_bytes,
            "built_s": self.built_s,
            "flops_bound_ms": self.flops_bound_ms,
            "read_bound_ms": self.read_bound_ms,
            "bound_ms": self.bound_ms,
            "best_peer": self.best_peer,
            "ratio": self.speed("ours"),
            "engines": {
                name: one.facts() | {"share_of_ceiling": self.bound_ms / one.median_ms if one.median_ms else None}
                for name, one in self.outcomes.items()
            },
            "original": self.original,
            "handover_ns": self.handover_ns,
        }


def output_of(folder: Path, name: str) -> Array:
    """What a worker has written of its first step."""
    return np.load(folder / name)


def cosine(one: Array, other: Array) -> float:
    one, other = (array.reshape(-1).astype(np.float64) for array in (one, other))
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def judged(outcome: Outcome, output: Array, engine: str, right: Prepared) -> None:
    """Compare an output with the reference, and note what is wrong with it.

    Other engines do other things with small weights; they must be about as near to the f32 model as the reference is.
    """
    if engine == "llama.cpp":
        wanted = right.reference if right.first is None else right.first
        outcome.error, outcome.cosine = disagreement(output, wanted), cosine(output, wanted)
        if not outcome.cosine >= ALIKE:
            outcome.status, outcome.why = (
                "wrong",
                f"the cosine of its logits with the simulator's is {outcome.cosine:.4f}",
            )
        return
    if output.size != right.reference.size or not np.isfinite(output).all():
        outcome.status, outcome.why = "wrong", f"the output is {list(output.shape)}, or not finite"
        return
    outcome.error = disagreement(output, right.reference)
    is_right = outcome.error <= TOLERANCE
    if right.original is not None:
        outcome.cosine = cosine(output, right.original)
        if engine != "ours":
            is_right = outcome.cosine >= cosine(right.reference, right.original) - COSINE
    if not is_right:
        outcome.status, outcome.why = "wrong", f"the output differs by {outcome.error:.1e}"


class Measurement(Turns):
    """The workers of a model and their outcomes."""

    def __init__(self, case: Case, right: Prepared, threads: int, stack: ExitStack) -> None:
        super().__init__({})
        self.case, self.right, self.threads, self.stack = case, right, threads, stack

    def launch(self, engines: Sequence[str]) -> None:
        """Start a worker for each engine that has the model; they import what they need at the same time."""
        begun: dict[str, Worker] = {}
        for engine in engines:
            outcome = self.outcomes[engine] = Outcome()
            if engine not in self.case.engines:
                outcome.status, outcome.why = "unwritten", "the model is not written for this engine"
            elif engine in self.right.cannot:
                outcome.status, outcome.why = "unable", self.right.cannot[engine]
            else:
                with noted(outcome):
                    begun[engine] = Worker(engine, self.case.key, self.right.folder, self.threads)
                    self.stack.callback(begun[engine].end)
        for engine, worker in begun.items():
            with noted(self.outcomes[engine]):
                worker.wait_until_ready()
                self.workers[engine] = worker

    def start(self, engine: str) -> None:
        """Let a worker make its first step, and judge the result."""
        outcome = self.outcomes[engine]
        if engine not in self.workers:
            return
        with noted(outcome):
            answer = self.first_step(engine)
            outcome.start_s = answer["seconds"]
            outcome.model_bytes = self.right.model_bytes.get(engine)
            judged(outcome, output_of(self.right.folder, answer["output"]), engine, self.right)

    def finish(self) -> None:
        """The most memory that each engine has had by now."""
        for engine, worker in self.workers.items():
            outcome = self.outcomes[engine]
            if outcome.status == "ok":
                with noted(outcome):
                    outcome.peak_bytes = worker.ask("memory")["bytes"]


def with_llama(right: Prepared, model: Model, case: Case) -> Prepared:
    """The files of llama.cpp, too, and what its first tokens should give."""
    try:
        first = llama_files(model, case.shape, case.gguf or "F32", right.folder)
    except CannotError as error:
        return replace(right, cannot={**right.cannot, "llama.cpp": str(error)})
    sizes = {**right.model_bytes, "llama.cpp": (right.folder / "model.gguf").stat().st_size}
    return replace(right, first=first, model_bytes=sizes)


@dataclass(frozen=True)
class Run:
    """What is measured: engines, numbers of threads, rounds."""

    engines: tuple[str, ...]
    threads: tuple[int, ...]
    rounds: int
    ceilings: Ceilings


def measured(plan: Run, case: Case, folder: Path, tell: Callable[[str], None]) -> Iterator[Row]:
    """Everything about one model, a row for each number of threads.

    ``tell`` is called with what comes next: once, and for each number of threads ``rounds + len(engines)`` times.
    """
    tell("files")
    # Before NumPy has threads of its own, which wait awake for more products.
    flops = {threads: plan.ceilings.gflops(threads) for threads in plan.threads}
    model = case.build()
    read = {threads: plan.ceilings.read_gb(model.read_bytes, threads) for threads in plan.threads}
    engines = [engine for engine in plan.engines if engine in case.engines]
    right = prepared(model, folder, engines, plan.threads, case.allow)
    if case.gguf and "llama.cpp" in plan.engines:
        right = with_llama(right, model, case)
    for threads in plan.threads:
        with ExitStack() as stack:
            handover = handover_ns() if threads > 1 else None
            measurement = Measurement(case, right, threads, stack)
            measurement.launch(plan.engines)
            for engine in plan.engines:
                tell(f"{engine} starts")
                measurement.start(engine)
            for number in range(plan.rounds):
                tell(f"round {number + 1} on {threads}")
                measurement.round(number)
            measurement.finish()
        yield Row(
            case.key,
            model.name,
            threads,
            model.multiply_adds,
            model.read_bytes,
            right.built_s,
            2 * model.multiply_adds / model.at_once / flops[threads] / 1e6,
            model.read_bytes / read[threads] / 1e6,
            measurement.outcomes,
            case.original,
            handover,
        )
    tidied(folder)
