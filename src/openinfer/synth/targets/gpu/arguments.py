"""What launches are called with: addresses, sizes, and where failures are noted."""

from dataclasses import dataclass
from enum import StrEnum

from openinfer.loops.ir import Kernel
from openinfer.synth.targets.cstyle.statements import Printed


class Given(StrEnum):
    """What an argument of a launch is."""

    MEMORY = "memory"
    """The address of a buffer."""
    SIZE = "size"
    """A dynamic size."""
    STATUS = "status"
    """The address of the word that holds the number of the first launch that failed."""
    NUMBER = "number"
    """The number of the launch, by which a failure is known."""


@dataclass(frozen=True)
class Argument:
    """An argument of a launch, in eight bytes."""

    kind: Given
    name: str = ""
    """Of the buffer or the size."""


@dataclass(frozen=True)
class LaunchCode:
    """A launch as a function, and what it is called with."""

    name: str
    code: Printed
    arguments: tuple[Argument, ...]


def arguments_of(kernel: Kernel, code: Printed, *, is_guarded: bool) -> tuple[Argument, ...]:
    """What a launch of a kernel is called with."""
    named = zip((*kernel.inputs, *kernel.outputs), code.parameters, strict=True)
    arguments = [Argument(Given.MEMORY, one.name) for one, called in named if called.name not in code.unused]
    arguments += [Argument(Given.SIZE, size) for size in code.sizes]
    if code.can_fail or is_guarded:
        arguments += [Argument(Given.STATUS), Argument(Given.NUMBER)]
    return tuple(arguments)
