"""``Workspace``: a text, its model, and everything the page can ask about them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from openinfer._version import VERSION
from openinfer.check.bound import BoundGraph
from openinfer.errors import Code, Diagnostic, OpenInferError
from openinfer.ir import MemoryKind
from openinfer.ir.op_names import OP_NAMES
from openinfer.lang.source import read_source
from openinfer.oinf.atomic import atomic_file
from openinfer.ops import OPS, usage
from openinfer.sim import Simulator, TraceLevel
from openinfer.sim.stepper import Inputs
from openinfer.studio.document import CheckedText, CheckedWith, checked_text
from openinfer.studio.editing_help import EditingHelp
from openinfer.studio.graph_facts import graph_facts
from openinfer.studio.node_facts import Inspector
from openinfer.studio.planning import DeviceFinder, ShownPlan, device_facts, shown_plan
from openinfer.studio.stepping import StepSession
from openinfer.studio.timeline import (
    RecordedTrace,
    compared_traces,
    device_trace,
    simulated_trace,
    trace_from_file,
)

InputMaker = Callable[[BoundGraph, Sequence[str]], Inputs]
"""Makes the inputs of every step of a graph from texts such as ``x=randn:0``."""
_PLANS = 4
"""The most plans to keep."""
_TRACES = 8
"""The most traces to keep."""


@dataclass(frozen=True)
class Settings:
    """Settings from the command line."""

    make_inputs: InputMaker
    find_device: DeviceFinder
    inputs: Sequence[str] = ()
    device: str = "host"
    steps: int = 1


@dataclass
class Workspace:
    """A text with everything known about it. Calls come from several threads; long ones take turns."""

    text: str
    surroundings: CheckedWith
    settings: Settings
    path: Path | None = None
    """Where ``save`` writes; None if the text has no source file."""
    traces: dict[str, RecordedTrace] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._newline = "\r\n" if "\r\n" in self.text else "\n"
        self._saved = _digest(self.text)
        self._checked = checked_text(self.text.replace("\r\n", "\n"), self.surroundings)
        self.editing = EditingHelp(self.surroundings)
        self._inspector: Inspector | None = None
        self._plans: dict[tuple[str, str], ShownPlan] = {}
        self._session: StepSession | None = None
        self._long = Lock()

    # --- text -----------------------------------------------------------------------------------------------------

    def opened(self) -> dict[str, Any]:
        """What the page needs at the start."""
        model = self.surroundings.model
        return {
            "version": VERSION,
            "name": self.surroundings.name,
            "can_save": self.path is not None,
            "model": None if model is None else {"path": str(model.path), "tensors": list(model.tensors)},
            "sizes": dict(self.surroundings.sizes),
            "device": self.settings.device,
            "devices": device_facts(),
            "inputs": list(self.settings.inputs),
            "steps": self.settings.steps,
            "ops": [_op_summary(name) for name in sorted(OP_NAMES) if name in OPS],
            "traces": [trace.facts() for trace in self.traces.values()],
            "text": self._checked.text,
            **_check_facts(self._checked),
        }

    def check(self, text: str) -> dict[str, Any]:
        """The problems of a text, and its picture."""
        if text != self._checked.text:
            self._checked = checked_text(text, self.surroundings)
            self._inspector = None
        return _check_facts(self._checked)

    def save(self, text: str) -> dict[str, Any]:
        """Write the text to its file, unless another program has changed it."""
        if self.path is None:
            raise OpenInferError(Diagnostic(Code.WRITE_FAILED, "this graph has no source file to write to"))
        if _digest(read_source(str(self.path))) != self._saved:
            message = f"{self.path.name!r} has been changed by another program since it was opened"
            raise OpenInferError(Diagnostic(Code.WRITE_FAILED, message, None, "copy your text, and start again"))
        written = text.replace("\n", self._newline)
        with atomic_file(str(self.path)) as sink:
            sink.write(written.encode())
        self._saved = _digest(written)
        return {"saved": True}

    # --- nodes and weights ----------------------------------------------------------------------------------------

    @property
    def inspector(self) -> Inspector:
        """The inspector of the current text."""
        if self._inspector is None:
            self._inspector = Inspector(self._checked)
        return self._inspector

    def node(self, index: int) -> dict[str, Any]:
        """A node for the panel."""
        return {"node": self.inspector.node(index)}

    def weight(self, name: str, lead: list[int]) -> dict[str, Any]:
        """A weight in full."""
        with self._long:
            return self.inspector.weight(name, lead)

    # --- plans ----------------------------------------------------------------------------------------------------

    def _plan(self, device: str) -> ShownPlan:
        key = (self._checked.text, device)
        if key not in self._plans:
            found = shown_plan(self._checked, device, self.settings.find_device)
            while len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = found
        return self._plans[key]

    def plan(self, device: str) -> dict[str, Any]:
        """The plan for a device: kernels, ledger, memory, files."""
        with self._long:
            return self._plan(device).facts

    def file(self, device: str, path: str) -> dict[str, Any]:
        """A file of the plan."""
        with self._long:
            return {"path": path, "text": self._plan(device).file(path)}

    def kernel(self, device: str, index: int) -> dict[str, Any]:
        """The kernel that computes a node."""
        with self._long:
            return {"kernel": self._plan(device).of_node(index)}

    # --- stepping -------------------------------------------------------------------------------------------------

    def start(self, inputs: list[str], steps: int) -> dict[str, Any]:
        """Start stepping through the graph."""
        with self._long:
            executor = self._simulator(TraceLevel.BASIC).make_executor(self._checked.require_bound().source)
            made = self.settings.make_inputs(executor.bound, inputs)
            self._session = StepSession(executor, made, steps)
            return self._session.facts()

    def stepping(self, call: Callable[[StepSession], Mapping[str, Any]]) -> dict[str, Any]:
        """Forward a call to the stepping session."""
        if self._session is None:
            raise OpenInferError(Diagnostic(Code.WRONG_MOMENT, "nothing is being stepped through: start first"))
        with self._long:
            return dict(call(self._session))

    def interrupt(self) -> dict[str, Any]:
        """Halt a run, without waiting for its turn."""
        if self._session is not None:
            self._session.interrupt()
        return {}

    def _simulator(self, level: TraceLevel) -> Simulator:
        given = self.surroundings
        return Simulator(given.model, sizes=given.sizes, strict=given.strict).with_trace(level)

    # --- traces ---------------------------------------------------------------------------------------------------

    def trace_simulator(self, inputs: list[str], steps: int) -> dict[str, Any]:
        """Run steps in the simulator."""
        with self._long:
            executor = self._simulator(TraceLevel.FULL).make_executor(self._checked.require_bound().source)
            made = self.settings.make_inputs(executor.bound, inputs)
            return self._keep(simulated_trace(executor, made, steps))

    def trace_device(self, device: str, inputs: list[str], steps: int) -> dict[str, Any]:
        """Compile the graph for a device, and run the same steps on this machine."""
        with self._long:
            bound, shown = self._checked.require_bound(), self._plan(device)
            made = self.settings.make_inputs(bound, inputs)
            return self._keep(device_trace(shown.plan, made, steps, bound.origins))

    def trace_file(self, name: str, text: str) -> dict[str, Any]:
        """Load a recorded trace."""
        return self._keep(trace_from_file(name, text))

    def _keep(self, trace: RecordedTrace) -> dict[str, Any]:
        self.traces.pop(trace.name, None)
        while len(self.traces) >= _TRACES:
            del self.traces[next(iter(self.traces))]
        self.traces[trace.name] = trace
        return trace.facts()

    def compare(self, one: str, other: str, tolerance: float) -> dict[str, Any]:
        """Where two traces diverge."""
        for name in (one, other):
            if name not in self.traces:
                raise OpenInferError(Diagnostic(Code.WRONG_MOMENT, f"there is no trace {name[:80]!r}"))
        return compared_traces(self.traces[one], self.traces[other], tolerance)

    def profile(self, device: str, inputs: list[str], steps: int) -> dict[str, Any]:
        """Where the time of a step goes on this machine, kernel by kernel, next to its roofline."""
        with self._long:
            bound, shown = self._checked.require_bound(), self._plan(device)
            made = self.settings.make_inputs(bound, inputs)
            found = shown.plan.profile(made(0), steps=steps, cc=shown.plan.arch.toolchain.cc or "gcc")
            return found.facts()


def _check_facts(checked: CheckedText) -> dict[str, Any]:
    return {
        "problems": checked.problem_facts(),
        "graph": graph_facts(checked),
        "needs_model": checked.needs_model,
        "interface": [] if checked.bound is None else _inputs_of(checked.bound),
    }


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _op_summary(name: str) -> dict[str, Any]:
    record = OPS[name]
    return {
        "name": name,
        "family": record.family,
        "usage": usage(record),
        "doc": record.doc.partition("\n\n")[0],
        "params": [param.name for param in record.params],
    }


def _inputs_of(bound: BoundGraph) -> list[dict[str, str]]:
    return [
        {"name": one.name, "type": str(one.type), "default": "randn:0" if one.dtype.kind == "float" else "zeros"}
        for one in bound.vars.values()
        if one.kind is MemoryKind.DYNAMIC
    ]
