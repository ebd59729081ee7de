"""The simulator: the semantics of graphs, executed node by node. Knows nothing of synthesis."""

from openinfer.check.events import Event, TraceLevel
from openinfer.sim.breakpoints import Breakpoint, at_node, on_change, on_nan, on_op, on_write, when
from openinfer.sim.executor import Executor, NodeView
from openinfer.sim.preview import format_truncated
from openinfer.sim.session import SimBackend, SimOutput, SimRun, SimSession
from openinfer.sim.simulator import Simulator
from openinfer.sim.step import Choose
from openinfer.sim.trace import chrome_trace

__all__ = [
    "Breakpoint",
    "Choose",
    "Event",
    "Executor",
    "NodeView",
    "SimBackend",
    "SimOutput",
    "SimRun",
    "SimSession",
    "Simulator",
    "TraceLevel",
    "at_node",
    "chrome_trace",
    "format_truncated",
    "on_change",
    "on_nan",
    "on_op",
    "on_write",
    "when",
]
