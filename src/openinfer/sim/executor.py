"""``Executor``: a graph ready to run, step by step or node by node."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, overload

import numpy as np

from openinfer.check.bound import BoundGraph, interface
from openinfer.check.events import Event, TraceLevel
from openinfer.check.inserted import inputs_by_name
from openinfer.check.one_call import OneCall
from openinfer.check.results import Outputs, given_back
from openinfer.check.step_sizes import StepSizes
from openinfer.dtypes import DTYPES, DTypeName
from openinfer.errors import Code, Diagnostic, ExecutionError, nearest
from openinfer.ir import Access, Node
from openinfer.oinf.atomic import atomic_file
from openinfer.ops import Array
from openinfer.sim.breakpoints import Breakpoint
from openinfer.sim.memory import MemoryKey, Overlay, SessionMemory, Values
from openinfer.sim.program import Instructions
from openinfer.sim.state import load_state, state_bytes, write_state
from openinfer.sim.step import Choose, RunningStep, sequential
from openinfer.sim.task import Task
from openinfer.sim.trace import Recorder, Recording
from openinfer.sim.views import (
    ExecutionPoint,
    Variables,
    Write,
    edit,
    inside,
    parsed,
    pending_writes,
    reported,
    wrong_moment,
)
from openinfer.tensor import Tensor

_MOST_NAMED = 12


class Executor:
    """A graph that is ready to run, with its own memory. Created by ``Simulator.make_executor``.

    Give inputs with ``insert``, run with ``run_step`` and read variables with ``fetch``, or call the executor to do all
    three. Node by node, use ``iterate`` or ``run_until``. A step that fails leaves everything as it was before.

    An executor runs one call at a time: a second one, from another thread, raises error E413. Separate executors can
    run concurrently.
    """

    def __init__(
        self,
        bound: BoundGraph,
        program: Instructions,
        recording: Recording,
        *,
        scheduler: "str | Choose" = "sequential",
        node_budget: int | None = None,
    ) -> None:
        self.bound = bound
        self._calls = OneCall("executor")
        self._program = program
        self._scheduler = scheduler
        self._recording = recording
        self._budget = node_budget
        self._memory = SessionMemory(bound)
        self._step: RunningStep | None = None
        self._values: Values = self._fresh_values()
        self._recorder: Recorder | None = None

    def _fresh_values(self) -> Values:
        return Values(self._memory, StepSizes(self.bound), {})

    def __repr__(self) -> str:
        return f"<Executor: {interface(self.bound)}{', in a step' * self.is_suspended}>"

    def _repr_html_(self) -> str:
        """The representation in notebooks."""
        from openinfer.sim.inspection import executor_html

        return executor_html(self.bound, self.place, is_suspended=self.is_suspended)

    # --- inputs and results ---------------------------------------------------------------------------------------

    def insert(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Insert inputs for the next step: ``insert(x=array)`` or ``insert({"x": array})``.

        Lists and scalars are converted with range checks; arrays are converted only if no value changes.
        """
        with self._calls.claim():
            self._insert(inputs_by_name(self.bound, values, named))

    def _insert(self, values: Mapping[str, Any]) -> None:
        if self._step is not None:
            raise wrong_moment("inputs cannot change while a step is running", "finish it first: run_step()")
        self._memory.insert(values)

    def __call__(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Array | Outputs:
        """Insert inputs, run one step and return the outputs: ``y = executor(x=array)``.

        A single output is an array. Several are a tuple in the order of ``return``, which can also be indexed by name:
        ``y, state = executor(x=array)`` or ``executor(x=array)["y"]``.
        """
        with self._calls.claim():
            self._insert(inputs_by_name(self.bound, values, named))
            self._run()
            return given_back((name, self._array(name).copy()) for name in self.bound.output_names)

    @overload
    def fetch(self, name: str, /) -> Array: ...
    @overload  # a dtype's name is a str as well
    def fetch(self, name: str, dtype: DTypeName, /) -> Array: ...  # type: ignore[overload-overlap]
    @overload
    def fetch(self, *names: str) -> tuple[Array, ...]: ...
    def fetch(self, *names: str) -> Array | tuple[Array, ...]:
        """Copy a variable to a NumPy array; several names give a tuple.

        A dtype after a single name is checked: ``fetch("y", "f32")``.
        """
        with self._calls.claim():
            return self._copies(names, None)

    def _copies(self, names: tuple[str, ...], values: "Values | Overlay | None") -> Array | tuple[Array, ...]:
        if not names:
            raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, "fetch takes the names of variables"))
        if len(names) == 2 and str(names[1]) in DTYPES:
            self._require_dtype(names[0], str(names[1]))
            names = names[:1]
        found = reported(lambda: tuple(self._array(name, values).copy() for name in names))
        return found[0] if len(found) == 1 else found

    def fetch_view(self, name: str) -> Array:
        """A variable as a read-only array that shares its memory and keeps it alive; a table is copied."""
        with self._calls.claim():
            view = self._array(name).view()
        view.flags.writeable = False
        return view

    def fetch_tensor(self, name: str) -> Tensor:
        """A variable as a ``Tensor``, packed if its dtype is."""
        with self._calls.claim():
            return Tensor.from_numpy(self._array(name).copy(), self.bound.vars[name].dtype)

    def _require_dtype(self, name: str, dtype: str) -> None:
        self._require_variable(name)
        found = self.bound.vars[name].dtype.name
        if found != dtype:
            raise ExecutionError(Diagnostic(Code.WRONG_DTYPE, f"{name!r} is {found}, not {dtype}"))

    def _require_variable(self, name: str) -> None:
        if not isinstance(name, str) or name not in self.bound.vars:
            advice = (
                nearest(str(name), self.bound.vars) or f"variables are {', '.join([*self.bound.vars][:_MOST_NAMED])}"
            )
            raise ExecutionError(Diagnostic(Code.UNKNOWN_VARIABLE, f"there is no variable {name!r}", None, advice))

    def _array(self, name: str, values: "Values | Overlay | None" = None) -> Array:
        """The array of a variable in a task's values; without them, as seen by entry."""
        self._require_variable(name)
        variable = self.bound.vars[name]
        if variable.is_table:
            return reported(lambda: self._memory.tables[name].read(()))
        if variable.decl is not None and variable.decl.pattern is not None:
            message = f"{name!r} is a family of model tensors, not one value"
            raise ExecutionError(Diagnostic(Code.BAD_INDEXING, message, variable.decl.span))
        if values is None:
            if self._step is None and name in self._memory.inputs:
                return self._memory.inputs[name]
            values = self._values if self._step is None else self._step.values
        seen = values
        return reported(lambda: seen[name])

    # --- running --------------------------------------------------------------------------------------------------

    def run_step(self) -> None:
        """Run one step, or the rest of a suspended one. A step that fails has no effect."""
        with self._calls.claim():
            self._run()

    def _run(self) -> None:
        choose = self._scheduler if callable(self._scheduler) else None
        try:
            step = self._running()
            with np.errstate(all="ignore"):
                if self._scheduler == "threaded" and step.entry.position == 0 and not step.entry.is_done:
                    step.run_threaded()
                else:
                    step.run(choose)
            self._finish(step)
        except BaseException:
            self._settle()
            raise

    def step(self) -> None:
        """The same as ``run_step``."""
        self.run_step()

    def begin_step(self) -> None:
        """Begin a step, suspended before its first node; no effect if a step has already begun."""
        with self._calls.claim():
            self._running()

    def _running(self) -> RunningStep:
        """The step in progress, or a new one."""
        if self._step is None:
            recorder = None if self._recording.level is TraceLevel.OFF else self._new_recorder()
            step = RunningStep(self.bound, self._program, self._memory, recorder, self._budget)
            step.bind_inputs()
            self._forget_temporaries()
            self._step = step
        return self._step

    def _forget_temporaries(self) -> None:
        """Drop temporaries of the last step, since keeping them next to the new ones would double the memory."""
        kept = {key: value for key, value in self._values.items() if not self._is_temporary(key)}
        self._values = Values(self._memory, self._values.sizes, kept)

    def _is_temporary(self, key: MemoryKey) -> bool:
        return isinstance(key, str) and self.bound.vars[key].is_temporary

    def _new_recorder(self) -> Recorder:
        return Recorder(self.bound, self._recording)

    def _finish(self, step: RunningStep) -> None:
        """Commit a step whose nodes have all been executed, unless its trace cannot be written."""
        step.join_sizes()
        if self._recording.path is not None:
            with atomic_file(self._recording.path) as sink:
                sink.write(json.dumps(self.trace(), indent=2).encode())
        step.commit()
        self._leave(step)

    def _settle(self) -> None:
        """After an error or interrupt: finish committing a step that had started to commit, and roll back any other."""
        step = self._step
        if step is None:
            return
        if step.is_committed:
            step.commit()
        else:
            step.rollback()
        self._leave(step)

    def _leave(self, step: RunningStep) -> None:
        if step.is_committed:
            self._values = step.values
        self._recorder = step.recorder
        self._step = None
        step.let_go()

    def iterate(self) -> "Iterator[NodeView]":
        """Run node by node: each iteration follows the execution of a node.

        Leaving the loop early suspends the step; ``iterate`` or ``run_step`` continue it.
        """
        with self._calls.claim():
            step = self._running()
        while True:
            with self._calls.claim():
                if self._step is not step:
                    return
                if step.is_done:
                    self._finish_or_settle(step)
                    return
                view = self._advance(step)
            yield view

    def _finish_or_settle(self, step: RunningStep) -> None:
        try:
            self._finish(step)
        except BaseException:
            self._settle()
            raise

    def _advance(self, step: RunningStep) -> "NodeView":
        choose = self._scheduler if callable(self._scheduler) else sequential
        if step.recorder is None:
            step.recorder = self._new_recorder()  # keeps no trace, but provides the event of this node
        writes: tuple[Write, ...] = ()

        def look(task: Task) -> None:
            nonlocal writes
            writes = pending_writes(task)

        try:
            with np.errstate(all="ignore"):
                task = step.advance(choose, look)
        except BaseException:
            self._settle()
            raise
        return NodeView(self, task, writes)

    def run_until(self, *breakpoints: Breakpoint) -> "NodeView | None":
        """Run until a breakpoint is met. Returns the node it stopped after, or None at the end of the step."""
        for given in breakpoints:
            self._require_breakpoint(given)
        for node in self.iterate():
            hit = [one for one in breakpoints if one.test(node)]
            if hit:
                node.breakpoints = tuple(hit)
                return node
        return None

    def _require_breakpoint(self, given: object) -> None:
        if not isinstance(given, Breakpoint):
            message = f"expected a breakpoint, got {type(given).__name__}"
            advice = "openinfer.sim has at_node, on_op, on_write, on_nan, on_change and when"
            raise ExecutionError(Diagnostic(Code.BAD_PARAMETER, message, None, advice))
        if given.variable is not None:
            self._require_variable(given.variable)

    @property
    def is_suspended(self) -> bool:
        """Whether a step has begun and not ended."""
        return self._step is not None

    @property
    def next_node(self) -> Node | None:
        """The node that the suspended step, or the next step, executes next; None if none is left."""
        return self.place.node

    @property
    def place(self) -> ExecutionPoint:
        """The execution point of a suspended step, if tasks run in sequence, or of the next step."""
        with self._calls.claim():
            if self._step is None:
                inputs, tables = self._memory.inputs, self._memory.tables
                return ExecutionPoint(
                    self._program["entry"][0].node, Variables(self.bound, self._values, tables, {}, inputs)
                )
            return inside(self._step.upcoming() or self._step.entry)

    def cancel(self) -> None:
        """Cancel a suspended step, as if it had not begun."""
        with self._calls.claim():
            self._settle()

    def interrupt(self) -> None:
        """Stop a running step at its next node, from another thread or a signal handler. The step has no effect."""
        step = self._step
        if step is not None:
            step.interrupted = True

    # --- traces ---------------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        """The events of the last step, or of the suspended one so far."""
        recorder = self._step.recorder if self._step is not None else self._recorder
        return recorder.events if recorder is not None else []

    @property
    def dropped_events(self) -> int:
        """The number of events of the last step beyond the limit of a trace, which were dropped."""
        recorder = self._step.recorder if self._step is not None else self._recorder
        return recorder.dropped if recorder is not None else 0

    def trace(self) -> list[dict[str, Any]]:
        """The events of the last step as plain values, ready for JSON."""
        return [event.facts() for event in self.events]

    # --- state ----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Reset persistent memory to its initial values and drop inserted inputs; a suspended step is cancelled."""
        with self._calls.claim():
            self._settle()
            self._memory.reset()
            self._memory.inputs.clear()
            self._values = self._fresh_values()

    def save_state(self, path: str | os.PathLike[str] | None = None) -> bytes | None:
        """Save persistent memory as a model file: return its bytes, or write it to a path."""
        with self._calls.claim():
            self._require_between_steps("saved")
            if path is None:
                return state_bytes(self.bound, self._memory)
            write_state(self.bound, self._memory, path)
        return None

    def load_state(self, state: "bytes | bytearray | str | os.PathLike[str]") -> None:
        """Restore what ``save_state`` saved, from bytes or a path; a state that does not fit changes nothing."""
        with self._calls.claim():
            self._require_between_steps("loaded")
            before = self._memory.tables
            try:
                load_state(self.bound, self._memory, state)
            finally:
                if self._memory.tables is not before:
                    self._values = self._fresh_values()

    def _require_between_steps(self, verb: str) -> None:
        if self._step is not None:
            raise wrong_moment(f"state is {verb} between steps, and one is running", "run_step() or cancel() first")


