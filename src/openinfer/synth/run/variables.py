"""The variables of a compiled module as arrays: inputs, results of the last step, persistent memory, constants."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from openinfer.check.bound import BoundVar, FromModel, FromPattern
from openinfer.errors import Code, Diagnostic, ExecutionError, nearest
from openinfer.ir import MemoryKind
from openinfer.loops.dim import at
from openinfer.ops import Array
from openinfer.synth.program.ir import Value
from openinfer.synth.run.persistent import PersistentMemory, tensor
from openinfer.synth.run.table_memory import borrowed
from openinfer.synth.targets.project import RunnableProject


@dataclass(frozen=True)
class StepValues:
    """The inputs for the next step, and what the last one has left."""

    inserted: Mapping[str, Array]
    used: Mapping[str, Array]
    """The inputs of the last step."""
    results: Any
    """The addresses of its results; None before the first step."""
    sizes: Mapping[str, int]


class ModuleVariables:
    """Finds variables in the memory of a module: arena and state, ``memories``, or that of a device."""

    def __init__(self, project: RunnableProject, persistent: PersistentMemory, memories: tuple[Array, ...]) -> None:
        self._bound = project.program.bound
        self._placed = project.placed
        self._outputs = project.program.outputs
        self._persistent = persistent
        self._memories = memories
        self._written = frozenset[str]().union(*(effects.writes for effects in self._bound.effects.values()))

    def called(self, name: str) -> BoundVar:
        """The variable with a name; an error if there is none."""
        if not isinstance(name, str) or name not in self._bound.vars:
            advice = nearest(str(name), self._bound.vars)
            raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, f"there is no variable {name!r}", None, advice))
        return self._bound.vars[name]

    def array(self, name: str, step: StepValues, module: object) -> Array:
        """A variable, in place if possible; memory of a device lives as long as the ``module``."""
        variable = self.called(name)
        if variable.is_table:
            return self._persistent.tables[name].array()
        if isinstance(variable.origin, FromPattern):
            message = f"{name!r} is a family of model tensors, not one value"
            raise ExecutionError(Diagnostic(Code.BAD_INDEXING, message, variable.decl.span if variable.decl else None))
        if name in step.inserted:
            return step.inserted[name]
        if step.results is not None and name in self._outputs and not self._is_state(variable):
            address = getattr(step.results, self._placed.names.outputs[name])
            return self._output(address, self._outputs[name], step.sizes, module)
        kept = self._persistent.value(name)
        if kept is not None:
            return kept
        if name in step.used and name not in self._written:
            return step.used[name]
        return self._other(variable, has_run=bool(step.used))

    def _is_state(self, variable: BoundVar) -> bool:
        """Whether an output is device state, which other programs may have changed since the step."""
        return self._placed.rules.on_device and variable.kind is MemoryKind.PERSISTENT

    def _other(self, variable: BoundVar, *, has_run: bool) -> Array:
        """A variable that generated code does not keep: a constant of the model is loaded from there."""
        model = self._bound.model
        name = variable.origin.name if isinstance(variable.origin, FromModel) else ""
        if model is not None and name in model.tensors and variable.kind is MemoryKind.CONSTANT:
            return model.load(name).to_numpy()
        message = f"generated code does not keep {variable.name!r}"
        advice = f"return it from the entry block: return {variable.name};"
        if variable.name in self._outputs or (variable.kind is MemoryKind.DYNAMIC and not has_run):
            message, advice = f"{variable.name!r} has no value: no step has run", "run_step() first"
        raise ExecutionError(Diagnostic(Code.NOT_INSERTED, message, None, advice))

    def _output(self, address: int, value: Value, sizes: Mapping[str, int], module: object) -> Array:
        """A tensor at an address in the arena or the state, as a slice of the array that owns the memory."""
        shape = tuple(at(extent, sizes) for extent in value.shape)
        if any(extent < 0 for extent in shape):
            message = f"{value.variable!r} has no valid shape: it would be {list(shape)}"
            raise ExecutionError(Diagnostic(Code.BAD_SHAPE, message))
        nbytes = value.dtype.nbytes(int(np.prod(shape, dtype=np.int64)))
        if nbytes == 0:
            return tensor(np.empty(0, np.uint8), value, shape)
        owners = ((memory, address - memory.ctypes.data) for memory in self._memories)
        found = [(one, start) for one, start in owners if 0 <= start <= one.size - nbytes]
        if not found:
            return tensor(borrowed(address, nbytes, module), value, shape)
        memory, start = found[0]
        return tensor(memory[start : start + nbytes], value, shape)
