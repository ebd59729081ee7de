"""What circuits are made for: the facts of an FPGA."""

from dataclasses import dataclass

from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.devices.sections import Fpga
from openinfer.synth.targets.cpu.machine import no_target


@dataclass(frozen=True)
class FpgaMachine:
    """An FPGA as its description has it."""

    fpga: Fpga


def fpga_machine(arch: DeviceArch) -> FpgaMachine:
    """The machine of a device; one that is no FPGA is refused (E801)."""
    if arch.device.type != "fpga":
        raise no_target(arch)
    return FpgaMachine(arch.fpga)
