"""What circuits are made for: the facts of an FPGA."""

from dataclasses import dataclass

from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.devices.sections import Fpga
from openinfer.synth.targets.cpu.machine import no_target
from openinfer.synth.targets.vhdl.fit import MemoryFit, MemoryNeed, memory_fit
from openinfer.synth.targets.vhdl.lane_plan import LanePlan


@dataclass(frozen=True)
class FpgaMachine:
    """An FPGA as its description has it."""

    fpga: Fpga

    def fit(self, ram: MemoryNeed, rom: MemoryNeed, lanes: LanePlan | None) -> MemoryFit | None:
        """Where memories go; None if what changes has no room."""
        words = MemoryNeed(0, 0, 0)
        if lanes is not None:
            words = MemoryNeed(1, lanes.shape.words, lanes.shape.count * lanes.shape.weight_bits)
        return memory_fit(self.fpga.blocks, ram, rom, words)

    def products_in_logic(self, lanes: LanePlan | None) -> bool:
        """Whether lanes take all multipliers."""
        return lanes is not None and self.fpga.multipliers is not None and lanes.shape.count >= self.fpga.multipliers


def fpga_machine(arch: DeviceArch) -> FpgaMachine:
    """The machine of a device; one that is no FPGA is refused (E801)."""
    if arch.device.type != "fpga":
        raise no_target(arch)
    return FpgaMachine(arch.fpga)
