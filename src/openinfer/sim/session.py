"""``SimSession``: run a graph at once, or prepare it and step through its events."""

from collections import deque
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Self

from openinfer.device import Device
from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.ir import Graph
from openinfer.oinf.model import ModelLoader
from openinfer.sim.executor import Executor
from openinfer.sim.simulator import Simulator
from openinfer.sim.trace import Event, TraceLevel


class SimBackend(StrEnum):
    """What a session runs on."""

    CPU = "cpu"


class SimSession:
    """A model and how to run graphs on it, one result at a time.

    >>> from openinfer.lang import graph
    >>> g = graph("inputs { x: f32[3]; } outputs { y: f32[3]; } block entry { y = op add(a=x, b=x); return y; }")
    >>> SimSession(None, SimBackend.CPU).run(g, {"x": [1.0, 2.0, 3.0]}).fetch("y")
    array([2., 4., 6.], dtype=float32)
    """

    def __init__(
        self, model: ModelLoader | None = None, backend: SimBackend | str = SimBackend.CPU, **options: Any
    ) -> None:
        self._simulator = Simulator(model, Device.CPU if backend == SimBackend.CPU else str(backend), **options)

    def with_trace(self, level: TraceLevel | str) -> Self:
        """Record this much of every run."""
        self._simulator.with_trace(level)
        return self

    def with_timing(self, wanted: bool) -> Self:  # noqa: FBT001  (documented)
        """Whether events say how long nodes took."""
        self._simulator.with_timing(wanted)
        return self

    def run(self, graph: Graph, inputs: Mapping[str, Any] | None = None) -> "SimOutput":
        """One step of a graph."""
        executor = self._simulator.make_executor(graph)
        executor.insert(inputs or {})
        executor.run_step()
        return SimOutput(executor)

    def prepare(self, graph: Graph, inputs: Mapping[str, Any] | None = None) -> "SimRun":
        """One step of a graph, not yet begun."""
        executor = self._simulator.make_executor(graph)
        executor.insert(inputs or {})
        return SimRun(executor)


class SimOutput:
    """The variables after a run."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def fetch(self, *names: str) -> Any:
        """A copy of a variable; several names give a tuple, a dtype after a single name is checked."""
        return self._executor.fetch(*names)

    def trace(self) -> list[dict[str, Any]]:
        """The events of the run as plain values."""
        return self._executor.trace()


class SimRun(SimOutput):
    """A step that is run event by event: blocks entered and left, nodes executed."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        self._pending: deque[Event] = deque()
        self._inside: dict[str, list[str]] = {}
        self._events = self._all_events()
        self._is_running = True
        self._look_ahead()

    def is_running(self) -> bool:
        """Whether there is another event."""
        return self._is_running

    def step(self) -> Event:
        """The next event: ``BlockEnter``, ``OpExecute`` (or another kind of node), ``BlockExit``."""
        if not self._is_running:
            message = "the run has ended"
            raise ExecutionError(Diagnostic(Code.WRONG_MOMENT, message, None, "prepare it again for another"))
        event = self._pending.popleft()
        self._look_ahead()
        return event

    def finish(self) -> SimOutput:
        """Run what is left and give the result."""
        while self._is_running:
            self.step()
        return SimOutput(self._executor)

    def _look_ahead(self) -> None:
        if not self._pending:
            event = next(self._events, None)
            if event is None:
                self._is_running = False
            else:
                self._pending.append(event)

    def _all_events(self) -> Iterator[Event]:
        for node in self._executor.iterate():
            event = node.event
            blocks = self._inside.setdefault(event.thread, [])
            if not blocks or blocks[-1] != event.block_name:
                blocks.append(event.block_name)
                yield _boundary("BlockEnter", event)
            yield event
            if event.kind == "Return" or (event.kind == "Yield" and event.thread != "entry"):
                blocks.pop()
                yield _boundary("BlockExit", event)


def _boundary(kind: str, event: Event) -> Event:
    return Event(kind, event.block_name, "", event.node_index, event.node_uuid, [], [], [0, 0, 0], event.thread)
