"""The facts of an FPGA that circuits are built for."""

from collections.abc import Iterable
from dataclasses import dataclass

from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.devices.sections import Fpga
from openinfer.synth.targets.facts import no_target
from openinfer.synth.targets.vhdl.fit import MemoryFit, MemoryNeed, memory_fit
from openinfer.synth.targets.vhdl.lane_plan import LanePlan

_BITS = 18
"""The default width of a multiplier."""


@dataclass(frozen=True)
class FpgaMachine:
    """An FPGA as described by its device file."""

    fpga: Fpga

    def fit(self, ram: MemoryNeed, rom: MemoryNeed, lanes: LanePlan | None) -> MemoryFit | None:
        """Where memories go; None if they do not fit."""
        words = MemoryNeed(0, 0, 0)
        if lanes is not None:
            words = MemoryNeed(1, lanes.shape.words, lanes.shape.count * lanes.shape.weight_bits)
        return memory_fit(self.fpga.blocks, ram, rom, words)

    def has_multipliers(self, lanes: LanePlan | None, products: Iterable[tuple[int, int]] = ()) -> bool:
        """Whether lanes leave any multipliers, and enough for ``products``; wide products take several."""
        if self.fpga.multipliers is None:
            return True
        bits = self.fpga.multiplier_bits or _BITS
        left = self.fpga.multipliers - (0 if lanes is None else lanes.shape.count)
        return left > 0 and left >= sum(-(-one // bits) * -(-other // bits) for one, other in products)


def fpga_machine(arch: DeviceArch) -> FpgaMachine:
    """The machine of a device; anything but an FPGA is refused (E801)."""
    if arch.device.type != "fpga":
        raise no_target(arch)
    return FpgaMachine(arch.fpga)
