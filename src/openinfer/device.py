"""The kinds of devices, by the names that the simulator and the synthesizer share."""

from enum import StrEnum


class Device(StrEnum):
    """A kind of device. The simulator runs on the CPU and on Vulkan; the synthesizer writes code for all of them."""

    CPU = "cpu"
    CUDA = "cuda"
    VULKAN = "vulkan"
