"""Emitted code, compiled here and called from Python: ``CompiledModule`` has the executor's verbs."""

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from openinfer.check.bound import BoundGraph, interface
from openinfer.check.events import Event
from openinfer.check.inserted import accepted_input, input_called, inputs_by_name, require_shape
from openinfer.check.one_call import OneCall
from openinfer.check.results import Outputs, given_back
from openinfer.check.saved_state import loaded, save, saved_bytes, signature
from openinfer.check.step_sizes import StepSizes
from openinfer.dtypes import DTYPES, DType, DTypeName, pack
from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.ir import MemoryKind
from openinfer.ops import Array
from openinfer.synth.run.interruption import Watch
from openinfer.synth.run.library import FLAGS, Instance, compiled, structure
from openinfer.synth.run.persistent import Contents, PersistentMemory
from openinfer.synth.run.state_memory import StateMemory
from openinfer.synth.run.step_memory import OWN_MEMORY, SharedMemory, WeightMemory, given_weights, initialised
from openinfer.synth.run.variables import ModuleVariables, StepValues
from openinfer.synth.targets.project import RunnableProject
from openinfer.tensor import Tensor


def built(
    project: RunnableProject,
    cc: str = "gcc",
    flags: Sequence[str] = FLAGS,
    node_budget: int | None = None,
    weights: WeightMemory = WeightMemory.HELD,
) -> "CompiledModule":
    """Build a project as a module of this process."""
    return CompiledModule(project, compiled(project, cc, flags), node_budget, given_weights(project, weights))


class _Running(NamedTuple):
    """A running step: its inputs, its results, and the contents of persistent memory before it."""

    inputs: dict[str, Array]
    results: Any
    before: Contents | None


