"""What generated C may assume of a processor: its vectors, its registers and its caches."""

from dataclasses import dataclass, replace
from typing import TypeVar

from openinfer.synth.devices import isa as isas
from openinfer.synth.devices.description import DeviceArch
from openinfer.synth.devices.isa import InstructionSet, has_dot, is_microcontroller
from openinfer.synth.targets.facts import no_target

T = TypeVar("T")

_FLAGS = {
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mavx2", "-mfma", "-mprefer-vector-width=512"),
}
_HALVES = {"avx2": ("-mf16c",)}
"""Further flags for converting 16-bit floats: all processors with AVX2 have these instructions, too."""
_DOT = {"avx512": ("-mavx512vnni",)}
"""Further flags for dot products of bytes."""
_LONG = 512
"""The bits of long vectors."""
_WIDENED = 4
"""The registers for two vectors of bytes that are widened to two vectors each."""


@dataclass(frozen=True)
class CpuMachine:
    """A processor. ``vector_bits`` of 0 means no vectors: plain loops are printed.

    With ``dot`` one instruction adds four products of bytes, each of a u8 and an i8, to an accumulator.
    """

    isa: str
    vector_bits: int
    vector_registers: int
    fma: bool
    l1d: int
    l2: int
    dot: bool = False
    words: bool = False
    """Whether bytes are multiplied two at a time in 32-bit registers, if there are no vectors."""
    index_bits: int = 64
    """The width of addresses: positions in code need no more if they are proved to fit."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Compiler flags, for no more than the processor has, so that the code runs wherever it should."""
        return (*_FLAGS.get(self.isa, ()), *(_DOT.get(self.isa, ()) if self.dot else ()))

    @property
    def half_flags(self) -> tuple[str, ...]:
        """Additional compiler flags for code with 16-bit floats."""
        return _HALVES.get(self.isa, ())

    @property
    def has_vectors(self) -> bool:
        """Whether there are vectors; without them, templates print plain loops."""
        return self.vector_bits > 0

    @property
    def reads_factors(self) -> bool:
        """Whether a multiply-add broadcasts a factor from memory, so that none takes a register: with AVX-512.

        Such processors multiply their long vectors one at a time, others two at once.
        """
        return self.vector_bits == _LONG

    @property
    def for_bytes(self) -> "CpuMachine":
        """What is left for accumulators of bytes: without ``dot``, each vector of bytes is widened to two vectors."""
        return self if self.dot else replace(self, vector_registers=self.vector_registers - _WIDENED)

    def lanes(self, bits: int) -> int:
        """The number of elements of that many bits in a vector; 1 without vectors."""
        return max(self.vector_bits // bits, 1)


def _with(isa: InstructionSet) -> CpuMachine:
    return CpuMachine(isa.name, isa.vector_bits, isa.vector_registers, isa.fma, isa.l1d, isa.l2)


GENERIC, AVX2, AVX512, NEON = map(_with, (isas.GENERIC, isas.AVX2, isas.AVX512, isas.NEON))
CORTEX_M = CpuMachine("cortex-m4", 0, isas.GENERIC.vector_registers, fma=True, l1d=0, l2=0, words=True, index_bits=32)
"""A microcontroller, so not a preset that this machine runs; its code is correct everywhere."""
PRESETS = {machine.isa: machine for machine in (GENERIC, AVX2, AVX512, NEON)}
"""The presets, by their isa."""


def runnable() -> tuple[CpuMachine, ...]:
    """The presets that this machine can run, the best last."""
    return tuple(map(_with, isas.runnable()))


def host() -> CpuMachine:
    """The best preset for this machine, with the additional features of its processor."""
    return replace(runnable()[-1], dot=has_dot())


def cpu_machine(arch: DeviceArch) -> CpuMachine:
    """What generated C may assume of a device; raises E801 for a device without a C target.

    >>> cpu_machine(DeviceArch.named("x86-avx2")).lanes(32)
    8
    """
    if arch.device.type != "cpu" or arch.api != "c":
        raise no_target(arch)
    cpu, preset = arch.cpu, PRESETS.get(arch.cpu.isa, GENERIC)
    is_small = is_microcontroller(cpu.isa)
    return replace(
        preset,
        isa=cpu.isa,
        vector_bits=_given(cpu.vector_bits, preset.vector_bits),
        vector_registers=_given(cpu.vector_registers, preset.vector_registers),
        fma=_given(cpu.fma, preset.fma),
        dot=_given(arch.features.int8, preset.dot),
        l1d=_given(cpu.l1d_bytes, preset.l1d),
        l2=_given(cpu.l2_bytes, preset.l2),
        words=is_small,
        index_bits=_given(cpu.address_bits, 32 if is_small else preset.index_bits),
    )


def _given(said: T | None, preset: T) -> T:
    """The value from a device file, or else that of its instruction set."""
    return preset if said is None else said
