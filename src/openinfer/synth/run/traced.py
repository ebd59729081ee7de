"""Compiled code that records what its steps do, node by node, like the simulator's executor."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from openinfer.check.events import (
    MOST_EVENTS,
    Event,
    PlacedNode,
    TraceLevel,
    node_kind,
    node_params,
    node_writes,
    op_details,
    placed_nodes,
    split_time,
    tensor_details,
)
from openinfer.dtypes import DType, unpack
from openinfer.ir import Assign, Node, Op
from openinfer.ir.rules import is_consumer
from openinfer.ops import Array
from openinfer.synth.memory.trace_points import Reported
from openinfer.synth.memory.weights import WeightBytes
from openinfer.synth.program.ir import FOLDED, KernelStep, Mark, Program, Weight
from openinfer.synth.run.interruption import deferred_interrupt
from openinfer.synth.run.library import compiled
from openinfer.synth.run.module import CompiledModule
from openinfer.synth.run.step_memory import OWN_MEMORY, SharedMemory, WeightMemory, given_weights
from openinfer.synth.targets.project import RunnableProject


def traced(
    project: RunnableProject,
    cc: str,
    flags: Sequence[str],
    level: TraceLevel,
    node_budget: int | None = None,
    weights: WeightMemory = WeightMemory.HELD,
) -> "TracedModule":
    """A project as a tracing module: the same code, compiled with its trace hook."""
    library = compiled(project, cc, (*flags, *project.trace_flags))
    return TracedModule(project, library, level, node_budget, given_weights(project, weights))


def traced_like(module: CompiledModule, cc: str, flags: Sequence[str], most_events: int) -> "TracedModule":
    """A tracing module next to another: same project, shared weights, a state of its own.

    It keeps at most ``most_events`` events of a step.
    """
    project = module._project
    library = compiled(project, cc, (*flags, *project.trace_flags))
    shared = SharedMemory(module._given_weights)
    return TracedModule(project, library, TraceLevel.BASIC, module._node_budget, shared, most_events)


class _Event(ctypes.Structure):
    """The header's ``NAME_event``."""

    _fields_ = (
        ("node", ctypes.c_int32),
        ("output", ctypes.c_int32),
        ("point", ctypes.c_int32),
        ("variable", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("data", ctypes.c_void_p),
        ("depth", ctypes.c_int32),
        ("indices", ctypes.POINTER(ctypes.c_int64)),
    )


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Event))


@dataclass
class _Record:
    """A node that a step has executed."""

    node: int
    thread: str
    indices: dict[str, int]
    start: int
    end: int
    outputs: list[dict[str, Any]] = field(default_factory=list)
    is_return: bool = False


