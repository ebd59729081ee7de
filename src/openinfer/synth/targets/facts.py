"""What code may use of a device, and how the device rounds."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from openinfer.synth.devices.description import DeviceArch


class Feature(StrEnum):
    """What code may use, where a target has it."""

    F64 = "f64"
    """Arithmetic on f64."""
    F16 = "f16"
    """Arithmetic on f16; storing it takes none."""
    I64 = "i64"
    """Arithmetic on 64-bit integers."""
    I16 = "i16"
    """Arithmetic on 16-bit integers."""
    I8 = "i8"
    """Arithmetic on 8-bit integers."""
    STORE8 = "store8"
    """Elements of 8 bits are stored on their own."""
    STORE16 = "store16"
    """Elements of 16 bits are stored on their own."""
    ADDRESSES = "addresses"
    """Memory is reached by addresses that are numbers."""
    SUBGROUPS = "subgroups"
    """Threads in lockstep combine their values."""
    SHUFFLE = "shuffle"
    """Threads in lockstep read each other's values."""
    HOSTED = "hosted"
    """An operating system: memory on request, threads, a clock."""


@dataclass(frozen=True)
class Numerics:
    """How a target rounds: ``exact``, as IEEE 754 says, or what is wrong."""

    division: Literal["exact", "last bit"] = "exact"
    root: Literal["exact", "last bit"] = "exact"
    fma: Literal["exact", "two roundings"] = "exact"
    subnormals: Literal["exact", "flushed", "when_asked"] = "exact"
    """``when_asked``: exact in shaders that ask for it, and flushed in others."""

    @classmethod
    def of(cls, arch: DeviceArch) -> "Numerics":
        """Those of a GPU; what its description leaves out is taken to be inexact.

        >>> Numerics.of(DeviceArch.named("lavapipe")).fma, Numerics.of(DeviceArch.named("vulkan")).division
        ('two roundings', 'last bit')
        """
        said = arch.numerics
        return cls(
            said.f32_division or "last bit",
            said.f32_sqrt or "last bit",
            said.fma or "two roundings",
            said.f32_subnormals or "flushed",
        )
