"""Kernels as launches, in a program: what a schedule makes of each of them, and the memory that launches share."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from openinfer.loops.expand import plain
from openinfer.loops.ir import Kernel
from openinfer.synth.program.ir import KernelStep, Program, Value
from openinfer.synth.targets.simt.launches import Launches


@dataclass(frozen=True)
class OntoDevice:
    """The pass that gives every kernel its launches."""

    schedule: Callable[[Kernel], Launches]

    def run(self, program: Program) -> Program:
        """The program with launches."""
        return program.map_kernels(self._launched)

    def _launched(self, step: KernelStep) -> tuple[KernelStep]:
        kernel = plain(step.kernel)
        launches = self.schedule(kernel)
        own = step.outputs[0].name
        memory = tuple(Value(f"{own}_{one.name}", one.dtype, one.shape) for one in launches.scratch)
        return (replace(step, kernel=kernel, scratch=memory, schedule=launches),)
