"""A kernel by itself, as a device runs it: what those who write shaders hand to those who run them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeArgument:
    """An argument of a launch: one of the kernel's buffers, or a number where the buffer is negative."""

    buffer: int
    is_written: bool = False
    number: int = 0


@dataclass(frozen=True)
class NodeLaunch:
    """A launch of the shader in the same position."""

    groups: int
    can_fail: bool
    arguments: tuple[NodeArgument, ...]


@dataclass(frozen=True)
class NodeProgram:
    """Shaders, each launched once in their order, and how large the buffers are that launches work on."""

    shaders: tuple[str, ...]
    launches: tuple[NodeLaunch, ...]
    nbytes: tuple[int, ...]
    lanes: int
    """Threads that shaders take to exchange values."""
