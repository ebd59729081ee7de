"""``Plan``: everything decided about a graph for a device, as facts, as files, or compiled."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from openinfer._version import VERSION
from openinfer.check.bound import interface
from openinfer.check.events import TraceLevel, trace_level
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.memory.place import MemoryPlan
from openinfer.synth.memory.placed import Placed
from openinfer.synth.memory.state import StateLayout
from openinfer.synth.memory.weights import WeightLayout
from openinfer.synth.passes.fuse.ledger import InexactNode, LedgerEntry
from openinfer.synth.program.ir import Value
from openinfer.synth.report.arena_map import arena_svg
from openinfer.synth.report.fabric import CircuitFootprint
from openinfer.synth.report.footprint import Footprint
from openinfer.synth.report.html import plan_html
from openinfer.synth.report.profile import Profile
from openinfer.synth.report.report import (
    arena_facts,
    arena_positions,
    arena_requests,
    inexact_facts,
    kernel_facts,
    ledger_facts,
    unmet_facts,
)
from openinfer.synth.run.emission import write_project
from openinfer.synth.run.library import FLAGS
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.run.step_memory import WeightMemory, weight_memory
from openinfer.synth.run.timed import TimedRun
from openinfer.synth.targets.project import EmittedProject, Files, Golden
from openinfer.synth.targets.target import BuildOptions, Target

PLAN_VERSION = 1
_LOOSER = 10.0
"""Factor on a self-test's tolerance when some nodes are inexact."""


