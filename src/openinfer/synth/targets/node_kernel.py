"""A standalone kernel for a device: the interface between the code that emits shaders and the code that runs them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeArgument:
    """An argument of a launch: the index of one of the kernel's buffers, or a number if the index is negative."""

    buffer: int
    is_written: bool = False
    number: int = 0


@dataclass(frozen=True)
class NodeLaunch:
    """A launch of the shader at the same index."""

    groups: int
    can_fail: bool
    arguments: tuple[NodeArgument, ...]


@dataclass(frozen=True)
class NodeProgram:
    """Shaders, each launched once in order, and the sizes of the buffers that launches work on."""

    shaders: tuple[str, ...]
    launches: tuple[NodeLaunch, ...]
    nbytes: tuple[int, ...]
    lanes: int
    """The number of threads that shaders expect to exchange values."""
