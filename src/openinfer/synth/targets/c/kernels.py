"""Kernels in C: the shared printer with the words of C and what CPU schedules add."""

from openinfer.loops.ir import Kernel
from openinfer.synth.targets.c.dialect import C
from openinfer.synth.targets.cpu.emit.templates import CPU
from openinfer.synth.targets.cstyle import statements
from openinfer.synth.targets.cstyle.statements import Printed


def printed(kernel: Kernel, name: str) -> Printed:
    """A kernel as a C function of this name."""
    return statements.printed(kernel, name, C, CPU)
