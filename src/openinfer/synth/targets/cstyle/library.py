"""The kernels of a project as functions: calls of the same kernel share one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from openinfer.loops.ir import Kernel, Space
from openinfer.loops.text import kernel_text
from openinfer.synth.program.ir import KernelStep
from openinfer.synth.targets.cstyle.statements import Printed

PrintKernel: TypeAlias = Callable[[Kernel, str, int], Printed]
"""Prints a kernel as a function with a given name, for calls that run it in a given number of parts."""


@dataclass
class UsedKernel:
    """A kernel as a function, and the calls to it."""

    name: str
    kernel: Kernel
    parts: int
    """The number of parts that calls run it in."""
    code: Printed
    steps: list[KernelStep] = field(default_factory=list)


@dataclass
class KernelLibrary:
    """Kernels by their contents: calls of the same kernel share one function."""

    prefix: str
    printed: PrintKernel
    used: dict[tuple[str, int, tuple[bool, ...]], UsedKernel] = field(default_factory=dict)
    calls: list[tuple[UsedKernel, KernelStep]] = field(default_factory=list)
    """All calls, in source order."""

    def function(self, kernel: Kernel, step: KernelStep) -> UsedKernel:
        """The function of a kernel; records the call."""
        key = kernel_text(kernel), step.parts, tuple(one.space is Space.WEIGHTS for one in kernel.inputs)
        if key not in self.used:
            name = f"{self.prefix}_k{len(self.used)}_{kernel.name}"
            self.used[key] = UsedKernel(name, kernel, step.parts, self.printed(kernel, name, step.parts))
        self.used[key].steps.append(step)
        self.calls.append((self.used[key], step))
        return self.used[key]
