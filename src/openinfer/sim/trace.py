"""Traces of steps: events with the details of each level, and the documents made from them."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from openinfer.check.events import MOST_EVENTS, Event, TraceLevel, op_details, split_time, tensor_details
from openinfer.ir import CacheReset, Op
from openinfer.sim.backend import HOST, Backend
from openinfer.sim.operations import DynamicOp
from openinfer.sim.program import Instruction
from openinfer.sim.views import Variables

if TYPE_CHECKING:
    from openinfer.check.bound import BoundGraph
    from openinfer.sim.task import Task


class _Entry(NamedTuple):
    """An executed node, before it is requested as an event."""

    instruction: Instruction
    thread: str
    indices: dict[str, int]
    start: int
    end: int
    details: dict[str, Any] | None

    def event(self) -> Event:
        node = self.instruction.node
        return Event(
            kind=self.instruction.kind,
            block_name=self.instruction.block,
            op_name=node.kind.op if isinstance(node.kind, Op) else "",
            node_index=node.index,
            node_uuid=str(node.uuid),
            params=self.instruction.params,
            output=self.instruction.outputs,
            micros=split_time(self.end - self.start),
            thread=self.thread,
            indices=self.indices,
            scope=list(self.instruction.scopes),
            start_ns=self.start,
            duration_ns=self.end - self.start,
            details=self.details or {},
        )


class _Kept:
    """Entries in columns: a step may have a million, which would take a third of a gigabyte as objects."""

    def __init__(self) -> None:
        self._instructions: list[Instruction] = []
        self._threads: list[str] = []
        self._times = array("q")
        self._indices: array[int] | list[int] = array("q")
        self._names: dict[int, tuple[str, ...]] = {}
        """By node index: the indices of the enclosing loops."""
        self._details: dict[int, dict[str, Any]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._instructions)

    def append(self, entry: _Entry) -> None:
        """Append an entry; safe to call from several threads."""
        with self._lock:
            if entry.indices:
                self._names.setdefault(entry.instruction.node.index, tuple(entry.indices))
                self._append_indices(entry.indices.values())
            if entry.details is not None:
                self._details[len(self)] = entry.details
            self._times.extend((entry.start, entry.end))
            self._threads.append(entry.thread)
            self._instructions.append(entry.instruction)  # last: an interrupt before this leaves no partial entry

    def _append_indices(self, values: Iterable[int]) -> None:
        count = len(self._indices)
        try:
            self._indices.extend(values)
        except OverflowError:  # an index beyond 63 bits
            self._indices = [*self._indices[:count], *values]

    def __iter__(self) -> Iterator[_Entry]:
        used = 0
        for position, instruction in enumerate(self._instructions):
            names = self._names.get(instruction.node.index, ())
            indices = dict(zip(names, self._indices[used : used + len(names)], strict=True))
            used += len(names)
            start, end = self._times[2 * position : 2 * position + 2]
            yield _Entry(instruction, self._threads[position], indices, start, end, self._details.get(position))


@dataclass(frozen=True)
class Recording:
    """What is recorded for every step."""

    level: TraceLevel = TraceLevel.BASIC
    timing: bool = True
    path: str | None = None
    """The file to which the trace of every step is written."""
    backend: Backend = HOST
    """The backend whose clock measures ops."""


class Recorder:
    """Collects what a step does. Entries become events only when they are read."""

    def __init__(self, bound: "BoundGraph", recording: Recording) -> None:
        self._bound = bound
        self._level = recording.level
        self._backend = recording.backend
        self._most = 0 if self._level is TraceLevel.OFF else MOST_EVENTS
        self.timing = recording.timing
        self.dropped = 0
        """The number of events dropped because there were too many."""
        self._entries = _Kept()
        self._last: _Entry | None = None

    def record(self, task: "Task", instruction: Instruction, indices: dict[str, int], start: int, end: int) -> None:
        """Record an executed node. If the device has a clock, it determines the duration of ops."""
        if self.timing and isinstance(instruction.node.kind, Op):
            taken = self._backend.taken()
            end = end if taken is None else start + taken
        details = self._details(task, instruction, indices) if self._level is TraceLevel.FULL else None
        self._last = _Entry(instruction, task.block, indices, start, end, details)
        if len(self._entries) < self._most:
            self._entries.append(self._last)
        elif self._most:
            self.dropped += 1

    @property
    def events(self) -> list[Event]:
        """All recorded events, ordered by start."""
        entries = list(self._entries)
        if self.timing and any(entry.thread != "entry" for entry in entries):
            entries = sorted(entries, key=lambda entry: entry.start)
        return [entry.event() for entry in entries]

    @property
    def last(self) -> Event:
        """The event of the last executed node."""
        assert self._last is not None
        return self._last.event()

    def _details(self, task: "Task", instruction: Instruction, indices: dict[str, int]) -> dict[str, Any]:
        kind = instruction.node.kind
        found: dict[str, Any] = {}
        if isinstance(kind, Op):
            own = self._bound.ops[instruction.node.index]
            call = instruction.act.call if isinstance(instruction.act, DynamicOp) else own.call
            assert call is not None
            found = op_details(own, kind, call)
        outputs = [] if isinstance(kind, CacheReset) else list(self._outputs(task, instruction, indices))
        if outputs:
            found["outputs"] = outputs
        return found

    def _outputs(self, task: "Task", instruction: Instruction, indices: dict[str, int]) -> Iterator[dict[str, Any]]:
        """Details of what was written: variables, and parts of tables."""
        variables = Variables(self._bound, task.values, task.tables, indices, {})
        for access in instruction.writes:
            if access.bracketed or access.base in task.values:
                value = variables.read(access)
                dtype = self._bound.vars[access.base].dtype.name
                yield tensor_details(str(access), dtype, value)


def chrome_trace(events: list[Event]) -> dict[str, Any]:
    """Events in the format of Perfetto and chrome://tracing: one row per task, with scopes around nodes."""
    threads = {name: number for number, name in enumerate(dict.fromkeys(["entry", *(e.thread for e in events)]), 1)}
    origin = min((event.start_ns for event in events), default=0)
    found: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "openinfer simulator"}}
    ]
    found += [
        {"ph": "M", "pid": 1, "tid": number, "name": "thread_name", "args": {"name": name}}
        for name, number in threads.items()
    ]
    for thread, number in threads.items():
        found += _row([event for event in events if event.thread == thread], number, origin)
    return {"traceEvents": found, "displayTimeUnit": "ns"}


