"""Kernels in C: the shared printer with the words of C and what CPU schedules add."""

from dataclasses import replace

from openinfer.loops.ir import Kernel
from openinfer.synth.targets.c.dialect import C
from openinfer.synth.targets.cpu.emit.templates import CPU
from openinfer.synth.targets.cstyle import statements
from openinfer.synth.targets.cstyle.statements import Printed

_ARM = replace(C, rolled="")
"""Without what compilers get wrong for x86."""


def printed(kernel: Kernel, name: str, parts: int = 1, isa: str = "generic") -> Printed:
    """A kernel as a C function of this name, for calls in some number of parts.

    It is for an instruction set; ``generic`` may be compiled for any.
    """
    dialect = _ARM if isa.startswith(("cortex-m", "neon")) else C
    return statements.printed(kernel, name, dialect, CPU, parts=parts)
