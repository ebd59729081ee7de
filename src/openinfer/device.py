"""Where a graph runs: the names that the simulator and the synthesizer share."""

from enum import StrEnum


class Device(StrEnum):
    """A kind of device. The simulator runs on the CPU; the synthesizer writes code for all of them."""

    CPU = "cpu"
    CUDA = "cuda"
    VULKAN = "vulkan"
