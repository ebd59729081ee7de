"""The features of a device that code may use, how the device rounds, and the error for one without a target."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from openinfer.errors import Code, Diagnostic, GraphError
from openinfer.synth.devices.description import DeviceArch


class Feature(StrEnum):
    """A feature that code may use if the target has it."""

    F64 = "f64"
    """Arithmetic on f64."""
    F16 = "f16"
    """Arithmetic on f16; storing f16 does not need it."""
    I64 = "i64"
    """Arithmetic on 64-bit integers."""
    I16 = "i16"
    """Arithmetic on 16-bit integers."""
    I8 = "i8"
    """Arithmetic on 8-bit integers."""
    STORE8 = "store8"
    """Individual loads and stores of 8-bit elements."""
    STORE16 = "store16"
    """Individual loads and stores of 16-bit elements."""
    ADDRESSES = "addresses"
    """Buffers are reached by numeric addresses."""
    SUBGROUPS = "subgroups"
    """Reductions over the threads of a subgroup."""
    SHUFFLE = "shuffle"
    """Threads of a subgroup read each other's values."""
    HOSTED = "hosted"
    """An operating system: a heap, threads, a clock."""


@dataclass(frozen=True)
class Numerics:
    """How a target rounds: ``exact``, as IEEE 754 requires, or how it deviates."""

    division: Literal["exact", "last bit"] = "exact"
    root: Literal["exact", "last bit"] = "exact"
    fma: Literal["exact", "two roundings"] = "exact"
    subnormals: Literal["exact", "flushed", "when_asked"] = "exact"
    """``when_asked``: exact in shaders that request it, flushed in others."""
    halves: Literal["exact", "inexact"] = "exact"
    """Conversions of pairs of f32 to f16 and back."""

    @classmethod
    def of(cls, arch: DeviceArch) -> "Numerics":
        """The numerics of a GPU; whatever its description leaves out is assumed to be inexact.

        >>> Numerics.of(DeviceArch.named("lavapipe")).fma, Numerics.of(DeviceArch.named("vulkan")).division
        ('two roundings', 'last bit')
        """
        said = arch.numerics
        return cls(
            said.f32_division or "last bit",
            said.f32_sqrt or "last bit",
            said.fma or "two roundings",
            said.f32_subnormals or "flushed",
            said.f16_conversions or "inexact",
        )


def no_target(arch: DeviceArch) -> GraphError:
    """The error for a device that has no target."""
    kind = f"devices of type {arch.device.type!r} with " + (f"the api {arch.api!r}" if arch.api else "no api")
    message = f"there is no target for {arch.title!r}: cannot write code for {kind}"
    advice = (
        'code is written in C for devices of type "cpu", in CUDA or GLSL for those of the api "cuda" or "vulkan", '
        'in VHDL for those of type "fpga" and the api "vhdl"'
    )
    return GraphError(Diagnostic(Code.NOT_SYNTHESIZED, message, None, advice))
