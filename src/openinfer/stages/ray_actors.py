"""Stages as Ray actors, spread over the machines of a cluster; each actor compiles for its own processor.

The folder of the stages must be on shared storage. Values pass from actor to actor, not through the caller.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import ray

from openinfer.check.results import Outputs
from openinfer.ops import Array
from openinfer.stages.folder import StageFolder, StoredStage
from openinfer.stages.pipeline import needed_behind, require_inputs
from openinfer.synth.run.module import CompiledModule
from openinfer.workers import Recipe

_DEPTH = 3
"""Steps in flight per stage."""


class StageActor:
    """One stage, compiled on the actor's machine."""

    def __init__(self, stage: StoredStage, needed: tuple[str, ...], device: str, threads: int) -> None:
        recipe = Recipe(stage.graph, stage.model, device, {}, threads)
        self._module: CompiledModule = recipe.built(recipe.plan(recipe.opened()))
        self._stage, self._needed = stage, needed

    def step(self, values: dict[str, Array]) -> dict[str, Array]:
        """Run the stage; returns the values that later stages need."""
        found = self._module({name: values[name] for name in self._stage.awaits})
        own: dict[str, Array] = (
            dict(found.items()) if isinstance(found, Outputs) else dict.fromkeys(self._stage.yields, found)
        )
        behind = {**values, **own}
        return {name: behind[name] for name in self._needed}

    def reset(self) -> None:
        """Reset persistent memory to its initial values."""
        self._module.reset()


class RayPipeline:
    """The stages of a folder, each an actor; every actor runs steps in the order in which they began."""

    def __init__(self, folder: str | os.PathLike[str], *, device: str = "host", threads: int = 1) -> None:
        if not ray.is_initialized():
            ray.init(ignore_reinit_error=True, log_to_driver=False)
        self.stages = StageFolder.load(folder)
        actor: Any = ray.remote(StageActor)
        self._actors = [
            # Reserve no cores, which an actor would keep: there may be more stages than cores in the cluster.
            actor.remote(stage, needed, device, threads)
            for stage, needed in zip(self.stages.stages, needed_behind(self.stages), strict=True)
        ]

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run one step and return its outputs."""
        found: dict[str, Array] = ray.get(self.submit(inputs))
        return found

    def submit(self, inputs: Mapping[str, Any]) -> Any:
        """Begin a step; ``ray.get`` of the result gives its outputs."""
        require_inputs(self.stages, inputs)
        values: Any = dict(inputs)
        for actor in self._actors:
            values = actor.step.remote(values)
        return values

    def map(self, steps: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Array]]:
        """The outputs of steps, in order, with several in flight."""
        waiting: deque[Any] = deque()
        for inputs in steps:
            waiting.append(self.submit(inputs))
            if len(waiting) > _DEPTH * len(self._actors):
                yield ray.get(waiting.popleft())
        while waiting:
            yield ray.get(waiting.popleft())

    def reset(self) -> None:
        """Reset the persistent memory of all stages to its initial values."""
        ray.get([actor.reset.remote() for actor in self._actors])

    def close(self) -> None:
        """End the actors."""
        for actor in self._actors:
            ray.kill(actor)