def _row(events: list[Event], thread: int, origin: int) -> list[dict[str, Any]]:
    """The slices of one task: nodes, enclosed by their blocks and scopes.

    A slice precedes those inside it, which lets viewers tell them apart if they start at the same time.
    """
    found: list[dict[str, Any]] = []
    open_: list[tuple[str, int, dict[str, Any]]] = []

    def begin(name: str, category: str, start: int) -> dict[str, Any]:
        slice_ = {"ph": "X", "pid": 1, "tid": thread, "name": name, "cat": category, "ts": (start - origin) / 1000}
        found.append(slice_)
        return slice_

    for event, path in _paths(events):
        shared = 0
        while shared < min(len(path), len(open_)) and open_[shared][0] == path[shared]:
            shared += 1
        del open_[shared:]
        open_ += [(name, event.start_ns, begin(name, "region", event.start_ns)) for name in path[shared:]]
        for _, start, region in open_:
            region["dur"] = (event.start_ns + event.duration_ns - start) / 1000
        node = begin(event.op_name or event.kind, event.kind, event.start_ns)
        node |= {"dur": event.duration_ns / 1000, "args": event.facts()}
    return found


def _paths(events: list[Event]) -> Iterator[tuple[Event, list[str]]]:
    """Each event with its enclosing regions, outermost first; a block is inside the block that runs it."""
    callers: list[list[str]] = []
    path: list[str] = []
    before: Event | None = None
    for event in events:
        if before is not None and before.kind in ("Branch", "Call") and before.block_name != event.block_name:
            callers.append(path)
        elif before is not None and before.kind == "Return" and callers:
            callers.pop()
        inside = callers[-1] if callers else []
        path = [*inside, f"block {event.block_name}", *(f"scope {name}" for name in event.scope)]
        yield event, path
        before = event
