"""Engines in turns: each in a process of its own, one computes while the others sleep."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from bench.cpu.process import EngineError, MissingEngineError, UnableEngineError, Worker

ROUND = 0.02
"""Seconds that the steps of a round should fill."""
PAUSE = 0.01
"""Seconds of sleep, again and again, until threads that wait awake for more work (as some engines' do) are asleep."""
PATIENCE = 5.0
"""Seconds after which a round begins all the same; ``others_cpu`` will tell."""


@dataclass
class Outcome:
    """An engine on a model. ``status`` is ok, wrong, failed, missing, unable or unwritten; only ok has times."""

    status: str = "ok"
    why: str = ""
    error: float | None = None
    """The largest difference from the reference, relative to the largest value."""
    cosine: float | None = None
    """How near a quantized model's output is to the f32 model's."""
    times_ms: list[float] = field(default_factory=list)
    """A step's time in each round."""
    steps: int = 0
    """Steps in a round."""
    start_s: float | None = None
    peak_bytes: int | None = None
    model_bytes: int | None = None
    others_cpu: float = 0.0
    """Processor seconds that the other workers used while this one was measured, for each second of that."""

    @property
    def median_ms(self) -> float | None:
        return float(np.median(self.times_ms)) if self.times_ms else None

    def facts(self) -> dict[str, Any]:
        spread = {}
        if self.times_ms:
            low, middle, high = np.percentile(self.times_ms, (25, 50, 75)).tolist()
            spread = {"median_ms": middle, "min_ms": min(self.times_ms), "quartiles_ms": [low, high]}
        return {**asdict(self), **spread}


@contextmanager
def noted(outcome: Outcome) -> Iterator[None]:
    """Something done with an engine; if that ends it, the outcome says so."""
    try:
        yield
    except EngineError as error:
        kinds = {MissingEngineError: "missing", UnableEngineError: "unable"}
        outcome.status = kinds.get(type(error), "failed")
        outcome.why, outcome.times_ms = str(error), []


def used_by(workers: Sequence[Worker]) -> float:
    """Processor seconds of some workers so far."""
    return sum(worker.cpu_seconds() for worker in workers)


def wait_for_quiet(workers: Sequence[Worker]) -> None:
    """Sleep until all workers do."""
    last = time.perf_counter() + PATIENCE
    while time.perf_counter() < last and not all(worker.is_asleep() for worker in workers):
        time.sleep(PAUSE)


class Turns:
    """The workers of a model by name, and their outcomes."""

    def __init__(self, outcomes: dict[str, Outcome]) -> None:
        self.workers: dict[str, Worker] = {}
        self.outcomes = outcomes

    def first_step(self, name: str) -> dict[str, Any]:
        """Let a worker load its model and make a step, whose answer this is; then find out how many fill a round."""
        wait_for_quiet(list(self.workers.values()))
        answer = self.workers[name].ask("start")
        once = self.workers[name].ask("steps", count=1)["seconds"]
        self.outcomes[name].steps = max(1, round(ROUND / max(once, 1e-7)))
        return answer

    def round(self, number: int) -> None:
        """Each engine in turn, another one first each time; the others sleep."""
        ready = [engine for engine in self.workers if self.outcomes[engine].status == "ok"]
        first = number % max(len(ready), 1)
        for engine in ready[first:] + ready[:first]:
            with noted(self.outcomes[engine]):
                self._steps(engine)

    def _steps(self, engine: str) -> None:
        outcome, worker = self.outcomes[engine], self.workers[engine]
        others = [one for name, one in self.workers.items() if name != engine]
        wait_for_quiet(list(self.workers.values()))
        before, used = time.perf_counter(), used_by(others)
        seconds = worker.ask("steps", count=outcome.steps)["seconds"]
        share = (used_by(others) - used) / (time.perf_counter() - before)
        rounds = len(outcome.times_ms)
        outcome.others_cpu = (outcome.others_cpu * rounds + share) / (rounds + 1)
        outcome.times_ms.append(seconds / outcome.steps * 1e3)