class CompiledModule:
    """Generated code with memory of its own. Usable wherever an executor is, except for inspecting a step.

    A step that fails or is interrupted has no effect, as in the simulator. For code that cannot roll it back itself (on
    bare-metal devices, and with loops of unknown trip count), the state is copied before each step here.

    A module runs one call at a time: a concurrent call from another thread is error E413. Several modules run side by
    side. After a fork, the child's module is an independent copy.
    """

    def __init__(
        self,
        project: RunnableProject,
        library: ctypes.CDLL,
        node_budget: int | None = None,
        shared: SharedMemory = OWN_MEMORY,
    ) -> None:
        _require_budget(project, node_budget)
        self.bound = project.program.bound
        self._project = project
        self._program = project.program
        self._library = library
        self._name = project.name
        self._calls = OneCall("module")
        self._watch = Watch()
        self._instance = Instance(project, library)
        self._context = self._instance.context
        self._arena, self._state, self._weights = initialised(project, self._instance, shared)
        self._given_weights = shared.weights if project.placed.rules.on_device else self._weights
        self._node_budget = node_budget
        on_device = self._instance if project.placed.rules.on_device else None
        self._persistent = PersistentMemory(project, StateMemory(self._state, on_device), self._instance)
        self._input_type = structure("Inputs", project.inputs)
        self._output_type = structure("Outputs", project.outputs)
        self._step = self._instance.function("step")
        variables = self.bound.vars.items()
        self._required = tuple(name for name, variable in variables if variable.kind is MemoryKind.DYNAMIC)
        self._variables = ModuleVariables(project, self._persistent, (self._arena, self._state))
        self._inserted: dict[str, Array] = {}
        self._used: dict[str, Array] = {}
        self._running: _Running | None = None
        self._results: Any = None
        self._sizes: dict[str, int] = {}
        if project.placed.is_interruptible:
            self._instance.tell("set_interrupt", self._watch.callback, None)
            self._instance.tell("set_budget", ctypes.c_int64(-1 if node_budget is None else node_budget))
        if project.placed.threads > 1:
            self._instance.call("start_threads")

    def __del__(self) -> None:
        if getattr(self, "_step", None) is None:
            return
        if self._project.placed.threads > 1:
            self._instance.tell("stop_threads")
        if self._project.placed.state.growing or self._project.placed.rules.on_device:
            self._instance.tell("free")

    def __repr__(self) -> str:
        return f"<CompiledModule {self._project.name!r}: {interface(self.bound)}>"

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs that a step requires."""
        return self._required

    @property
    def memory_bytes(self) -> int:
        """The bytes of this module's own memory: its state, and the arena that a step works in."""
        return self._arena.nbytes + self._state.nbytes

    def another(self, *, state_of: "CompiledModule | None" = None) -> "CompiledModule":
        """Another module of the same code, which shares the weights in memory and has a state of its own.

        With ``state_of`` it shares the state of another module, whose graph has the same persistent variables. Only one
        of the two may run at a time.
        """
        shared = SharedMemory(self._given_weights, None if state_of is None else _state_shared_by(self, state_of))
        return CompiledModule(self._project, self._library, self._node_budget, shared)

    # --- inputs ---------------------------------------------------------------------------------------------------

    def insert(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Give inputs for the next step: ``insert(x=array)`` or ``insert({"x": array})``.

        Values are converted and rejected as by the simulator; the module keeps copies.
        """
        accepted = _accepted(self.bound, values, named)
        with self._calls.claim():
            self._settle()
            self._inserted |= accepted

    def __call__(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Array | Outputs:
        """Insert inputs, run one step and fetch what the graph returns, like an executor: ``y = module(x=array)``."""
        accepted = _accepted(self.bound, values, named)
        with self._calls.claim():
            self._settle()
            self._inserted |= accepted
            self._run()
            return given_back((name, self._array(name).copy()) for name in self.bound.output_names)

    def insert_view(self, values: Mapping[str, Array] | None = None, /, **named: Array) -> None:
        """Give inputs for the next step without copying: the arrays must not change before it has run.

        They must have the dtype and layout that the code reads: C order, and no packed dtypes.
        """
        accepted = {**(values or {}), **named}
        for name, array in accepted.items():
            variable = input_called(self.bound, name)
            if not _is_readable(array, variable.dtype):
                message = f"the array for {name!r} cannot be used in place: it must be {variable.dtype.name} in C order"
                raise ExecutionError(Diagnostic(Code.UNSUPPORTED_ARRAY, message, None, "insert() makes a copy"))
            require_shape(self.bound, variable, array.shape)
        with self._calls.claim():
            self._settle()
            self._inserted |= accepted

    # --- running --------------------------------------------------------------------------------------------------

    def run_step(self) -> None:
        """Run one step with the inserted inputs, and consume them.

        A signal handler that raises, as that of Ctrl-C does, ends the step at the next iteration of one of the graph's
        loops: the step then has no effect.
        """
        with self._calls.claim():
            self._settle()
            self._run()

    def _run(self) -> None:
        for name in self._required:
            if name not in self._inserted:
                raise ExecutionError(Diagnostic(Code.NOT_INSERTED, f"the input {name!r} has not been inserted"))
        inputs, kept = self._arguments()
        results = self._output_type()
        before = self._persistent.contents() if self._project.placed.can_tear else None
        self._watch.is_wanted = False
        self._results = None
        self._context.has_outputs = 0
        self._running = _Running(self._inserted, results, before)
        try:
            status = self._step(ctypes.byref(self._context), ctypes.byref(inputs), ctypes.byref(results))
            if status:
                self._watch.reraise()
                self._instance.require(status)
        finally:
            del kept  # the code has read them
            self._settle()

    def _arguments(self) -> tuple[Any, list[Array]]:
        """The inputs as the code's struct, and the arrays that it points into."""
        sizes = StepSizes(self.bound)
        if self.bound.bounds:
            sizes.agree_together({name: value.shape for name, value in self._inserted.items()})
        names = self._project.placed.names
        inputs, kept = self._input_type(), []
        for name, value in self._program.inputs.items():
            data = self._inserted[name]
            data = pack(data, value.dtype) if value.dtype.is_packed else data
            data = data if data.size else np.zeros(1, data.dtype)
            kept.append(data)
            setattr(inputs, names.inputs[name], data.ctypes.data)
        for size, field in names.input_sizes.items():
            setattr(inputs, field, sizes.lookup(size))
        return inputs, kept

    def _settle(self) -> None:
        """Settle a step. It took effect if the code says so, however its caller was interrupted; else roll it back.

        If settling is interrupted, it is repeated before anything else.
        """
        running = self._running
        if running is None:
            return
        if self._context.has_outputs:
            fields = self._project.placed.names.sizes
            self._results = running.results
            self._sizes = {size: getattr(self._context, fields[size]) for size in self._program.sizes}
            self._used, self._inserted = running.inputs, {}
        elif running.before is not None and self._context.is_broken:
            self._put(running.before)
        self._running = None

    def step(self) -> None:
        """The same as ``run_step``."""
        self.run_step()

    def interrupt(self) -> None:
        """Stop a running step at the next iteration of a loop; callable from another thread or a signal handler.

        The step then has no effect. Without loops in the graph there is nothing to stop at, and the step completes.
        """
        self._watch.is_wanted = True

    @property
    def events(self) -> list[Event]:
        """The events of the last step, node by node; empty unless the module was built with a trace level."""
        return []

    def trace(self) -> list[dict[str, Any]]:
        """The events of the last step as plain values, ready for JSON."""
        return [event.facts() for event in self.events]

    # --- results --------------------------------------------------------------------------------------------------

    @overload
    def fetch(self, name: str, /) -> Array: ...
    @overload  # a dtype's name is a str as well
    def fetch(self, name: str, dtype: DTypeName, /) -> Array: ...  # type: ignore[overload-overlap]
    @overload
    def fetch(self, *names: str) -> tuple[Array, ...]: ...
    def fetch(self, *names: str) -> Any:
        """A copy of a variable as a NumPy array; several names give a tuple.

        A dtype after a single name is checked: ``fetch("y", "f32")``. Generated code keeps outputs, persistent
        variables and inputs that are never written; other variables are only visible if the entry block returns them.
        """
        with self._calls.claim():
            self._settle()
            if len(names) == 2 and names[1] in DTYPES:
                found = self._variables.called(names[0]).dtype.name
                if found != names[1]:
                    raise ExecutionError(Diagnostic(Code.WRONG_DTYPE, f"{names[0]!r} is {found}, not {names[1]}"))
                return self._array(names[0]).copy()
            if not names:
                raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, "fetch takes the names of variables"))
            arrays = tuple(self._array(name).copy() for name in names)
        return arrays[0] if len(arrays) == 1 else arrays

    def fetch_view(self, name: str) -> Array:
        """A variable as a read-only array that shares the module's memory if possible: the next step overwrites it.

        The memory lives as long as the array, even without the module. Tables that grow and packed elements are copied.
        """
        with self._calls.claim():
            self._settle()
            view = self._array(name).view()
        view.flags.writeable = False
        return view

    def fetch_tensor(self, name: str) -> Tensor:
        """A variable as a ``Tensor``, packed if its dtype is."""
        with self._calls.claim():
            self._settle()
            return Tensor.from_numpy(self._array(name).copy(), self._variables.called(name).dtype)

    def _array(self, name: str) -> Array:
        step = StepValues(self._inserted, self._used, self._results, self._sizes)
        return self._variables.array(name, step, self)

    # --- state ----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Reset persistent memory to its initial values and forget inserted inputs."""
        with self._calls.claim():
            self._settle()
            self._inserted.clear()
            self._used.clear()
            self._results = None
            self._instance.call("reset")

    def save_state(self, path: str | os.PathLike[str] | None = None) -> bytes | None:
        """Persistent memory as a model file, as saved by the simulator: returned as bytes, or written to a path."""
        with self._calls.claim():
            self._settle()
            if self._context.is_broken:
                message = "the last step failed, and there is no state to save"
                raise ExecutionError(Diagnostic(Code.WRONG_MOMENT, message, None, "reset() or load_state(...) first"))
            found = self._persistent.contents()
        if path is None:
            return saved_bytes(self.bound, found.plain, found.tables)
        save(self.bound, found.plain, found.tables, path)
        return None

    def load_state(self, state: "bytes | bytearray | str | os.PathLike[str]") -> None:
        """Restore what ``save_state`` saved, here or in the simulator; a rejected state changes nothing."""
        tables = self._persistent.tables
        found = Contents(*loaded(self.bound, state, lambda name, key, shape: tables[name].fits(key, shape)))
        with self._calls.claim():
            self._settle()
            self._put(found)
            self._results = None

    def _put(self, contents: Contents) -> None:
        """Replace persistent memory. If an interruption leaves it half written, no step runs on it."""
        self._persistent.reserve(contents)
        self._context.is_broken = 1
        self._instance.call("reset")
        self._context.is_broken = 1
        self._persistent.put(contents)
        self._context.is_broken = 0


