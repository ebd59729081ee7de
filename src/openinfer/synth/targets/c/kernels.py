"""Kernels in C: the shared printer with the words of C and what CPU schedules add."""

from collections.abc import Mapping
from dataclasses import replace

from openinfer.loops.ir import Kernel
from openinfer.synth.targets.c.dialect import C
from openinfer.synth.targets.c.support import TYPES
from openinfer.synth.targets.cpu.emit.templates import CPU
from openinfer.synth.targets.cstyle import statements
from openinfer.synth.targets.cstyle.dialect import Dialect
from openinfer.synth.targets.cstyle.statements import Printed


def printed(
    kernel: Kernel,
    name: str,
    parts: int = 1,
    isa: str = "generic",
    index_bits: int = 64,
    bounds: Mapping[str, int] | None = None,
) -> Printed:
    """A kernel as a C function of this name, for calls in some number of parts.

    It is for an instruction set; ``generic`` may be compiled for any. With ``index_bits`` of 32, positions that are
    proved to fit have as many; ``bounds`` are those of dynamic sizes.
    """
    return statements.printed(kernel, name, _dialect(isa, index_bits), CPU, parts=parts, bounds=bounds)


def _dialect(isa: str, index_bits: int) -> Dialect:
    is_bare = isa.startswith("cortex-m")
    # Outside of x86, without what compilers get wrong for it.
    rolled = "" if isa.startswith(("cortex-m", "neon")) else C.rolled
    return replace(C, rolled=rolled, saturates=is_bare, narrow=None if index_bits == 64 else TYPES[f"i{index_bits}"])
