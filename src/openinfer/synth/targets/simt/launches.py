"""Kernels as launches: loops over threads, run one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass

from openinfer.loops.ir import Bind, Buffer, Const, For, Kernel, Statement


@dataclass(frozen=True)
class Launch:
    """A kernel whose body is one loop, over threads or groups. Only private and shared memory is its own."""

    kernel: Kernel
    threads: int
    """The total over all groups; a ``Dim`` if it depends on dynamic sizes."""
    is_guarded: bool = False
    """Whether an earlier launch of the same call can fail: this one relies on its checks."""
    form: str = "threads"
    """The form that the schedule gave it, for readers of the plan."""
    is_short: bool = False
    """Whether it takes little more time than a barrier, and such launches run back to back, as in the decoding of a
    token."""


def group_of(kernel: Kernel, usual: int) -> int:
    """The threads per group of a launch; ``usual`` if its threads do not cooperate."""
    for group in _groups(kernel.body):
        for one in group.body:
            if isinstance(one, For) and one.bind is Bind.THREAD:
                assert isinstance(one.extent, Const)
                return int(one.extent.value)
    return usual


def _groups(body: tuple[Statement, ...]) -> Iterator[For]:
    """The loops over groups."""
    for one in body:
        if isinstance(one, For) and one.bind is Bind.TEAM:
            yield from _groups(one.body)
        elif isinstance(one, For) and one.bind is Bind.GROUP:
            yield one


def has_teams(kernel: Kernel) -> bool:
    """Whether groups of a launch wait for each other."""
    return any(isinstance(one, For) and one.bind is Bind.TEAM for one in kernel.body)


@dataclass(frozen=True)
class Launches:
    """A kernel as launches, each of which sees the writes of those before it."""

    kernel: Kernel
    """The kernel before scheduling."""
    launches: tuple[Launch, ...]
    scratch: tuple[Buffer, ...]
    """Memory passed between launches, and private arrays that are too large for registers."""
