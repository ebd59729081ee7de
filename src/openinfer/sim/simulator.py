"""``Simulator``: runs graphs on a model."""

import os
from collections.abc import Mapping
from typing import Self

from openinfer.check import bind
from openinfer.check.bind import require_surroundings
from openinfer.check.events import LEVELS, TraceLevel, trace_level
from openinfer.collection import collection_paused
from openinfer.device import Device
from openinfer.errors import Code, Diagnostic, ExecutionError
from openinfer.ir import Graph
from openinfer.oinf.model import ModelLoader
from openinfer.sim.backend import Backend, DescribedDevice, backend_of
from openinfer.sim.compared import ComparedBackend
from openinfer.sim.executor import Executor
from openinfer.sim.program import compiled
from openinfer.sim.step import Choose
from openinfer.sim.trace import Recording

_SCHEDULERS = ("sequential", "threaded")


class Simulator:
    """Runs graphs exactly as written.

    ``sizes`` take precedence over those of the graph and the model. ``scheduler`` says how consumers of ``yield`` run:
    ``"sequential"`` in one thread, ``"threaded"`` in one thread each, or a function that picks the next task; the
    result is the same. ``node_budget`` ends a step that executes more nodes. On a ``device`` other than the CPU, the
    device computes the ops, one node at a time; with ``compare="cpu"`` each op is also computed on the CPU, and a
    result that the op does not allow raises error E808.

    >>> from openinfer.lang import graph
    >>> g = graph("dynamic { x: f32[B]; } volatile { y: f32[B]; } block entry { op add(x, x) >> y; return; }")
    >>> executor = Simulator(None, sizes={"B": 2}).make_executor(g)
    >>> executor.insert(x=[1.0, 2.5])
    >>> executor.run_step()
    >>> executor.fetch("y")
    array([2., 5.], dtype=float32)
    """

    def __init__(
        self,
        model: ModelLoader | None = None,
        device: Device | str | DescribedDevice | Backend = Device.CPU,
        *,
        sizes: Mapping[str, int] | None = None,
        strict: bool = False,
        scheduler: "str | Choose" = "sequential",
        node_budget: int | None = None,
        compare: Device | str | None = None,
    ) -> None:
        if not callable(scheduler) and scheduler not in _SCHEDULERS:
            message = f"the scheduler is 'sequential' or 'threaded', not {scheduler!r}"
            raise ExecutionError(Diagnostic(Code.WRONG_MOMENT, message))
        if not (node_budget is None or (type(node_budget) is int and node_budget >= 0)):
            message = f"the node budget is a number of nodes or None, not {node_budget!r}"
            raise ExecutionError(Diagnostic(Code.BAD_PARAMETER, message))
        require_surroundings(model, sizes)
        self._backend = backend_of(device)
        if compare is not None:
            if compare != Device.CPU:
                message = f"nodes are compared with what the CPU computes, not with {str(compare)!r}"
                raise ExecutionError(Diagnostic(Code.BAD_PARAMETER, message, None, "compare='cpu'"))
            self._backend = ComparedBackend(self._backend)
        self._model = model
        self._sizes = dict(sizes or {})
        self._strict = strict
        self._scheduler = scheduler
        self._node_budget = node_budget
        self._level, self._trace_path = trace_from_environment()
        self._timing = True

    def __repr__(self) -> str:
        return "<Simulator without a model>" if self._model is None else f"<Simulator of {self._model.path!r}>"

    def with_trace(self, level: TraceLevel | str) -> Self:
        """Set how much every step records."""
        self._level = trace_level(level)
        return self

    def with_timing(self, wanted: bool) -> Self:  # noqa: FBT001  (documented)
        """Set whether events record how long nodes took."""
        self._timing = wanted
        return self

    def make_executor(self, graph: Graph) -> Executor:
        """Bind a graph to the model, check it, and create an executor with its own memory."""
        bound = bind(graph, self._model, self._sizes, strict=self._strict)
        with collection_paused():
            program = compiled(bound, self._backend)
        return Executor(
            bound,
            program,
            Recording(self._level, self._timing, self._trace_path, self._backend),
            scheduler=self._scheduler,
            node_budget=self._node_budget,
        )


def trace_from_environment() -> tuple[TraceLevel, str | None]:
    """The trace level in ``OPENINFER_TRACE``, or the path in it, to which every step's full trace is written."""
    wanted = os.environ.get("OPENINFER_TRACE", "").strip()
    level = LEVELS.get(wanted.lower() or "basic")
    if level is not None:
        return level, None
    if "." not in wanted and "/" not in wanted:
        # A misspelt level must not become a file name.
        message = f"OPENINFER_TRACE is off, basic, full or a path, not {wanted!r}"
        raise ExecutionError(Diagnostic(Code.BAD_PARAMETER, message, None, f"./{wanted} is a path"))
    return TraceLevel.FULL, wanted