class NodeView:
    """A node that has just been executed, and the variables as its task sees them afterwards."""

    def __init__(self, executor: Executor, task: Task, writes: tuple[Write, ...]) -> None:
        self._executor = executor
        self._task = task
        self._writes = writes
        assert task.step.recorder is not None
        self.event: Event = task.step.recorder.last
        self.breakpoints: tuple[Breakpoint, ...] = ()

    @property
    def written(self) -> tuple[str, ...]:
        """The variables that the node wrote."""
        return tuple(text.partition("[")[0] for text in self.event.output)

    @property
    def results(self) -> tuple[tuple[str, Array], ...]:
        """What the node wrote: variables, with the values written to them or to a part. Do not modify these."""
        with self._executor._calls.claim():
            found = [(write.access.base, write.after(self._task)) for write in self._writes]
        return tuple((name, value) for name, value in found if value is not None)

    def changed(self, name: str) -> bool:
        """Whether the node changed the value of a variable."""
        self._executor._require_variable(name)
        with self._executor._calls.claim():
            return any(write.is_change(self._task) for write in self._writes if write.access.base == name)

    @overload
    def fetch(self, name: str, /) -> Array: ...
    @overload  # a dtype's name is a str as well
    def fetch(self, name: str, dtype: DTypeName, /) -> Array: ...  # type: ignore[overload-overlap]
    @overload
    def fetch(self, *names: str) -> tuple[Array, ...]: ...
    def fetch(self, *names: str) -> Array | tuple[Array, ...]:
        """The current variables, as ``Executor.fetch`` returns them."""
        with self._executor._calls.claim():
            return self._executor._copies(names, self._task.values)

    def peek(self, name: str) -> Array | None:
        """A variable; None if it has no value yet or is not a single value. Do not modify it."""
        with self._executor._calls.claim():
            try:
                return self._executor._array(name, self._task.values)
            except ExecutionError:
                return None

    def read(self, access: Access | str) -> Array:
        """A variable or part of it (``h[0]``, ``K[l, step]``) at the loop indices of the node. Do not modify it."""
        task = self._task
        variables = Variables(self._executor.bound, task.values, task.tables, self.event.indices, {})
        with self._executor._calls.claim():
            return reported(lambda: variables.read(parsed(access)))

    def set(self, name: str, value: Any) -> None:
        """Set a volatile variable; the step continues with the new value."""
        with self._executor._calls.claim():
            edit(self._task, name, value)
