"""The CUDA target: schedules from ``targets.simt``, files from ``targets.cuda``, modules from ``run``."""

from dataclasses import dataclass, replace

from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.memory.alignment import ALIGNMENT
from openinfer.synth.memory.placed import Placed
from openinfer.synth.run.timed import profiled
from openinfer.synth.targets.cuda.buildfiles import architecture_flag
from openinfer.synth.targets.cuda.dialect import CUDA
from openinfer.synth.targets.cuda.project import CudaProject
from openinfer.synth.targets.cuda.require import requirements
from openinfer.synth.targets.facts import Numerics
from openinfer.synth.targets.gpu_target import GPU_FEATURES, REACH, LaunchingDevice, built_for_device, prepared
from openinfer.synth.targets.project import ProjectOptions
from openinfer.synth.targets.simt.machine import simt_machine
from openinfer.synth.targets.simt.require import required
from openinfer.synth.targets.simt.schedule import STRUCTURES
from openinfer.synth.targets.target import Target


def cuda_target(arch: DeviceArch) -> Target[CudaProject]:
    """The target for a CUDA device."""
    own = LaunchingDevice(arch, simt_machine(arch))
    return Target(
        name="cuda",
        machine=own.machine,
        dialect=CUDA,
        supports=GPU_FEATURES,
        numerics=Numerics(),
        alignment=ALIGNMENT,
        index_bits=32,
        max_argument_bytes=4096,
        max_buffer_bytes=REACH,
        passes=own.passes,
        project=_CudaDevice(own).project,
        build=built_for_device,
        profile=profiled,
        structures=STRUCTURES,
        prepared=prepared,
        is_launch=own.is_launch,
        on_device=True,
    )


@dataclass(frozen=True)
class _CudaDevice:
    """A device that CUDA kernels are generated for."""

    device: LaunchingDevice

    def project(self, placed: Placed, options: ProjectOptions) -> CudaProject:
        self.device.require_reach(placed)
        arch, machine = self.device.arch, self.device.machine
        flags = (architecture_flag(arch.device.architecture or "native"),)
        made = CudaProject(placed, replace(options, device=arch.title, isa="cuda", flags=flags), machine)
        required(made.program.bound.graph, arch, requirements(made, machine))
        return made