class TracedModule(CompiledModule):
    """A compiled module that keeps the events of its last step."""

    def __init__(
        self,
        project: RunnableProject,
        library: ctypes.CDLL,
        level: TraceLevel,
        node_budget: int | None = None,
        shared: SharedMemory = OWN_MEMORY,
        most_events: int = MOST_EVENTS,
    ) -> None:
        super().__init__(project, library, node_budget, shared)
        self._level = level
        self._most_events = most_events
        self._records: list[_Record] = []
        self._clock = 0
        self._thread = "entry"
        self.dropped_events = 0
        """The number of events of the last step that were dropped, because a trace has a limit."""
        self._placed = {placed.node.index: placed for placed in placed_nodes(self.bound.graph)}
        self._consumers = {block.name for block in self.bound.graph.blocks.values() if is_consumer(block)}
        self._absent = absent_values(project.program, project.reported)
        self._callback = _Callback(self._heard)  # kept alive here: the code only has its address
        self._instance.tell("set_trace", self._callback, None)

    def _run(self) -> None:
        self._records, self._thread, self.dropped_events = [], "entry", 0
        self._clock = perf_counter_ns()
        with deferred_interrupt(self._watch):
            super()._run()

    # --- while a step runs ----------------------------------------------------------------------------------------

    def _heard(self, _user: int | None, pointer: Any) -> None:
        """Callback of the code when a node has been executed. The time since the previous event is the node's."""
        now, event = perf_counter_ns(), pointer.contents
        row = self._project.reported[event.point]
        if len(self._records) >= self._most_events:
            self.dropped_events += 1
        elif event.point and self._is_same(self._project.reported[event.point - 1], row):
            self._records[-1].outputs += self._values(row, event)
        else:
            indices = dict(zip(row.indices, event.indices[: event.depth], strict=True))
            thread = self._strand(self._placed[row.node])
            found = self._values(row, event)
            self._records.append(_Record(row.node, thread, indices, self._clock, now, found, row.is_return))
        self._clock = perf_counter_ns()

    @staticmethod
    def _is_same(before: Reported, row: Reported) -> bool:
        """Whether a row is another result of the previous event's node; an inlined block starts over."""
        return (before.node, before.is_return) == (row.node, row.is_return) and before.output < row.output

    def _strand(self, placed: PlacedNode) -> str:
        """The task that a node runs in: a consumer's begins with its first node and ends with its last."""
        if placed.block in self._consumers:
            self._thread = placed.block
        found = self._thread
        if placed.block == found and node_kind(placed.node) in ("Yield", "Return"):
            self._thread = "entry"
        return found

    def _values(self, row: Reported, event: _Event) -> list[dict[str, Any]]:
        if self._level is not TraceLevel.FULL:
            return []
        if row.value is None:
            return self._assigned(self._placed[row.node].node)
        if isinstance(row.value, Weight):
            return [tensor_details(row.name, row.value.dtype.name, self._weight(row.value))]
        shape = tuple(event.shape[: event.rank])
        if min(shape, default=0) < 0:  # a size is not bound yet, so the variable has no value
            return []
        found = _array(event.data, row.value.dtype, shape)
        if row.strides is not None:
            found = as_strided(found, shape, [step * found.itemsize for step in row.strides]).copy()
        return [tensor_details(row.name, row.value.dtype.name, found)]

    def _assigned(self, node: Node) -> list[dict[str, Any]]:
        """A temporary variable starts as zeros, which take no memory in the code until they are read."""
        variable = self.bound.vars[node.kind.name] if isinstance(node.kind, Assign) else None
        if variable is None or variable.is_dynamic:
            return []
        initial = np.full(variable.shape, variable.dtype.initial, variable.dtype.array)
        return [tensor_details(variable.name, variable.dtype.name, initial)]

    def _weight(self, weight: Weight) -> Array:
        name = weight.names[0]
        if weight.part == FOLDED:
            return self._program.folded[name].to_numpy()
        data = self._project.placed.weights.data(name, weight.part, weight.dtype)
        return _decoded(data, weight.dtype, weight.shape)

    # --- afterwards -----------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        """The events of the last step, in order; if it failed, up to the failure."""
        return [self._event(record) for record in self._records]

    def forget_events(self) -> None:
        """Drop the events of the last step."""
        self._records, self.dropped_events = [], 0

    def _event(self, record: _Record) -> Event:
        placed = self._placed[record.node]
        node, is_return = placed.node, record.is_return
        return Event(
            kind=node_kind(node, is_return=is_return),
            block_name=placed.block,
            op_name=node.kind.op if isinstance(node.kind, Op) else "",
            node_index=node.index,
            node_uuid=str(node.uuid),
            params=node_params(node, is_return=is_return),
            output=[str(access) for access in node_writes(node, is_return=is_return)],
            micros=split_time(record.end - record.start),
            thread=record.thread,
            indices=record.indices,
            scope=list(placed.scopes),
            start_ns=record.start,
            duration_ns=record.end - record.start,
            details=self._details(placed, record) if self._level is TraceLevel.FULL else {},
        )

    def _details(self, placed: PlacedNode, record: _Record) -> dict[str, Any]:
        kind, found = placed.node.kind, dict[str, Any]()
        own = self.bound.ops.get(record.node)
        # If shapes differ from step to step, only the results show them.
        if isinstance(kind, Op) and own is not None and own.call is not None and not own.is_dynamic:
            found = op_details(own, kind, own.call)
        if record.outputs:
            found["outputs"] = record.outputs
        if record.node in self._absent:
            found["absent"] = self._absent[record.node]
        return found


def _array(address: int | None, dtype: DType, shape: tuple[int, ...]) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    data = ctypes.string_at(address, dtype.nbytes(count)) if address and count else b""
    return _decoded(data, dtype, shape)


def _decoded(data: WeightBytes, dtype: DType, shape: tuple[int, ...]) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    if dtype.is_packed:
        return unpack(np.frombuffer(data, np.uint8), dtype, 0, count).reshape(shape)
    return np.frombuffer(data, dtype.array, count).reshape(shape)


def absent_values(program: Program, reported: Sequence[Reported]) -> dict[int, str]:
    """The nodes whose values are not all available in generated code, and why."""
    shown = {(row.node, row.output) for row in reported if row.value is not None}
    steps = list(program.steps())
    kernels = [step for step in steps if isinstance(step, KernelStep) and step.nodes]
    fused = {node: step.node for step in kernels for node in step.nodes}
    marked = {(step.node, place) for step in steps if isinstance(step, Mark) for place in range(len(step.values))}
    return {
        node: f"computed together with node {fused[node]}" if node in fused else "nothing reads it"
        for node, _ in sorted(marked - shown)
    }
