"""What the kernels of a project need of a device: all CUDA devices have the same features, but limits differ."""

from collections.abc import Iterator, Sequence

from openinfer.synth.targets.cuda.project import CudaProject
from openinfer.synth.targets.gpu.arguments import arguments_of
from openinfer.synth.targets.gpu.require import requirement_of
from openinfer.synth.targets.simt.machine import SimtMachine
from openinfer.synth.targets.simt.require import Requirement


def requirements(project: CudaProject, machine: SimtMachine) -> Iterator[tuple[Sequence[int], Requirement]]:
    """The needs of each launch, with the nodes that it computes."""
    for used in project.kernels.used.values():
        given = 8 * len(arguments_of(used.kernel, used.code, is_guarded=True))
        needed = requirement_of(used, machine, frozenset(), given)
        yield from ((step.nodes or (step.node,), needed) for step in used.steps)
