"""``Synthesizer``: a graph and a model in, a plan for a device out. The pipeline is one function."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from openinfer._version import VERSION
from openinfer.check import bind
from openinfer.device import Device
from openinfer.ir import Graph
from openinfer.oinf.atomic import atomic_file
from openinfer.oinf.model import ModelLoader
from openinfer.synth.c.project import Files, Project, ProjectOptions
from openinfer.synth.c.selftest import Golden
from openinfer.synth.devices import DeviceArch, DeviceSpec, arch_of, cpu_target
from openinfer.synth.divide import Divide
from openinfer.synth.fuse import Entry, Fuse
from openinfer.synth.liveness import without_dead_steps
from openinfer.synth.lower import lowered
from openinfer.synth.module import FLAGS, CompiledModule, built
from openinfer.synth.place import MemoryPlan
from openinfer.synth.program import Value
from openinfer.synth.report import arena_facts, kernel_facts, ledger_facts
from openinfer.synth.schedule import Schedule

Weights = Literal["file", "array", "incbin"]
PLAN_VERSION = 1


@dataclass(frozen=True)
class Plan:
    """Everything decided about a graph for a device; ``emit`` writes it, ``build`` compiles it here."""

    project: Project
    ledger: tuple[Entry, ...]
    arch: DeviceArch

    @property
    def memory(self) -> MemoryPlan:
        """Where every value lies in the arena."""
        return self.project.memory

    def facts(self) -> dict[str, Any]:
        """The plan as plain values: what ``plan.json`` says."""
        project = self.project
        program = project.program
        sizes = {"fixed": dict(sorted(program.bound.sizes.items())), "bounds": dict(sorted(program.sizes.items()))}
        return {
            "schema": "openinfer.plan",
            "version": PLAN_VERSION,
            "generator": VERSION,
            "name": project.name,
            "device": self.arch.title,
            "isa": self.arch.cpu.isa,
            "graph_sha256": project.graph_hash,
            "model_sha256": project.model_hash,
            "sizes": sizes,
            "bytes": _byte_facts(project),
            "inputs": _tensor_facts(program.inputs, project.printer.input_fields),
            "outputs": _tensor_facts(program.outputs, project.output_fields),
            "functions": [
                {"name": used.name, "nodes": sorted({one for step in used.steps for one in step.nodes or (step.node,)})}
                for used in project.printer.kernels.used.values()
            ],
            "kernels": kernel_facts(program, self.arch),
            "ledger": ledger_facts(program, self.ledger),
            "memory": arena_facts(program, self.memory),
            "state": _state_facts(project),
            "tables": _table_facts(project),
            "weights": _weight_facts(project),
        }

    def files(self, golden: Sequence[Golden] = ()) -> Files:
        """All files of the project, by their paths."""
        text = json.dumps(self.facts(), indent=2, ensure_ascii=True, allow_nan=False)
        return {**self.project.files(golden), "plan.json": f"{text}\n"}

    def emit(self, folder: str | os.PathLike[str], golden: Sequence[Golden] = ()) -> None:
        """Write the project's files into a folder, which is made if need be.

        ``golden`` are steps with known results, one after the other from a fresh start: they make ``make selftest``.
        """
        for path, content in self.files(golden).items():
            target = os.path.join(os.fspath(folder), path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with atomic_file(target) as sink:
                sink.write(content if isinstance(content, bytes) else content.encode("ascii"))

    def build(self, cc: str = "gcc", flags: Sequence[str] = FLAGS) -> CompiledModule:
        """Compile the code on this machine and load it: a module with the executor's verbs."""
        return built(self.project, cc, flags)


def _byte_facts(project: Project) -> dict[str, Any]:
    return {
        "arena": project.arena_bytes,
        "state": project.state_bytes,
        "weights": project.weights.size,
        "saved_state": project.saved_bytes,
        "code": {path: len(text) for path, text in project.code().items()},
    }


def _tensor_facts(values: Mapping[str, Value], fields: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "variable": key,
            "field": fields[key],
            "dtype": one.dtype.name,
            "shape": [repr(extent) for extent in one.shape],
        }
        for key, one in values.items()
    ]


def _state_facts(project: Project) -> list[dict[str, Any]]:
    places = project.printer.state_offsets
    return [{"variable": home.variable, "offset": place, "bytes": home.nbytes} for home, place in places.items()]


def _table_facts(project: Project) -> list[dict[str, Any]]:
    return [
        {
            "variable": key,
            "offset": layout.extents_at,
            "bytes": layout.size,
            "bounds": list(layout.table.bounds),
            "grows": layout.heap is not None,
        }
        for key, layout in project.printer.tables.items()
    ]


def _weight_facts(project: Project) -> list[dict[str, Any]]:
    return [
        {
            "tensor": piece.name,
            "part": piece.part,
            "dtype": piece.dtype.name,
            "offset": piece.offset,
            "bytes": piece.nbytes,
            "packed": None if piece.packing is None else list(piece.packing.shape),
        }
        for piece in project.weights.pieces.values()
    ]


@dataclass(frozen=True)
class Passes:
    """The optional steps of the pipeline; without ``schedule`` everything is computed in plain loops, by one thread."""

    fuse: Fuse | None = field(default_factory=Fuse)
    schedule: bool = True
    divide: Divide = field(default_factory=Divide)


class Synthesizer:
    """Turns graphs into source code for a device.

    >>> from openinfer.lang import graph
    >>> g = graph("dynamic { x: f32[4]; } volatile { y: f32[4]; } block entry { op add(x, x) >> y; return; }")
    >>> Synthesizer(Device.CPU).synthesize(None, g).memory.peak
    64
    """

    def __init__(
        self,
        device: Device | DeviceSpec | DeviceArch | str = Device.CPU,
        *,
        name: str = "model",
        passes: Passes | None = None,
        weights: Weights = "file",
    ) -> None:
        self._arch = arch_of(device)
        self._target = cpu_target(self._arch)
        self._name = name
        self._passes = passes or Passes()
        self._weights = weights

    @classmethod
    def from_arch(
        cls, arch: DeviceArch, *, name: str = "model", passes: Passes | None = None, weights: Weights = "file"
    ) -> "Synthesizer":
        """A synthesizer for a described device."""
        return cls(arch, name=name, passes=passes, weights=weights)

    def _divide(self) -> Divide:
        """The pass that divides kernels among threads: a device without an operating system has one."""
        wanted = self._passes.divide
        most = wanted.threads or self._arch.cpu.cores or 1
        return replace(wanted, threads=most if self._arch.features.hosted else 1)

    def synthesize(
        self,
        model: ModelLoader | None,
        graph: Graph,
        *,
        sizes: Mapping[str, int] | None = None,
        strict: bool = False,
    ) -> Plan:
        """Bind, lower, fuse, schedule, place and print: the plan of a graph."""
        bound = bind(graph, model, sizes, strict=strict)
        program = without_dead_steps(lowered(bound))
        ledger: list[Entry] = []
        if self._passes.fuse is not None:
            program, ledger = self._passes.fuse.run(program)
        if self._passes.schedule:
            program = Schedule(self._target).run(program)
            program = self._divide().run(program)
        options = ProjectOptions(
            heap=bool(self._arch.features.hosted),
            weights=self._weights,
            device=self._arch.title,
            flags=(*self._target.flags, *self._arch.toolchain.cflags),
        )
        return Plan(Project(program, self._name, options), tuple(ledger), self._arch)
