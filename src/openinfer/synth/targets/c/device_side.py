"""What the functions of a project do otherwise where steps launch kernels on a device; a target says it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceSide:
    """Texts in C, which is the language of the host on every device."""

    plumbing: str
    """The functions ``fail``, and ``settle``, which waits for all launches and returns whether one has failed."""
    init: str
    """The function that prepares an instance."""
    free: tuple[str, ...]
    """The lines that give back what it has made."""
    inputs: tuple[str, ...]
    """The lines that copy the inputs of a step to the device."""
