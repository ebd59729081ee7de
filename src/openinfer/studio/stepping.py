"""The debugger behind the page's step view: moves, breakpoints, watches, edits and stepping back, as plain values."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from openinfer.check.bound import BoundGraph, BoundVar, FromPattern
from openinfer.errors import Code, Diagnostic, ExecutionError, OpenInferError, nearest
from openinfer.ir import Access, Assign, MemoryKind
from openinfer.ir.text import node_head
from openinfer.ops import Array
from openinfer.sim.commands import RefusedError
from openinfer.sim.editing import edited_array, number_or_list, refused_value
from openinfer.sim.executor import Executor
from openinfer.sim.inspection import overview
from openinfer.sim.listing import Listing
from openinfer.sim.preview import format_truncated
from openinfer.sim.stepper import Halt, Inputs, RunPosition, Stepper
from openinfer.sim.stops import Stop, Stops, parsed_access
from openinfer.sim.views import require_editable
from openinfer.studio.timeline import event_name
from openinfer.studio.values import value_facts

_SHOWN_HISTORY = 200


class StepSession:
    """A graph being stepped through; every answer gives the position of execution and the state that can be seen."""

    def __init__(self, executor: Executor, inputs: Inputs, steps: int) -> None:
        self._bound: BoundGraph = executor.bound
        self._executor = executor
        self._stepper = Stepper(executor, inputs, steps, keeps_starts=True)
        self._listing = Listing(self._bound.source, self._bound.origins)
        self._stops = Stops(self._bound, self._listing)
        self._set = 0
        self._asked: dict[int, dict[str, Any]] = {}
        """The command that set each breakpoint, and its line if it is on one."""
        self._been: list[RunPosition] = []
        self._before: dict[str, Array] = {}
        self._watched: list[str] = []
        self._stepper.restart()
        self._pass_declarations()

    # --- moving ---------------------------------------------------------------------------------------------------

    def move(self, how: str) -> dict[str, Any]:
        """Continue: ``into``, ``over``, ``out``, ``finish`` or ``resume``."""
        moves: dict[str, Callable[[], Halt]] = {
            "into": self._stepper.into,
            "over": self._stepper.over,
            "out": self._stepper.out,
            "finish": self._stepper.finish,
            "resume": self._stepper.resume,
        }
        if how not in moves:
            raise _refused(f"there is no move {how[:40]!r}; {nearest(how, moves) or ', '.join(moves)}")
        return self._moved(moves[how])

    def run_to(self, index: int) -> dict[str, Any]:
        """Run until a node comes next."""
        stop = self._parsed(f"node {index}")
        self._stepper.stops[0] = stop
        try:
            return self._moved(self._stepper.resume)
        finally:
            del self._stepper.stops[0]

    def _moved(self, move: Callable[[], Halt]) -> dict[str, Any]:
        if self._stepper.is_finished:
            raise _refused("all steps are done; back or restart goes on from earlier")
        self._remember()
        halt = move()
        if not halt.is_notable:
            self._pass_declarations()
        return self.facts(halt)

    def _pass_declarations(self) -> None:
        """Execute declarations: the picture does not show them, and there is nothing to see at them."""
        node = self._executor.next_node
        while not self._stepper.is_finished and node is not None and isinstance(node.kind, Assign):
            if self._stepper.into().is_notable:
                return
            node = self._executor.next_node

    def _remember(self) -> None:
        self._been.append(self._stepper.position)
        self._before = self._at_hand()

    def back(self) -> dict[str, Any]:
        """Return to where the last move began."""
        if not self._been:
            raise _refused("this is the beginning")
        self._before = self._at_hand()
        self._stepper.go_back(self._been.pop())
        return self.facts()

    def restart(self) -> dict[str, Any]:
        """Return to the beginning, with persistent memory as it was there."""
        self._been.clear()
        self._before = {}
        self._stepper.restart()
        self._pass_declarations()
        return self.facts()

    def plan_steps(self, count: int) -> dict[str, Any]:
        """Set the total number of steps."""
        self._stepper.total = max(count, self._stepper.done + self._executor.is_suspended, 1)
        return self.facts()

    def interrupt(self) -> None:
        """Halt a run after the current node; may be called from another thread."""
        try:
            self._stepper.interrupt()
        except KeyboardInterrupt:
            return

    # --- breakpoints and watches ----------------------------------------------------------------------------------

    def _parsed(self, text: str) -> Stop:
        with _said():
            return self._stops.parsed(text)

    def add_stop(self, text: str) -> dict[str, Any]:
        """Set a breakpoint, in the syntax of the command-line debugger."""
        stop = self._parsed(text)
        self._set += 1
        self._stepper.stops[self._set] = stop
        self._asked[self._set] = {"command": text, "line": None}
        return self.facts()

    def stop_at_line(self, line: int) -> dict[str, Any]:
        """Set a breakpoint on the first node at or after a line."""
        self.add_stop(f"line {line}")
        first = self._listing.first_from(line)
        self._asked[self._set]["line"] = None if first is None else self._listing.line_of(first)
        return self.facts()

    def remove_stop(self, number: int) -> dict[str, Any]:
        """Delete a breakpoint."""
        self._stepper.stops.pop(number, None)
        self._asked.pop(number, None)
        return self.facts()

    def watch(self, text: str) -> dict[str, Any]:
        """Show a variable, or a part of it, at every stop."""
        name = self._access(text)
        self._executor.place.read(name)
        if str(name) not in self._watched:
            self._watched.append(str(name))
        return self.facts()

    def unwatch(self, text: str) -> dict[str, Any]:
        """Stop showing a variable."""
        self._watched = [one for one in self._watched if one != text]
        return self.facts()

    # --- values ---------------------------------------------------------------------------------------------------

    def _access(self, text: str) -> Access:
        with _said():
            access = self._executor.place.seen(parsed_access(text))
            self._stops.variable(access.base)
        return access

    def value(self, text: str, lead: list[int]) -> dict[str, Any]:
        """A variable or a part of it, in full."""
        access = self._access(text)
        variable = self._bound.vars[access.base]
        found = value_facts(self._executor.place.read(access), variable.dtype.name, lead)
        return {"name": str(access), "editable": _is_editable(variable), **found}

    def edit(self, text: str, value: str) -> dict[str, Any]:
        """Set a volatile variable, or a part of it, to a value written as text; the step continues with it."""
        access = self._access(text)
        variable = self._bound.vars[access.base]
        require_editable(variable)
        if self._stepper.is_finished:
            raise _refused("all steps are done, and nothing would use the value")
        with _said():
            given = number_or_list(value)
            if given is None:
                raise refused_value(value)
            self._stepper.begin()
            new = edited_array(self._executor.place, access, variable, given)
        self._stepper.edit(access.base, new)
        return self.facts()

    # --- visible state --------------------------------------------------------------------------------------------

    def facts(self, halt: Halt | None = None) -> dict[str, Any]:
        """The position of execution, and the state that can be seen."""
        place, stepper = self._executor.place, self._stepper
        node = None if stepper.is_finished else place.node
        return {
            "step": stepper.done,
            "steps": stepper.total,
            "finished": stepper.is_finished,
            "node": None if node is None else self._origin(node.index),
            "text": "" if node is None else node_head(node),
            "line": None if node is None else self._listing.line_of(node.index),
            "nodes": stepper.position.nodes,
            "indices": dict(place.indices),
            "frames": [frame.block for frame in place.frames],
            "stops": [
                {"number": number, "text": stepper.stops[number].text, **asked} for number, asked in self._asked.items()
            ],
            "watches": [self._watch_facts(text) for text in self._watched],
            "variables": [self._variable_facts(one) for one in self._bound.vars.values()],
            "history": _history_facts(stepper, self._bound.origins),
            "back": len(self._been),
            "halt": None if halt is None else _halt_facts(halt, self._bound.origins),
        }

    def _origin(self, index: int) -> int:
        return self._bound.origins.get(index, index)

    def _watch_facts(self, text: str) -> dict[str, Any]:
        try:
            access = self._access(text)
            value = self._executor.place.read(access)
        except OpenInferError as error:
            return {"name": text, "error": error.message}
        return {"name": text, **value_facts(value, self._bound.vars[access.base].dtype.name)}

    def _variable_facts(self, variable: BoundVar) -> dict[str, Any]:
        place, name = self._executor.place, variable.name
        at_hand = not variable.is_table and place.is_at_hand(name)
        extents = list(place.variables.tables[name].shape_of(())) if variable.is_table else None
        return {
            "name": name,
            "kind": "temporary" if variable.is_temporary else variable.kind.value,
            "type": str(variable.type),
            "text": overview(place, variable),
            "known": at_hand or variable.is_table,
            "changed": at_hand and self._has_changed(name),
            "extents": extents,
            "fixed": dict(variable.fixed) if variable.is_table else None,
            "editable": _is_editable(variable),
            "family": isinstance(variable.origin, FromPattern),
        }

    def _at_hand(self) -> dict[str, Array]:
        place = self._executor.place
        known = (one for one in self._bound.vars.values() if not one.is_table and place.is_at_hand(one.name))
        return {one.name: place.read(Access(one.name)) for one in known}

    def _has_changed(self, name: str) -> bool:
        """Whether it differs from before the last move. Arrays are never written in place, so most are the same."""
        now, before = self._executor.place.read(Access(name)), self._before.get(name)
        if before is None:  # memory seen for the first time has not changed
            return bool(self._before) and self._bound.vars[name].kind is MemoryKind.VOLATILE
        if before is now or np.shares_memory(before, now):
            return False
        return before.shape != now.shape or before.tobytes() != now.tobytes()


def _halt_facts(halt: Halt, origins: Mapping[int, int]) -> dict[str, Any]:
    last = halt.last
    return {
        "nodes": halt.nodes,
        "nanoseconds": halt.nanoseconds,
        "last": None if last is None else origins.get(last.event.node_index, last.event.node_index),
        "written": [] if last is None else list(last.written),
        "ended": halt.ended,
        "returned": {name: format_truncated(value) for name, value in halt.returned.items()},
        "stops": [one.partition(": ")[2] for one in halt.stops if not one.startswith("breakpoint 0:")],
        "interrupted": halt.interrupted,
        "problems": [] if halt.error is None else [one.facts() for one in halt.error.diagnostics],
    }


def _history_facts(stepper: Stepper, origins: Mapping[int, int]) -> list[dict[str, Any]]:
    entries = list(stepper.history)[-_SHOWN_HISTORY:]
    return [
        {
            "step": step,
            "node": origins.get(event.node_index, event.node_index),
            "name": event_name(event.op_name, event.kind),
            "indices": event.indices,
            "nanoseconds": event.duration_ns,
        }
        for step, event in entries
    ]


def _is_editable(variable: BoundVar) -> bool:
    try:
        require_editable(variable)
    except OpenInferError:
        return False
    return True


@contextmanager
def _said() -> Iterator[None]:
    """Turn refusals of the command-line debugger into diagnostics for the page."""
    try:
        yield
    except RefusedError as error:
        raise _refused(str(error)) from error


def _refused(message: str) -> ExecutionError:
    return ExecutionError(Diagnostic(Code.WRONG_MOMENT, message))
