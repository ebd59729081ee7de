"""What circuits are made for: the facts of an FPGA."""

from dataclasses import dataclass

from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.devices.sections import Fpga
from openinfer.synth.targets.cpu.machine import no_target
from openinfer.synth.targets.vhdl.lane_plan import LanePlan


@dataclass(frozen=True)
class FpgaMachine:
    """An FPGA as its description has it."""

    fpga: Fpga

    def has_write_port(self, ram: int, rom: int, lanes: LanePlan | None) -> bool:
        """Whether what changes fits into blocks that are read and written at once, beside all that is read only."""
        both = [one for one in self.fpga.blocks if one.has_write_port]
        if len(both) == len(self.fpga.blocks):
            return True
        words = 0 if lanes is None else lanes.shape.words * lanes.shape.count * lanes.shape.weight_bits
        return 8 * (ram + rom) + words <= sum(one.count * one.bits for one in both)

    def products_in_logic(self, lanes: LanePlan | None) -> bool:
        """Whether lanes take all multipliers."""
        return lanes is not None and self.fpga.multipliers is not None and lanes.shape.count >= self.fpga.multipliers


def fpga_machine(arch: DeviceArch) -> FpgaMachine:
    """The machine of a device; one that is no FPGA is refused (E801)."""
    if arch.device.type != "fpga":
        raise no_target(arch)
    return FpgaMachine(arch.fpga)