def _state_shared_by(module: CompiledModule, other: CompiledModule) -> Array:
    """The state of another module, if both have the same variables with the same layout."""
    mine, others = (one._project.placed for one in (module, other))
    fits = signature(module.bound) == signature(other.bound) and mine.state_bytes == others.state_bytes
    if not fits or mine.rules.on_device or others.rules.on_device or mine.state.growing or others.state.growing:
        message = "the modules cannot share a state: their graphs have different persistent variables, or tables grow"
        advice = "load_state(other.save_state()) copies it"
        raise ExecutionError(Diagnostic(Code.BAD_STATE, message, None, advice))
    return other._state


def _require_budget(project: RunnableProject, nodes: int | None) -> None:
    if not (nodes is None or (type(nodes) is int and nodes >= 0)):
        message = f"the node budget is a number of nodes or None, not {nodes!r}"
        raise ExecutionError(Diagnostic(Code.BAD_PARAMETER, message))
    if nodes is not None and not project.placed.rules.is_hosted:
        message = "code for a device without an operating system does not count nodes"
        raise ExecutionError(Diagnostic(Code.BAD_PARAMETER, message, None, "leave out node_budget"))


def _is_readable(array: object, dtype: DType) -> bool:
    if not isinstance(array, np.ndarray) or dtype.is_packed or array.dtype != dtype.array:
        return False
    return bool(array.flags.c_contiguous and array.flags.aligned)


def _accepted(bound: BoundGraph, values: Mapping[str, Any] | None, named: Mapping[str, Any]) -> dict[str, Array]:
    everything = inputs_by_name(bound, values, named)
    return {name: accepted_input(bound, name, value) for name, value in everything.items()}
