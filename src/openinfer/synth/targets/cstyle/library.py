"""The kernels of a project as functions: calls of the same kernel share one."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from openinfer.loops.ir import Kernel, Space
from openinfer.loops.text import kernel_text
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.targets.cstyle.statements import Printed

PrintKernel: TypeAlias = Callable[[Kernel, str, int], Printed]
"""Prints a kernel as a function with a given name, for calls that run it in a given number of parts."""


@dataclass(frozen=True)
class UsedKernel:
    """A kernel as a function, and the calls to it."""

    name: str
    kernel: Kernel
    parts: int
    """The number of parts that calls run it in."""
    code: Printed
    steps: tuple[KernelStep, ...] = ()


class KernelLibrary:
    """Collects kernels by their contents: calls of the same kernel share one function."""

    def __init__(self, prefix: str, printed: PrintKernel) -> None:
        self._prefix = prefix
        self._printed = printed
        self.used: dict[Hashable, UsedKernel] = {}
        self._called: list[tuple[Hashable, KernelStep]] = []

    @property
    def calls(self) -> list[tuple[UsedKernel, KernelStep]]:
        """All calls, in source order."""
        return [(self.used[key], step) for key, step in self._called]

    def function(self, kernel: Kernel, step: KernelStep) -> UsedKernel:
        """The function of a kernel; records the call."""
        weights = tuple(one.space is Space.WEIGHTS for one in kernel.inputs)
        key = kernel_text(kernel), step.parts, weights, tuple(one.space is Space.STATE for one in kernel.outputs)
        if key not in self.used:
            name = f"{self._prefix}_k{len(self.used)}_{kernel.name}"
            self.used[key] = UsedKernel(name, kernel, step.parts, self._printed(kernel, name, step.parts))
        self._record(key, step)
        return self.used[key]

    def add(self, one: UsedKernel, steps: Iterable[KernelStep]) -> None:
        """Add a kernel that is printed elsewhere, with its calls."""
        self.used[one.name] = one
        for step in steps:
            self._record(one.name, step)

    def _record(self, key: Hashable, step: KernelStep) -> None:
        before = self.used[key]
        self.used[key] = replace(before, steps=(*before.steps, step))
        self._called.append((key, step))
