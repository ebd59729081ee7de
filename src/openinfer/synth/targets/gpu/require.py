"""What launches need from a device besides features, which depend on the language."""

from openinfer.loops.dim import most_elements
from openinfer.loops.ir import Space
from openinfer.synth.targets.cstyle.library import UsedKernel
from openinfer.synth.targets.facts import Feature
from openinfer.synth.targets.simt.iterations import iterations
from openinfer.synth.targets.simt.launches import group_of
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.require import Requirement


def requirement_of(
    used: UsedKernel, machine: SimtMachine, features: frozenset[Feature], argument_bytes: int
) -> Requirement:
    """The requirement of a launch that uses these features and takes ``argument_bytes`` of arguments."""
    shared = [one for one in used.kernel.scratch if one.space is Space.GROUP]
    nbytes = sum(one.dtype.nbytes(most_elements(one.shape)) for one in shared)
    group = group_of(used.kernel, machine.group)
    return Requirement(features, group, nbytes, argument_bytes, iterations(used.kernel.body))
