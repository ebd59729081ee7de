"""How the functions of a project differ where steps launch kernels on a device; the target fills this in."""

from dataclasses import dataclass

from openinfer.synth.targets.c.memory_calls import MemoryCalls


@dataclass(frozen=True)
class DeviceSide:
    """C code: the host is written in C for every device."""

    plumbing: str
    """Functions: ``fail``; ``settle``, which waits for all launches and returns whether one has failed; ``look``, which
    makes device memory visible to the host; ``ended``, which waits for the end of a step."""
    init: str
    """The function that prepares an instance."""
    free: tuple[str, ...]
    """The lines that release what ``init`` has made."""
    inputs: tuple[str, ...]
    """The lines that copy the inputs of a step to the device."""
    memory: MemoryCalls
    """The functions that move memory."""
    undo: str
    """The initializers of an ``oi_undo`` after those of its first four members."""
