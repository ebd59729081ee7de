"""The Vulkan target: schedules from ``targets.simt``, files from ``targets.vulkan``, modules from ``run``."""

from dataclasses import dataclass, replace
from typing import Any

from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.memory.alignment import ALIGNMENT
from openinfer.synth.memory.placed import Placed
from openinfer.synth.run.timed import profiled
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.gpu_target import GPU_FEATURES, REACH, LaunchingDevice, built_for_device, prepared
from openinfer.synth.targets.project import ProjectOptions
from openinfer.synth.targets.simt.machine import simt_machine
from openinfer.synth.targets.simt.require import Needs, required
from openinfer.synth.targets.simt.schedule import STRUCTURES
from openinfer.synth.targets.target import Target
from openinfer.synth.targets.vulkan.dialect import glsl
from openinfer.synth.targets.vulkan.project import VulkanProject
from openinfer.synth.targets.vulkan.require import requirements


def vulkan_target(arch: DeviceArch) -> Target[VulkanProject]:
    """The target for a Vulkan device."""
    own = _VulkanDevice(LaunchingDevice(arch, simt_machine(arch)), Numerics.of(arch))
    return Target(
        name="vulkan",
        machine=own.device.machine,
        dialect=glsl(own.numerics),
        supports=GPU_FEATURES,
        numerics=own.numerics,
        alignment=ALIGNMENT,
        index_bits=32,
        max_argument_bytes=128,
        max_buffer_bytes=REACH,
        passes=own.device.passes,
        project=own.project,
        build=built_for_device,
        profile=profiled,
        structures=STRUCTURES,
        prepared=prepared,
        is_launch=own.device.is_launch,
        on_device=True,
        facts=own.facts,
    )


@dataclass(frozen=True)
class _VulkanDevice:
    """A device that shaders are generated for."""

    device: LaunchingDevice
    numerics: Numerics

    def project(self, placed: Placed, options: ProjectOptions) -> VulkanProject:
        self.device.require_reach(placed)
        own = replace(options, device=self.device.arch.title, isa="vulkan")
        made = VulkanProject(placed, own, self.device.machine, self.numerics)
        self.needs(made)
        return made

    def needs(self, project: VulkanProject) -> Needs:
        """What a project needs from the device; a device known to lack it is refused (E805)."""
        found = requirements(project, self.device.machine, self.numerics)
        return required(project.program.bound.graph, self.device.arch, found)

    def facts(self, project: VulkanProject) -> dict[str, Any]:
        """The plan's facts beyond those of all targets."""
        return {"needs": self.needs(project).facts()}
