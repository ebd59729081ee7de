"""What the shaders of a project need of a device."""

from collections.abc import Iterator, Sequence
from functools import cache

from openinfer.synth.targets.cstyle.library import UsedKernel
from openinfer.synth.targets.cstyle.support import Need
from openinfer.synth.targets.facts import Feature, Numerics
from openinfer.synth.targets.gpu.require import requirement_of
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.require import Requirement
from openinfer.synth.targets.vulkan.dialect import PUSHED
from openinfer.synth.targets.vulkan.features import features_of
from openinfer.synth.targets.vulkan.project import VulkanProject
from openinfer.synth.targets.vulkan.shader import support_texts

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
    found = features_of(used.code.text).union(*(_of_support(need, numerics) for need in used.code.needs))
    return requirement_of(used, machine, found | {Feature.ADDRESSES}, ARGUMENT_BYTES)


def _of_support(need: Need, numerics: Numerics) -> frozenset[Feature]:
    """The features that a support function needs, including those of all that it calls."""
    return _of_function(need, numerics) if isinstance(need, str) else features_of(need.text)


@cache
def _of_function(name: str, numerics: Numerics) -> frozenset[Feature]:
    return features_of("\n".join(support_texts((name,), numerics)))
