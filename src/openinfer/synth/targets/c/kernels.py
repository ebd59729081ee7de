"""Kernels in C: the shared printer with the C dialect and the templates of CPU schedules."""

from collections.abc import Mapping
from dataclasses import replace

from openinfer.loops.ir import Kernel
from openinfer.synth.devices.isa import is_microcontroller
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
    """Prints a kernel as a C function called ``name``, for calls that run it in ``parts`` parts.

    ``isa`` is the instruction set; ``generic`` code may be compiled for any. With ``index_bits`` of 32, positions that
    are proved to fit have 32 bits; ``bounds`` are those of dynamic sizes.
    """
    return statements.printed(kernel, name, _dialect(isa, index_bits), CPU, parts=parts, bounds=bounds)


def _dialect(isa: str, index_bits: int) -> Dialect:
    bare = is_microcontroller(isa)
    # Only x86 needs the workaround for miscompiled loops.
    rolled = "" if bare or isa == "neon" else C.rolled
    return replace(C, rolled=rolled, saturates=bare, narrow=None if index_bits == 64 else TYPES[f"i{index_bits}"])
