"""Lowers the kernels of a program to launches: applies a schedule to each, and adds the memory that launches share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from openinfer.loops.expand import plain
from openinfer.loops.ir import Contraction, Kernel, Structure, walk
from openinfer.synth.memory.weights import FiniteWeights
from openinfer.synth.program.ir import Action, KernelStep, Program, TableStep, Value, Weight
from openinfer.synth.targets.simt.launches import Launches

_WIDEST = 16
"""Bytes of the widest access."""


@dataclass(frozen=True)
class OntoDevice:
    """The pass that gives every kernel its launches."""

    schedule: Callable[[Kernel, frozenset[str], frozenset[str]], Launches]
    """Lowers a kernel, given the names of the buffers that may be unaligned, and of those that are finite."""
    structures: frozenset[type[Structure]] = frozenset()
    """The structured statements that the schedule has forms for."""
    finished: Callable[[Launches, frozenset[str]], Launches] = lambda launches, _weights: launches
    """Finishes launches, given the names of the inputs that are weights."""

    def run(self, program: Program) -> Program:
        """The program with launches."""
        unaligned, finite = _unaligned(program), FiniteWeights(program)
        return program.map_kernels(lambda step: (self._launched(step, unaligned, finite),))

    def _launched(self, step: KernelStep, unaligned: frozenset[Value], finite: FiniteWeights) -> KernelStep:
        kernel = plain(step.kernel, self.structures)
        pairs = [*zip(kernel.inputs, step.inputs, strict=True)]
        anywhere = frozenset(buffer.name for buffer, one in pairs if isinstance(one, Value) and one in unaligned)
        weights = frozenset(buffer.name for buffer, one in pairs if isinstance(one, Weight))
        known = frozenset[str]()
        if any(isinstance(one, Contraction) and one.valid is not None for one in walk(kernel.body)):
            known = frozenset(buffer.name for buffer, one in pairs if isinstance(one, Weight) and one in finite)
        launches = self.finished(self.schedule(kernel, anywhere, known), weights)
        own = step.outputs[0].name
        memory = tuple(Value(f"{own}_{one.name}", one.dtype, one.shape) for one in launches.scratch)
        return replace(step, kernel=launches.kernel, scratch=memory, schedule=launches)


def _unaligned(program: Program) -> frozenset[Value]:
    """Values that may be views of table entries that are not aligned to the widest access."""
    return frozenset(
        step.value
        for step in program.steps()
        if isinstance(step, TableStep)
        and step.action is Action.READ
        and step.value is not None
        and step.table.variable.dtype.nbytes(prod(map(int, step.table.entry))) % _WIDEST
    )
