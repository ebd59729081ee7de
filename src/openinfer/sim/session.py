"""``SimSession``: run a graph in one call, or prepare it and step through its events."""

from collections import deque
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self, overload

from openinfer.check.bound import interface
from openinfer.check.events import Event, TraceLevel
from openinfer.dtypes import DTypeName
from openinfer.ir import Graph
from openinfer.oinf.model import ModelLoader
from openinfer.ops import Array
from openinfer.sim.executor import Executor
from openinfer.sim.simulator import Simulator
from openinfer.sim.step import Choose
from openinfer.sim.views import wrong_moment


class SimBackend(StrEnum):
    """The devices a session can run on."""

    CPU = "cpu"
    VULKAN = "vulkan"


class SimSession:
    """Runs graphs on a model, one result at a time.

    >>> from openinfer.lang import graph
    >>> g = graph("inputs { x: f32[3]; } outputs { y: f32[3]; } block entry { y = op add(a=x, b=x); return y; }")
    >>> SimSession(None, SimBackend.CPU).run(g, {"x": [1.0, 2.0, 3.0]}).fetch("y")
    array([2., 4., 6.], dtype=float32)
    """

    def __init__(
        self,
        model: ModelLoader | None = None,
        backend: SimBackend | str = SimBackend.CPU,
        *,
        sizes: Mapping[str, int] | None = None,
        strict: bool = False,
        scheduler: str | Choose = "sequential",
        node_budget: int | None = None,
    ) -> None:
        self._simulator = Simulator(
            model, str(backend), sizes=sizes, strict=strict, scheduler=scheduler, node_budget=node_budget
        )

    def __repr__(self) -> str:
        return repr(self._simulator).replace("Simulator", "SimSession")

    def with_trace(self, level: TraceLevel | str) -> Self:
        """Set how much every run records."""
        self._simulator.with_trace(level)
        return self

    def with_timing(self, wanted: bool) -> Self:  # noqa: FBT001  (documented)
        """Set whether events record how long nodes took."""
        self._simulator.with_timing(wanted)
        return self

    def run(self, graph: Graph, inputs: Mapping[str, Any] | None = None) -> "SimOutput":
        """Run one step of a graph."""
        executor = self._simulator.make_executor(graph)
        executor.insert(inputs or {})
        executor.run_step()
        return SimOutput(executor)

    def prepare(self, graph: Graph, inputs: Mapping[str, Any] | None = None) -> "SimRun":
        """Begin one step of a graph, suspended before its first node."""
        executor = self._simulator.make_executor(graph)
        executor.insert(inputs or {})
        return SimRun(executor)


class SimOutput:
    """The variables after a run."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {interface(self._executor.bound)}>"

    @overload
    def fetch(self, name: str, /) -> Array: ...
    @overload  # a dtype's name is a str as well
    def fetch(self, name: str, dtype: DTypeName, /) -> Array: ...  # type: ignore[overload-overlap]
    @overload
    def fetch(self, *names: str) -> tuple[Array, ...]: ...
    def fetch(self, *names: str) -> Array | tuple[Array, ...]:
        """Copy a variable; several names give a tuple, and a dtype after a single name is checked."""
        return self._executor.fetch(*names)

    def trace(self) -> list[dict[str, Any]]:
        """The events of the run as plain values."""
        return self._executor.trace()


class SimRun(SimOutput):
    """A step run event by event: blocks entered and left, nodes executed. No node runs ahead of its event."""

    def __init__(self, executor: Executor) -> None:
        super().__init__(executor)
        executor.begin_step()
        self._nodes = executor.iterate()
        self._pending: deque[Event] = deque()
        self._inside: dict[str, list[str]] = {}
        self._is_over = False
        self._has_failed = False

    def is_running(self) -> bool:
        """Whether there are more events."""
        return bool(self._pending) or not self._is_over

    def step(self) -> Event:
        """The next event: ``BlockEnter``, ``OpExecute`` (or another kind of node), ``BlockExit``."""
        if not self.is_running():
            raise wrong_moment("the run has ended", "prepare it again for another")
        if not self._pending:
            self._advance()
        return self._pending.popleft()

    def finish(self) -> SimOutput:
        """Run the rest of the step and return its result."""
        while self.is_running():
            self.step()
        if self._has_failed:
            raise wrong_moment("the run has failed, and there is no result", "prepare it again")
        return SimOutput(self._executor)

    def _advance(self) -> None:
        """Enter the block of the next node, or run the node."""
        place = self._executor.place
        block = place.frames[-1].block if place.frames else "entry"
        if place.node is not None and self._enter(place.thread, block, place.node.index, str(place.node.uuid)):
            return
        try:
            event = next(self._nodes).event
            if self._executor.next_node is None:
                next(self._nodes, None)  # no node is left, so this ends the step
                self._is_over = True
        except BaseException:
            self._is_over = self._has_failed = True
            raise
        # A custom scheduler may have chosen a different task from the one above.
        self._enter(event.thread, event.block_name, event.node_index, event.node_uuid)
        self._pending.append(event)
        if event.kind == "Return" or (event.kind == "Yield" and event.thread != "entry"):
            self._inside[event.thread].pop()
            self._pending.append(
                _boundary("BlockExit", event.thread, event.block_name, event.node_index, event.node_uuid)
            )

    def _enter(self, thread: str, block: str, index: int, uuid: str) -> bool:
        blocks = self._inside.setdefault(thread, [])
        if blocks and blocks[-1] == block:
            return False
        blocks.append(block)
        self._pending.append(_boundary("BlockEnter", thread, block, index, uuid))
        return True


def _boundary(kind: str, thread: str, block: str, index: int, uuid: str) -> Event:
    return Event(kind, block, "", index, uuid, [], [], [0, 0, 0], thread)
