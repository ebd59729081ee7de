"""Vulkan, put together: schedules of ``targets.simt``, files of ``targets.vulkan``, modules of ``run``."""

from dataclasses import dataclass, replace
from typing import Any

from openinfer.check.events import TraceLevel
from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.loops.ir import Kernel
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.memory.placed import MemoryRules, Placed
from openinfer.synth.passes.hoist import hoisted
from openinfer.synth.run.module import CompiledModule, built
from openinfer.synth.run.timed import profiled
from openinfer.synth.run.traced import traced
from openinfer.synth.targets.facts import Feature, Numerics
from openinfer.synth.targets.gpu.onto_device import OntoDevice
from openinfer.synth.targets.project import ProjectOptions
from openinfer.synth.targets.simt.baseline import baseline
from openinfer.synth.targets.simt.launches import Launches
from openinfer.synth.targets.simt.machine import SimtMachine, simt_machine
from openinfer.synth.targets.simt.require import Needs, required
from openinfer.synth.targets.simt.schedule import STRUCTURES, scheduled
from openinfer.synth.targets.simt.vectors import vectors
from openinfer.synth.targets.target import BuildOptions, Pass, Passes, Target
from openinfer.synth.targets.vulkan.dialect import glsl
from openinfer.synth.targets.vulkan.project import VulkanProject
from openinfer.synth.targets.vulkan.require import requirements

_KERNELS = frozenset({Feature.F64, Feature.I64, Feature.STORE8, Feature.STORE16, Feature.HOSTED})
_REACH = 1 << 32
"""Positions in memory have 32 bits."""


def vulkan_target(arch: DeviceArch) -> Target[VulkanProject]:
    """The target of a device with Vulkan."""
    own = _VulkanDevice(arch, simt_machine(arch), Numerics.of(arch))
    return Target(
        name="vulkan",
        machine=own.machine,
        dialect=glsl(own.numerics),
        supports=_KERNELS,
        numerics=own.numerics,
        alignment=64,  # that of C, so that states are the same bytes
        index_bits=32,
        max_argument_bytes=128,
        max_buffer_bytes=_REACH,
        passes=own.passes,
        project=own.project,
        build=_built,
        profile=profiled,
        structures=STRUCTURES,
        is_launch=own.is_launch,
        on_device=True,
        facts=own.facts,
    )


@dataclass(frozen=True)
class _VulkanDevice:
    """A device that shaders are written for."""

    arch: DeviceArch
    machine: SimtMachine
    numerics: Numerics

    def passes(self, wanted: Passes, _rules: MemoryRules) -> tuple[Pass, ...]:
        def schedule(kernel: Kernel, unaligned: frozenset[str]) -> Launches:
            machine = replace(self.machine, unaligned=unaligned)
            return scheduled(kernel, machine) if wanted.schedule else baseline(kernel, machine)

        if not wanted.schedule:
            return (OntoDevice(schedule).run,)
        return hoisted, OntoDevice(schedule, STRUCTURES).run

    def is_launch(self, kernel: Kernel) -> bool:
        """Whether a kernel of several statements is one launch."""
        return vectors(kernel, self.machine) is not None

    def project(self, placed: Placed, options: ProjectOptions) -> VulkanProject:
        for value in placed.memory.offsets:
            if value.nbytes >= _REACH:
                name = value.variable or value.name
                message = f"{name!r} takes {value.nbytes:,} bytes, and a kernel reaches {_REACH:,}"
                raise GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, "smaller sizes make it smaller"))
        own = replace(options, device=self.arch.title, isa="vulkan")
        made = VulkanProject(placed, own, self.machine, self.numerics)
        self.needs(made)
        return made

    def needs(self, project: VulkanProject) -> Needs:
        """What a project needs of the device, which is refused if it is known to lack it (E805)."""
        found = requirements(project, self.machine, self.numerics)
        return required(project.program.bound.graph, self.arch, found)

    def facts(self, project: VulkanProject) -> dict[str, Any]:
        """What the plan says beyond the facts of all targets."""
        return {"needs": self.needs(project).facts()}


def _built(project: VulkanProject, options: BuildOptions) -> CompiledModule:
    if options.trace is TraceLevel.OFF:
        return built(project, options.cc, options.flags, options.node_budget)
    return traced(project, options.cc, options.flags, options.trace, options.node_budget)
