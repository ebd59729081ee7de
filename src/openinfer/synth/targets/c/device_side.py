"""What the functions of a project do otherwise where steps launch kernels on a device; a target says it."""

from dataclasses import dataclass

from openinfer.synth.targets.c.memory_calls import MemoryCalls


@dataclass(frozen=True)
class DeviceSide:
    """Texts in C, which is the language of the host on every device."""

    plumbing: str
    """Functions: ``fail``; ``settle``, which waits for all launches and returns whether one has failed; ``look``, after
    which the host sees what is in memory of the device; ``ended``, which waits for the end of a step."""
    init: str
    """The function that prepares an instance."""
    free: tuple[str, ...]
    """The lines that give back what it has made."""
    inputs: tuple[str, ...]
    """The lines that copy the inputs of a step to the device."""
    memory: MemoryCalls
    """What is called where memory is moved."""
    undo: str
    """What an ``oi_undo`` has behind its first four members."""
