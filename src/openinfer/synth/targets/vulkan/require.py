"""What the shaders of a project need of a device."""

from collections.abc import Iterator, Sequence

from openinfer.synth.targets.cstyle.library import UsedKernel
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.gpu.require import requirement_of
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.require import Requirement
from openinfer.synth.targets.vulkan.dialect import PUSHED
from openinfer.synth.targets.vulkan.features import features_of
from openinfer.synth.targets.vulkan.project import VulkanProject

ARGUMENT_BYTES = 8 * PUSHED
"""Bytes of arguments passed directly with a launch."""


def requirements(
    project: VulkanProject, machine: SimtMachine, numerics: Numerics
) -> Iterator[tuple[Sequence[int], Requirement]]:
    """The needs of each launch, with the nodes that it computes."""
    for used in project.kernels.used.values():
        needed = _requirement(used, machine, numerics)
        yield from ((step.nodes or (step.node,), needed) for step in used.steps)


def _requirement(used: UsedKernel, machine: SimtMachine, numerics: Numerics) -> Requirement:
    return requirement_of(used, machine, features_of(used.code, numerics), ARGUMENT_BYTES)
