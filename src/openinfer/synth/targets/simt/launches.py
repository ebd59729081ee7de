"""Kernels as launches: what is done to all threads at once, one after the other."""

from dataclasses import dataclass

from openinfer.loops.ir import Bind, Buffer, Const, For, Kernel


@dataclass(frozen=True)
class Launch:
    """A kernel whose body is one loop, over its threads or groups of them. All its memory but theirs is given to it."""

    kernel: Kernel
    threads: int
    """Of all groups together. A ``Dim`` where it depends on dynamic sizes."""
    is_guarded: bool = False
    """Whether an earlier launch of the same call can fail: it relies on what that has checked."""
    form: str = "threads"
    """How the schedule made it, for people who read a plan."""


def group_of(kernel: Kernel, usual: int) -> int:
    """The threads of a group of a launch; ``usual`` where threads have nothing to do with others."""
    for group in kernel.body:
        for one in group.body if isinstance(group, For) and group.bind is Bind.GROUP else ():
            if isinstance(one, For) and one.bind is Bind.THREAD:
                assert isinstance(one.extent, Const)
                return int(one.extent.value)
    return usual


@dataclass(frozen=True)
class Launches:
    """A kernel as launches: each sees what those before it have written."""

    kernel: Kernel
    """As it was before."""
    launches: tuple[Launch, ...]
    scratch: tuple[Buffer, ...]
    """Memory that launches hand on, or that threads have for themselves where it is too much to keep."""
