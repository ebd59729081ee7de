"""Instances of a stateless graph: one per thread, fed from one queue, optionally in batches."""

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from openinfer.check.results import Outputs
from openinfer.errors import Code, Diagnostic, ExecutionError, OpenInferError
from openinfer.ops import Array
from openinfer.serve.interface import ModelInterface
from openinfer.serve.options import RunOptions
from openinfer.serve.watching import ModelWatcher
from openinfer.serve.work import Job, StepOutputs, StepRecord, WorkQueue, join_all
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.run.traced import TracedModule


class StepRunner(Protocol):
    """Runs single steps."""

    def __call__(self, inputs: Mapping[str, Array], /) -> Array | Outputs | Mapping[str, Array]:
        """Run a step."""

    def interrupt(self) -> None:
        """End a running step as soon as possible."""


class StepModule(StepRunner, Protocol):
    """A compiled module of this process, or one of a worker."""

    @property
    def memory_bytes(self) -> int:
        """The memory of its own: a state, and the working memory of a step."""

    def another(self) -> "StepModule":
        """Another instance, with its own state."""

    def reset(self) -> None:
        """Return to the initial state."""

    def save_state(self, path: str | os.PathLike[str], /) -> object:
        """Write the state to a file."""

    def load_state(self, state: str | os.PathLike[str], /) -> None:
        """Restore a saved state."""


class NodeTracer:
    """Runs steps that record their nodes, one at a time, on its own module."""

    def __init__(self, module: TracedModule) -> None:
        self._module = module
        self._lock = threading.Lock()

    def run(self, job: Job, names: tuple[str, ...], session: CompiledModule | None = None) -> None:
        """Run a step for one job; with a session, starting from its state and writing the new state back."""
        assert job.record is not None
        with self._lock:
            run_alone(_RecordedStep(self._module, job.record, session), job, names)


@dataclass(frozen=True)
class _RecordedStep:
    """A step on a recording module."""

    module: TracedModule
    record: StepRecord
    session: CompiledModule | None

    def __call__(self, inputs: Mapping[str, Array]) -> Array | Outputs:
        """Run the step and collect its node events, also those of a failing step."""
        if self.session is not None:
            self.module.load_state(_state_of(self.session))
        try:
            found = self.module(inputs)
        finally:
            self.record.events, self.record.dropped_events = self.module.events, self.module.dropped_events
            self.module.forget_events()
        if self.session is not None:
            self.session.load_state(_state_of(self.module))
        return found

    def interrupt(self) -> None:
        """End the step as soon as possible."""
        self.module.interrupt()


def _state_of(module: CompiledModule) -> bytes:
    found = module.save_state()
    assert found is not None
    return found


class InstancePool:
    """Runs the steps of one stateless model."""

    def __init__(
        self,
        module: StepModule,
        interface: ModelInterface,
        options: RunOptions,
        watcher: ModelWatcher,
        tracer: NodeTracer | None = None,
    ) -> None:
        self.tracer = tracer
        self._names = tuple(interface.outputs)
        self._rows = min(options.max_batch, interface.batch_size or 1)
        self._wait = options.max_wait
        self._watcher = watcher
        self.queue = WorkQueue(options.max_queue)
        modules = [module, *(module.another() for _ in range(options.instances - 1))]
        self._threads = [
            threading.Thread(target=self._work, args=(one,), name=f"instance-{number}", daemon=True)
            for number, one in enumerate(modules)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        """Queue a step; an error if too many are waiting."""
        self.queue.put(job)

    def drop(self, job: Job) -> None:
        """Cancel a job whose client no longer waits."""
        self.queue.remove(job)
        job.drop()

    def close(self) -> None:
        """Run all waiting jobs, then stop."""
        self.queue.close()
        join_all(self._threads)

    def _work(self, module: StepModule) -> None:
        while (job := self.queue.take()) is not None:
            if not job.is_wanted():
                continue
            jobs = [job] if self._rows == 1 or job.wants_nodes else self._batch(job)
            self._watcher.batch(len(jobs))
            if job.wants_nodes and self.tracer is not None:
                self.tracer.run(job, self._names)
            elif len(jobs) == 1:
                run_alone(module, job, self._names)
            else:
                self._run_together(module, jobs)

    def _batch(self, first: Job) -> list[Job]:
        """Batch a job with others whose shapes differ only in the number of rows, as many as fit into a step."""
        jobs, shapes = [first], _row_shapes(first.inputs)
        free = self._rows - (_row_count(first.inputs) or self._rows)

        def fits(job: Job) -> bool:
            rows = None if job.wants_nodes else _row_count(job.inputs)
            return rows is not None and rows <= free and _row_shapes(job.inputs) == shapes

        while free > 0:
            found = self.queue.take_more(fits, first.arrived + self._wait)
            if found is None:
                break
            jobs.append(found)
            free -= _row_count(found.inputs) or 0
        return jobs

    def _run_together(self, module: StepModule, jobs: list[Job]) -> None:
        """Run one step for several jobs. If it fails, run each alone, so that only the faulty ones fail."""
        counts = [_row_count(job.inputs) or 0 for job in jobs]
        try:
            for job in jobs:
                job.begin(len(jobs))
            joined = {name: np.concatenate([job.inputs[name] for job in jobs]) for name in jobs[0].inputs}
            found = step_of(module, joined, self._names)
        except Exception:  # noqa: BLE001  (each job reports its own error when it runs alone)
            for job in jobs:
                run_alone(module, job, self._names)
            return
        start = 0
        for job, count in zip(jobs, counts, strict=True):
            job.succeed({name: array[start : start + count] for name, array in found.items()})
            start += count


def _row_count(inputs: Mapping[str, Array]) -> int | None:
    """The number of rows that all inputs have; None if they disagree, which the step then reports."""
    counts = {array.shape[0] if array.ndim else None for array in inputs.values()}
    return counts.pop() if len(counts) == 1 else None


def _row_shapes(inputs: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape[1:] for name, array in inputs.items()}


def step_of(module: StepRunner, inputs: Mapping[str, Array], names: tuple[str, ...]) -> StepOutputs:
    """Run a step and return its outputs by name."""
    found = module(inputs)
    outputs = found if isinstance(found, Outputs | Mapping) else {names[0]: found}
    return {name: outputs[name] for name in names}


def run_alone(module: StepRunner, job: Job, names: tuple[str, ...]) -> None:
    """Run an interruptible step for one job."""
    job.interrupt = module.interrupt
    try:
        if not job.is_dropped:
            job.begin()
            found = step_of(module, job.inputs, names)
            if job.before_answer is not None:
                job.before_answer()
            job.succeed(found)
    except OpenInferError as error:
        job.fail(error)
    except MemoryError:
        job.fail(ExecutionError(Diagnostic(Code.OUT_OF_MEMORY, "there is not enough memory for the request")))
    except Exception as error:  # noqa: BLE001  (an uncaught error would end the thread and lose its instance)
        job.fail(error)
    finally:
        job.interrupt = None
