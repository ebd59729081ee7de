"""What generated C may assume of a processor: its vectors, its registers and its caches."""

import platform
import re
from dataclasses import dataclass, replace
from pathlib import Path

_FLAGS = {
    "avx2": ("-mavx2", "-mfma"),
    "avx512": ("-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mavx2", "-mfma", "-mprefer-vector-width=512"),
}
_DOT = {"avx512": ("-mavx512vnni",)}
"""And where it has such instructions for bytes."""


@dataclass(frozen=True)
class CpuTarget:
    """A processor. ``vector_bits`` of 0 means that there are no vectors: plain loops are printed.

    With ``dot`` it adds four products of bytes to a sum in one instruction, of a u8 and an i8 each.
    """

    isa: str
    vector_bits: int
    vector_registers: int
    fma: bool
    l1d: int
    l2: int
    dot: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """What a compiler is told; never more than the processor has, so that the code runs wherever it should."""
        return (*_FLAGS.get(self.isa, ()), *(_DOT.get(self.isa, ()) if self.dot else ()))

    def lanes(self, bits: int) -> int:
        """How many elements of so many bits a vector holds; 1 where there are no vectors."""
        return max(self.vector_bits // bits, 1)


GENERIC = CpuTarget("generic", 128, 16, fma=False, l1d=32 << 10, l2=256 << 10)
AVX2 = CpuTarget("avx2", 256, 16, fma=True, l1d=32 << 10, l2=512 << 10)
AVX512 = CpuTarget("avx512", 512, 32, fma=True, l1d=32 << 10, l2=1 << 20)
NEON = CpuTarget("neon", 128, 32, fma=True, l1d=64 << 10, l2=512 << 10)
TARGETS = {target.isa: target for target in (GENERIC, AVX2, AVX512, NEON)}
"""The presets, by their isa."""


def runnable(cpuinfo: str | None = None, machine: str | None = None) -> tuple[CpuTarget, ...]:
    """The presets that this machine can run, the best last.

    >>> [target.isa for target in runnable("flags : sse2 avx2 fma", "x86_64")]
    ['generic', 'avx2']
    """
    kind = platform.machine() if machine is None else machine
    if kind in ("aarch64", "arm64"):
        return (GENERIC, NEON)
    flags = _features(cpuinfo)
    targets = [GENERIC]
    if {"avx2", "fma"} <= flags:
        targets.append(AVX2)
        if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= flags:
            targets.append(AVX512)
    return tuple(targets)


def has_dot(cpuinfo: str | None = None) -> bool:
    """Whether this machine's processor adds four products of bytes in one instruction."""
    return "avx512_vnni" in _features(cpuinfo)


def host() -> CpuTarget:
    """The best preset for this machine, with what its processor has beyond that."""
    return replace(runnable()[-1], dot=has_dot())


def _features(cpuinfo: str | None) -> set[str]:
    found = re.search(r"^flags\s*:(.*)$", _cpuinfo() if cpuinfo is None else cpuinfo, re.MULTILINE)
    return set(found[1].split()) if found is not None else set()


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