@dataclass(frozen=True)
class Plan:
    """Everything decided about a graph for a device; ``emit`` writes the project, ``build`` compiles it here."""

    project: EmittedProject
    ledger: tuple[LedgerEntry, ...]
    arch: DeviceArch
    target: Target[Any]
    regions: Mapping[str, str] = field(default_factory=dict)
    """The device memory that arena, state and weights are in, if it has several."""
    inexact: tuple[InexactNode, ...] = ()
    """Nodes computed less exactly than their ops promise, because the user allows it."""

    def __repr__(self) -> str:
        return f"<Plan {self.project.name!r} for {self.arch.title}: {interface(self.project.program.bound)}>"

    def _repr_html_(self) -> str:
        """The rendering in notebooks."""
        program = self.placed.program
        title = f"Plan {self.project.name} for {self.arch.title}: {interface(self.project.program.bound)}"
        picture = arena_svg(*arena_requests(program, self.memory), arena_positions(program))
        return plan_html(title, _byte_facts(self.placed, self.project), kernel_facts(program, self.arch), picture)

    @property
    def placed(self) -> Placed:
        """The scheduled program and its memory layout: arena, state, weights."""
        return self.project.placed

    @property
    def memory(self) -> MemoryPlan:
        """The arena offset of every value."""
        return self.placed.memory

    def facts(self) -> dict[str, Any]:
        """The plan as plain values, as written to ``plan.json``."""
        project, program, names = self.project, self.placed.program, self.placed.names
        sizes = {"fixed": dict(sorted(program.bound.sizes.items())), "bounds": dict(sorted(program.sizes.items()))}
        return {
            "schema": "openinfer.plan",
            "version": PLAN_VERSION,
            "generator": VERSION,
            "name": project.name,
            "device": self.arch.title,
            "isa": self.arch.cpu.isa if self.arch.device.type == "cpu" else self.arch.api,
            "graph_sha256": project.graph_hash,
            "model_sha256": project.model_hash,
            "sizes": sizes,
            "bytes": _byte_facts(self.placed, project),
            "inputs": _tensor_facts(program.inputs, names.inputs),
            "outputs": _tensor_facts(program.outputs, names.outputs),
            "functions": [
                {"name": used.name, "nodes": sorted({one for step in used.steps for one in step.nodes or (step.node,)})}
                for used in project.kernels.used.values()
            ],
            "kernels": kernel_facts(program, self.arch),
            "ledger": ledger_facts(program, self.ledger),
            **({"inexact": inexact_facts(program, self.inexact)} if self.inexact else {}),
            "unmet": unmet_facts(program, self.arch),
            "memory": arena_facts(program, self.memory),
            "regions": dict(self.regions),
            "state": _state_facts(self.placed.state),
            "tables": _table_facts(self.placed.state),
            "weights": _weight_facts(self.placed.weights),
            **self.target.facts(project),
        }

    def files(self, golden: Sequence[Golden] = ()) -> Files:
        """All files of the project, by path."""
        text = json.dumps(self.facts(), indent=2, ensure_ascii=True, allow_nan=False)
        steps = [replace(one, looser=_LOOSER) for one in golden] if self.inexact else golden
        return {**self.project.files(steps), "plan.json": f"{text}\n"}

    def emit(
        self,
        folder: str | os.PathLike[str],
        golden: Sequence[Golden] = (),
        more: Mapping[str, str | bytes] | None = None,
    ) -> list[Path]:
        """Write the project's files into a folder, creating it if necessary, and return their paths.

        ``golden`` are consecutive steps with known results, starting from a fresh state; ``make selftest`` checks them.
        ``more`` are additional files of the project. If writing fails, the folder holds the previous project, or this
        one, or one that refuses to build.
        """
        files = {**self.files(golden), **(more or {})}
        return write_project(
            folder, {path: one if isinstance(one, bytes) else one.encode("utf-8") for path, one in files.items()}
        )

    def build(
        self,
        cc: str = "gcc",
        flags: Sequence[str] = FLAGS,
        trace: TraceLevel | str = TraceLevel.OFF,
        node_budget: int | None = None,
        weights: WeightMemory | str = WeightMemory.HELD,
    ) -> CompiledModule:
        """Compile the code on this machine and load it: a module with the executor's verbs.

        With a ``trace`` level (``basic``, ``full``) the module records what each step does, as the simulator does.
        ``node_budget`` aborts a step of a graph with loops that executes more nodes. ``weights`` are ``held`` in
        memory, or ``mapped``: read through a cache file that can be larger than memory and that all processes on this
        machine share.
        """
        options = BuildOptions(cc, tuple(flags), trace_level(trace), node_budget, weight_memory(weights))
        return self.target.build(self.project, options)

    def footprint(self) -> Footprint | CircuitFootprint | None:
        """The resources used on a bare-metal device or an FPGA, measured with tools installed on this machine.

        None for other devices; measure those on this machine with ``build`` and ``profile``.
        """
        return None if self.target.footprint is None else self.target.footprint(self.project)

    def profile(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        steps: int = 20,
        warmup: int = 3,
        state: "bytes | str | os.PathLike[str] | None" = None,
        cc: str = "gcc",
        after_step: Callable[[float], None] = lambda _seconds: None,
    ) -> Profile:
        """Run steps on this machine and report where their time goes, kernel by kernel.

        Every step gets the same inputs and starts from the same state: the initial one, or a saved one. After the
        warm-up, ``steps`` steps with a timer around each kernel alternate with as many without. ``after_step`` is
        called after each step with its duration in seconds.
        """
        return self.target.profile(self.project, cc, TimedRun(inputs or {}, steps, warmup, state, after_step))


def _byte_facts(placed: Placed, project: EmittedProject) -> dict[str, Any]:
    return {
        "arena": placed.arena_bytes,
        "undo": placed.rollback_bytes,
        "state": placed.state_bytes,
        "weights": placed.weights.size,
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


def _state_facts(state: StateLayout) -> list[dict[str, Any]]:
    places = state.homes.items()
    return [{"variable": home.variable, "offset": place, "bytes": home.nbytes} for home, place in places]


def _table_facts(state: StateLayout) -> list[dict[str, Any]]:
    return [
        {
            "variable": key,
            "offset": layout.extents_at,
            "bytes": layout.size,
            "bounds": list(layout.table.bounds),
            "grows": layout.heap is not None,
        }
        for key, layout in state.tables.items()
    ]


def _weight_facts(weights: WeightLayout) -> list[dict[str, Any]]:
    return [
        {
            "tensor": piece.name,
            "part": piece.part,
            "dtype": piece.dtype.name,
            "offset": piece.offset,
            "bytes": piece.nbytes,
            "packed": None if piece.packing is None else list(piece.packing.shape),
        }
        for piece in weights.pieces.values()
    ]
