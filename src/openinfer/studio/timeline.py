"""Traces side by side: events of the simulator and of compiled code, where they diverge, and kernel profiles."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openinfer.check.events import Event, TraceLevel
from openinfer.errors import Code, Diagnostic, OpenInferError
from openinfer.sim.compare import compare, read_trace
from openinfer.sim.executor import Executor
from openinfer.sim.stepper import Inputs
from openinfer.synth.plan import Plan

MOST_EVENTS_SHOWN = 20_000
"""The most events of a trace that are drawn."""


@dataclass(frozen=True)
class RecordedTrace:
    """A trace: its name, and its events as a file stores them."""

    name: str
    events: Sequence[Mapping[str, Any]]
    starts: Sequence[int] = ()
    """When each event began, in nanoseconds; empty for a file, whose events follow one another."""
    origins: Mapping[int, int] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """The trace as the page draws it."""
        shown = self.events[:MOST_EVENTS_SHOWN]
        durations = [_nanoseconds(one) for one in shown]
        starts = list(self.starts[: len(shown)]) or _one_after_the_other(durations)
        origin = min(starts, default=0)
        return {
            "name": self.name,
            "count": len(self.events),
            "events": [
                {
                    "position": position,
                    "node": self.origins.get(int(one["node_index"]), int(one["node_index"])),
                    "name": event_name(one["op_name"], one["kind"]),
                    "block": one["block_name"],
                    "thread": one.get("thread", "entry"),
                    "indices": one.get("indices", {}),
                    "start": start - origin,
                    "duration": duration,
                    "outputs": one.get("outputs", []),
                    "absent": one.get("absent"),
                }
                for position, (one, start, duration) in enumerate(zip(shown, starts, durations, strict=True))
            ],
        }

    def text(self) -> str:
        """The trace as a file stores it."""
        return json.dumps(list(self.events))


def event_name(op: str | None, kind: str) -> str:
    """The name of an event: the op, or the words of the statement.

    >>> event_name("relu", "OpExecute"), event_name(None, "CacheRead"), event_name(None, "BlockCall")
    ('relu', 'cache.read', 'block call')
    """
    if op:
        return op
    words = re.sub(r"(?<!^)(?=[A-Z])", " ", kind).lower()
    return words.replace("cache ", "cache.")


def _nanoseconds(event: Mapping[str, Any]) -> int:
    milliseconds, microseconds, nanoseconds = event["micros"]
    return int(milliseconds * 1_000_000 + microseconds * 1_000 + nanoseconds)


def _one_after_the_other(durations: Sequence[int]) -> list[int]:
    starts, at = [], 0
    for duration in durations:
        starts.append(at)
        at += duration
    return starts


def _recorded(name: str, events: Sequence[Event], origins: Mapping[int, int]) -> RecordedTrace:
    """Parallel tasks need their start times; a single one is drawn without the gaps that recording caused."""
    is_single = len({one.thread for one in events}) < 2
    return RecordedTrace(
        name, [one.facts() for one in events], () if is_single else [one.start_ns for one in events], origins
    )


def simulated_trace(executor: Executor, inputs: Inputs, steps: int) -> RecordedTrace:
    """Run steps in the simulator; the trace is that of the last one."""
    executor.reset()
    for step in range(steps):
        executor.insert(inputs(step))
        executor.run_step()
    return _recorded("simulator", executor.events, executor.bound.origins)


def device_trace(plan: Plan, inputs: Inputs, steps: int, origins: Mapping[int, int]) -> RecordedTrace:
    """Compile a plan, run the same steps on this machine, and return the trace of the last one."""
    module = plan.build(plan.arch.toolchain.cc or "gcc", trace=TraceLevel.FULL)
    for step in range(steps):
        module.insert(inputs(step))
        module.run_step()
    return _recorded(plan.arch.title, module.events, origins)


def trace_from_file(name: str, text: str) -> RecordedTrace:
    """A trace that ``openinfer trace`` or ``synth --trace`` wrote; anything else is an error."""
    read_trace(text, name)
    events = json.loads(text)
    if not all(isinstance(one.get("micros"), list) and len(one["micros"]) == 3 for one in events):
        raise OpenInferError(Diagnostic(Code.BAD_SOURCE_FILE, f"{name[:80]!r}: events have no times"))
    return RecordedTrace(name, events)


def compared_traces(one: RecordedTrace, other: RecordedTrace, tolerance: float) -> dict[str, Any]:
    """Where two runs diverge, as ``openinfer trace-diff`` reports it."""
    left, right = (read_trace(trace.text(), trace.name) for trace in (one, other))
    return compare(left, right, tolerance).facts()
