"""What targets that launch kernels share: schedules from ``targets.simt``, and modules from ``run``."""

from dataclasses import dataclass, replace

from openinfer.check.events import TraceLevel
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.loops.ir import Kernel
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.memory.placed import MemoryRules, Placed
from openinfer.synth.passes.distribute import distributed
from openinfer.synth.passes.hoist import hoisted
from openinfer.synth.program.ir import Program
from openinfer.synth.run.module import CompiledModule, built
from openinfer.synth.run.traced import traced
from openinfer.synth.targets.facts import Feature
from openinfer.synth.targets.gpu.onto_device import OntoDevice
from openinfer.synth.targets.gpu.side_by_side import SideBySide
from openinfer.synth.targets.project import RunnableProject
from openinfer.synth.targets.simt.attention import attention
from openinfer.synth.targets.simt.baseline import baseline
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.ready import with_late_guards, with_ready, with_short_ready, with_weights
from openinfer.synth.targets.simt.schedule import STRUCTURES, scheduled
from openinfer.synth.targets.simt.vectors import vectors
from openinfer.synth.targets.target import BuildOptions, Pass, Passes

GPU_FEATURES = frozenset({Feature.F64, Feature.I64, Feature.STORE8, Feature.STORE16, Feature.HOSTED})
REACH = 1 << 32
"""The bytes that a position of 32 bits can reach."""


def prepared(program: Program) -> Program:
    """A program whose loops suit threads, and compute what they do not change once before them."""
    return hoisted(distributed(program))


@dataclass(frozen=True)
class LaunchingDevice:
    """A device that kernels are launched on."""

    arch: DeviceArch
    machine: SimtMachine

    def passes(self, wanted: Passes, _rules: MemoryRules) -> tuple[Pass, ...]:
        """The passes that lower kernels to launches."""

        def schedule(kernel: Kernel, unaligned: frozenset[str], finite: frozenset[str]) -> Launches:
            machine = replace(self.machine, unaligned=unaligned, finite=finite)
            return scheduled(kernel, machine) if wanted.schedule else baseline(kernel, machine)

        if not wanted.schedule:
            return (OntoDevice(schedule, finished=self._finished).run,)
        found = hoisted, OntoDevice(schedule, STRUCTURES, self._finished).run
        return (*found, SideBySide(self.machine.shared_bytes).run) if self.machine.joins else found

    def is_launch(self, kernel: Kernel) -> bool:
        """Whether a kernel of several statements needs fewer launches than the statements on their own."""
        return vectors(kernel, self.machine) is not None or attention(kernel, self.machine) is not None

    def _finished(self, launches: Launches, weights: frozenset[str]) -> Launches:
        """Launches with the additions that the device's description asks for."""
        if self.machine.knows_weights or self.machine.early:
            launches = with_weights(launches, weights)
        if self.machine.early:
            launches = with_short_ready(launches) if self.machine.is_early_if_short else with_ready(launches)
        return with_late_guards(launches) if self.machine.guards_late else launches

    def require_reach(self, placed: Placed) -> None:
        """Refuse values that are larger than a kernel can reach."""
        for value in placed.memory.offsets:
            if value.nbytes >= REACH:
                name = value.variable or value.name
                message = f"{name!r} takes {value.nbytes:,} bytes, and a kernel reaches {REACH:,}"
                raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, "smaller sizes make it smaller"))


def built_for_device(project: RunnableProject, options: BuildOptions) -> CompiledModule:
    """Compiles a project and loads it on this machine."""
    if options.trace is TraceLevel.OFF:
        return built(project, options.cc, options.flags, options.node_budget, options.weights)
    return traced(project, options.cc, options.flags, options.trace, options.node_budget, options.weights)
