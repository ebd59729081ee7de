"""The arguments of launches: addresses, sizes, and where failures are recorded."""

from dataclasses import dataclass
from enum import StrEnum

from openinfer.loops.ir import Kernel
from openinfer.synth.targets.cstyle.statements import Printed


class Given(StrEnum):
    """The kind of an argument of a launch."""

    MEMORY = "memory"
    """The address of a buffer."""
    SIZE = "size"
    """A dynamic size."""
    STATUS = "status"
    """The address of the word that holds the number of the first launch that failed."""
    NUMBER = "number"
    """The number of the launch, which identifies a failure."""


@dataclass(frozen=True)
class Argument:
    """An argument of a launch, in eight bytes."""

    kind: Given
    name: str = ""
    """The name of the buffer or the size."""


@dataclass(frozen=True)
class LaunchCode:
    """A launch as a function, and its arguments."""

    name: str
    code: Printed
    arguments: tuple[Argument, ...]


def arguments_of(kernel: Kernel, code: Printed, *, is_guarded: bool) -> tuple[Argument, ...]:
    """The arguments of a launch of a kernel."""
    named = zip((*kernel.inputs, *kernel.outputs), code.parameters, strict=True)
    arguments = [Argument(Given.MEMORY, one.name) for one, called in named if called.name not in code.unused]
    arguments += [Argument(Given.SIZE, size) for size in code.sizes]
    if code.can_fail or is_guarded:
        arguments += [Argument(Given.STATUS), Argument(Given.NUMBER)]
    return tuple(arguments)
