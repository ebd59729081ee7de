"""Stages as a pipeline: one process per stage, with several steps in flight."""

import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from openinfer.errors import Code, Diagnostic, ExecutionError, OpenInferError
from openinfer.ops import Array
from openinfer.stages.folder import StageFolder
from openinfer.synth.run.step_memory import weight_memory
from openinfer.workers import Recipe, WorkerGroup, WorkerModule

_DEPTH = 2
"""The most steps that wait for each stage."""


@dataclass
class _Step:
    """A step in flight: the values that later stages need, or the error that ended it."""

    values: dict[str, Array]
    found: "Future[dict[str, Array]]" = field(default_factory=Future)
    error: Exception | None = None
    number: int = 0


class Pipeline:
    """The stages of a folder that ``openinfer split`` wrote, each in a process of its own.

    Values pass from stage to stage; while one works on a step, the one before it works on the next. If stages have
    persistent memory, a step that fails after the first of them leaves their states inconsistent; call ``reset`` then.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, device: str = "host", threads: int = 1, weights: str = "mapped"
    ) -> None:
        self.stages, kind = StageFolder.load(folder), weight_memory(weights)
        recipes = [Recipe(one.graph, one.model, device, {}, threads, kind) for one in self.stages.stages]
        self._needed = needed_behind(self.stages)
        self._groups: list[WorkerGroup] = []
        self._broken: tuple[int, OpenInferError] | None = None
        """The step that left the states of stages inconsistent, and its error."""
        self._begun = 0
        self._order = threading.Lock()
        self._is_closed = False
        try:
            self._groups += [WorkerGroup(recipe, 1) for recipe in recipes]
        except BaseException:
            self._end()
            raise
        self._modules = [group.module() for group in self._groups]
        self._lines: list[queue.Queue[_Step | None]] = [queue.Queue(_DEPTH) for _ in self._modules]
        self._threads = [
            threading.Thread(target=self._work, args=(place,), name=f"stage-{place}", daemon=True)
            for place in range(len(self._modules))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def modules(self) -> tuple[WorkerModule, ...]:
        """The modules of the stages, in order."""
        return tuple(self._modules)

    def __call__(self, inputs: Mapping[str, Any] | None = None, /, **named: Any) -> dict[str, Array]:
        """Run one step and return its outputs."""
        return self.submit({**(inputs or {}), **named}).result()

    def submit(self, inputs: Mapping[str, Any]) -> "Future[dict[str, Array]]":
        """Begin a step as soon as the first stage has room for it; returns a future of its outputs."""
        require_inputs(self.stages, inputs)
        with self._order:
            if self._is_closed:
                raise ExecutionError(Diagnostic(Code.WRONG_MOMENT, "the pipeline is closed"))
            if self._broken is not None:
                raise _inconsistent(self._broken[1])
            self._begun += 1
            step = _Step(dict(inputs), number=self._begun)
            self._lines[0].put(step)
        return step.found

    def map(self, steps: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Array]]:
        """The outputs of steps, in order, with as many in flight as there is room for."""
        waiting: list[Future[dict[str, Array]]] = []
        for inputs in steps:
            waiting.append(self.submit(inputs))
            if len(waiting) > (_DEPTH + 1) * len(self._modules):
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()

    def reset(self) -> None:
        """Reset the persistent memory of all stages to its initial values; no step may be in flight."""
        for module in self._modules:
            module.reset()
        self._broken = None

    def _work(self, place: int) -> None:
        while (step := self._lines[place].get()) is not None:
            self._advance(place, step)
            if place + 1 < len(self._lines):
                self._lines[place + 1].put(step)
            elif step.error is None:
                step.found.set_result(step.values)
            else:
                step.found.set_exception(step.error)
        if place + 1 < len(self._lines):
            self._lines[place + 1].put(None)

    def _advance(self, place: int, step: _Step) -> None:
        """Run a stage of a step, unless the step has failed or an earlier step broke the states."""
        stage = self.stages.stages[place]
        broken = self._broken
        if step.error is None and broken is not None and broken[0] < step.number:
            step.error = _inconsistent(broken[1])
        if step.error is not None:
            return
        try:
            found = self._modules[place]({name: step.values[name] for name in stage.awaits})
        except OpenInferError as error:
            step.error = error
            earlier = self.stages.stages[:place]
            if any(one.has_state for one in earlier) or (error.code == Code.WORKER_LOST and stage.has_state):
                self._broken = step.number, error
            return
        except Exception as error:  # noqa: BLE001  (an uncaught error would end the thread and leave callers waiting)
            step.error = error
            return
        values = {**step.values, **found}
        step.values = {name: values[name] for name in self._needed[place]}

    def _end(self) -> None:
        for group in self._groups:
            group.close()

    def close(self) -> None:
        """Finish all steps in flight, then end the processes."""
        with self._order:
            is_first, self._is_closed = not self._is_closed, True
            if is_first:
                self._lines[0].put(None)
        for thread in self._threads:
            thread.join()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _inconsistent(error: OpenInferError) -> ExecutionError:
    message = f"a step failed between two stages ({error.code}): their states no longer match"
    return ExecutionError(Diagnostic(Code.WRONG_MOMENT, message, None, "reset() first"))


def needed_behind(stages: StageFolder) -> list[tuple[str, ...]]:
    """For each stage, the values live after it: needed by later stages, or outputs."""
    needed = set(stages.outputs)
    found: list[tuple[str, ...]] = []
    for stage in reversed(stages.stages):
        found.append(tuple(sorted(needed)))
        needed = (needed - set(stage.yields)) | set(stage.awaits)
    return found[::-1]


def require_inputs(stages: StageFolder, inputs: Mapping[str, Any]) -> None:
    """Refuse a step with missing or unknown inputs."""
    missing = [name for name in stages.inputs if name not in inputs]
    unknown = [name for name in inputs if name not in stages.inputs]
    if missing:
        raise ExecutionError(Diagnostic(Code.NOT_INSERTED, f"the input {missing[0]!r} has not been inserted"))
    if unknown:
        message = f"there is no input {unknown[0]!r}"
        advice = f"inputs are {', '.join(stages.inputs) or 'none'}"
        raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, message, None, advice))
