"""CPU instruction sets: what each provides, and which of them this machine can run."""

import platform
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class InstructionSet:
    """The defaults for a processor with an instruction set; its description may override them."""

    name: str
    vector_bits: int
    vector_registers: int
    fma: bool
    l1d: int
    l2: int


GENERIC = InstructionSet("generic", 128, 16, fma=False, l1d=32 << 10, l2=256 << 10)
AVX2 = InstructionSet("avx2", 256, 16, fma=True, l1d=32 << 10, l2=512 << 10)
AVX512 = InstructionSet("avx512", 512, 32, fma=True, l1d=32 << 10, l2=1 << 20)
NEON = InstructionSet("neon", 128, 32, fma=True, l1d=64 << 10, l2=512 << 10)


def runnable(cpuinfo: str | None = None, machine: str | None = None) -> tuple[InstructionSet, ...]:
    """The instruction sets that this machine can run, the best last.

    >>> [isa.name for isa in runnable("flags : sse2 avx2 fma f16c", "x86_64")]
    ['generic', 'avx2']
    """
    kind = platform.machine() if machine is None else machine
    if kind in ("aarch64", "arm64"):
        return (GENERIC, NEON)
    flags = _features(cpuinfo)
    found = [GENERIC]
    if {"avx2", "fma", "f16c"} <= flags:
        found.append(AVX2)
        if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= flags:
            found.append(AVX512)
    return tuple(found)


def is_microcontroller(isa: str) -> bool:
    """Whether an instruction set is that of a microcontroller: programs run without an operating system.

    >>> is_microcontroller("cortex-m4"), is_microcontroller("neon")
    (True, False)
    """
    return isa.startswith("cortex-m")


def has_dot(cpuinfo: str | None = None) -> bool:
    """Whether this machine's processor has a four-way byte dot product instruction."""
    return "avx512_vnni" in _features(cpuinfo)


def _features(cpuinfo: str | None) -> set[str]:
    found = re.search(r"^flags\s*:(.*)$", _cpuinfo() if cpuinfo is None else cpuinfo, re.MULTILINE)
    return set(found[1].split()) if found is not None else set()


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
