"""``Synthesizer``: a graph and a model in, a plan for a device out. The pipeline is one function."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from openinfer.check import bind
from openinfer.device import Device
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.ir import Graph
from openinfer.oinf.atomic import atomic_file
from openinfer.oinf.model import ModelLoader
from openinfer.synth.c.project import Project
from openinfer.synth.fuse import Entry, Fuse
from openinfer.synth.liveness import without_dead_steps
from openinfer.synth.lower import lowered
from openinfer.synth.module import CompiledModule, built
from openinfer.synth.place import MemoryPlan


@dataclass(frozen=True)
class Plan:
    """Everything decided about a graph for a device; ``emit`` writes it, ``build`` compiles it here."""

    project: Project
    ledger: tuple[Entry, ...]

    @property
    def memory(self) -> MemoryPlan:
        """Where every value lies in the arena."""
        return self.project.memory

    def emit(self, folder: str | os.PathLike[str]) -> None:
        """Write the project's files into a folder, which is made if need be."""
        for path, content in self.project.files().items():
            target = os.path.join(os.fspath(folder), path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with atomic_file(target) as sink:
                sink.write(content if isinstance(content, bytes) else content.encode("ascii"))

    def build(self, cc: str = "gcc") -> CompiledModule:
        """Compile the code on this machine and load it: a module with the executor's verbs."""
        return built(self.project, cc)


@dataclass(frozen=True)
class Passes:
    """The optional steps of the pipeline; None leaves one out."""

    fuse: Fuse | None = field(default_factory=Fuse)


class Synthesizer:
    """Turns graphs into source code for a device.

    >>> from openinfer.lang import graph
    >>> g = graph("dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { op add(x, x) >> y; return; }")
    >>> Synthesizer(Device.CPU).synthesize(None, g).memory.peak
    64
    """

    def __init__(self, device: Device | str = Device.CPU, *, name: str = "model", passes: Passes | None = None) -> None:
        if device != Device.CPU:
            message = f"there is no target for {str(device)!r} yet"
            raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, "Device.CPU writes C"))
        self._name = name
        self._passes = passes or Passes()

    def synthesize(
        self,
        model: ModelLoader | None,
        graph: Graph,
        *,
        sizes: Mapping[str, int] | None = None,
        strict: bool = False,
    ) -> Plan:
        """Bind, lower, simplify, fuse, place: the plan of a graph."""
        bound = bind(graph, model, sizes, strict=strict)
        program = without_dead_steps(lowered(bound))
        ledger: list[Entry] = []
        if self._passes.fuse is not None:
            program, ledger = self._passes.fuse.run(program)
        return Plan(Project(program, self._name), tuple(ledger))
