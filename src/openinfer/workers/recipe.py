"""How a module is built, as plain values that can be passed to another process."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.lang import load_graph
from openinfer.oinf import ModelLoader
from openinfer.synth.devices.description import DeviceArch, arch_of
from openinfer.synth.pipeline import Synthesizer
from openinfer.synth.plan import Plan
from openinfer.synth.run.circuit import CircuitModule
from openinfer.synth.run.library import FLAGS
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.run.step_memory import WeightMemory
from openinfer.synth.run.traced import TracedModule, traced_like
from openinfer.synth.targets.cpu.divide import Divide
from openinfer.synth.targets.target import Passes


@dataclass(frozen=True)
class Recipe:
    """The files of a graph and its model, and how they are compiled.

    ``device`` is ``host`` for the processor of the compiling machine, the name of a device, or a device file.
    """

    graph: str
    model: str | None = None
    device: str = "host"
    sizes: Mapping[str, int] = field(default_factory=dict)
    threads: int = 1
    weights: WeightMemory = WeightMemory.HELD

    def arch(self) -> DeviceArch:
        """The description of the device."""
        if self.device.lower().endswith(".json"):
            return DeviceArch.load(self.device)
        return DeviceArch.detect() if self.device == "host" else arch_of(self.device)

    def opened(self) -> ModelLoader | None:
        """The model, open; None for a graph without one."""
        return None if self.model is None else ModelLoader.open(os.fspath(self.model))

    def plan(self, model: ModelLoader | None) -> Plan:
        """The plan of the graph with an open model."""
        arch = self.arch()
        passes = replace(Passes.preferred(arch), divide=Divide(self.threads))
        return Synthesizer.from_arch(arch, passes=passes).synthesize(
            model, load_graph(os.fspath(self.graph)), sizes=self.sizes
        )

    def built(self, plan: Plan) -> CompiledModule:
        """Compile a plan of this recipe and load it into this process."""
        return plan.build(plan.arch.toolchain.cc or "gcc", weights=self.weights)

    def traced(self, plan: Plan, module: CompiledModule, most_events: int) -> TracedModule:
        """A recording variant of a module of the same plan; shares its weights."""
        if isinstance(module, CircuitModule):
            message = "a circuit does not report its nodes: it cannot be traced"
            raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, "trace the simulator, or C"))
        return traced_like(module, plan.arch.toolchain.cc or "gcc", FLAGS, most_events)

    def facts(self) -> dict[str, Any]:
        """The recipe as plain values."""
        return {**asdict(self), "sizes": dict(self.sizes), "weights": str(self.weights)}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Recipe":
        """The recipe with the given ``facts``."""
        return cls(**{**facts, "weights": WeightMemory(facts["weights"])})
