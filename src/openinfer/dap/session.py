"""A graph that an editor steps through: moves, frames, values, and stepping back."""

from collections.abc import Callable, Mapping
from os.path import realpath
from typing import Any

from openinfer.dap.breakpoints import Breakpoints
from openinfer.dap.values import ValueTrees
from openinfer.errors import printable
from openinfer.ir import Assign
from openinfer.sim.commands import RefusedError
from openinfer.sim.editing import edited_array, number_or_list, refused_value
from openinfer.sim.executor import Executor
from openinfer.sim.inspection import brief
from openinfer.sim.listing import Listing
from openinfer.sim.stepper import Halt, Inputs, RunPosition, Stepper
from openinfer.sim.stops import Stops, parsed_access
from openinfer.sim.views import require_editable

THREAD = 1


class DebugSession:
    """The state behind a client's requests, once it has launched a graph."""

    def __init__(self, executor: Executor, inputs: Inputs, steps: int, path: str, state: str | None = None) -> None:
        self._executor = executor
        self._bound = executor.bound
        self._path = path
        self.stepper = Stepper(executor, inputs, steps, state, keeps_starts=True)
        self.listing = Listing(self._bound.source, self._bound.origins)
        self._stops = Stops(self._bound, self.listing)
        self.breakpoints = Breakpoints(self.stepper, self._stops, self.listing)
        self.values = ValueTrees()
        self.stepper.restart()

    # --- position -------------------------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done."""
        return self.stepper.is_finished

    def source(self) -> dict[str, Any]:
        """The source of the graph: its file, or canonical text if the file is not text."""
        name = self._path.replace("\\", "/").rpartition("/")[2]
        if self._path.lower().endswith(".json"):
            return {"name": f"{name} (canonical text)", "sourceReference": 1}
        return {"name": name, "path": self._path}

    def is_source(self, source: Mapping[str, Any]) -> bool:
        """Whether a source that a client names is that of the graph, by any path."""
        own = self.source().get("path")
        if own is None:
            return bool(source.get("sourceReference"))
        path = source.get("path")
        return isinstance(path, str) and realpath(path) == realpath(own)

    def frames(self) -> list[dict[str, Any]]:
        """The blocks being executed, innermost first, each with the line of its node."""
        place = self._executor.place
        found = []
        for number, frame in enumerate(place.frames):
            loops = [f"{name} = {value}" for name, value in frame.indices.items()]
            title = " ".join([frame.block, *(f'"{scope}"' for scope in frame.scopes), *loops])
            found.append(self._frame(number + 1, title, frame.node.index))
        if not found and place.node is not None:
            found = [self._frame(1, "entry", place.node.index)]
        return found[::-1]

    def _frame(self, number: int, title: str, node: int) -> dict[str, Any]:
        return {
            "id": number,
            "name": printable(title),
            "line": self.listing.line_of(node),
            "column": 1,
            "source": self.source(),
        }

    def scopes(self, frame: int) -> list[dict[str, Any]]:
        """The scopes of a frame."""
        frames = self._executor.place.frames
        block = frames[frame - 1].block if 1 <= frame <= len(frames) else "entry"
        return self.values.scopes(self._executor.place, block)

    def variables(self, number: int, start: int, count: int) -> list[dict[str, Any]]:
        """The children of a scope or an array."""
        return self.values.children(self._executor.place, number, start, count)

    def evaluate(self, text: str) -> dict[str, Any]:
        """The value of an expression."""
        return self.values.evaluated(self._executor.place, text)

    def set_variable(self, number: int, name: str, text: str) -> str:
        """Set a variable below a number, and return its new value as text."""
        return self.set_value(str(self.values.access(number, name)), text)

    def set_value(self, target: str, text: str) -> str:
        """Set a variable or a part of it, and return its new value as text."""
        access = self._executor.place.seen(parsed_access(target))
        variable = self._bound.vars[self._stops.variable(access.base)]
        require_editable(variable)
        if self.is_finished:
            message = "all steps are done, and nothing would use the value"
            raise RefusedError(message)
        given = number_or_list(text)
        if given is None:
            raise refused_value(text)
        self.stepper.begin()
        place = self._executor.place
        self.stepper.edit(access.base, edited_array(place, access, variable, given))
        return brief(variable, self._executor.place.read(access))

    def is_at_breakpoint(self) -> bool:
        """Whether a breakpoint stops at the current position."""
        return self.breakpoints.hold_at(self._executor.place)

    def variable_named(self, name: str) -> str | None:
        """The name of a variable whose changes can be watched, else None."""
        return name if name in self._bound.vars else None

    # --- moving ---------------------------------------------------------------------------------------------------

    def moved(self, move: Callable[[], Halt]) -> Halt:
        """Execute a move; declarations are passed, as there is nothing to see at them."""
        self.values.forget()
        halt = move()
        while not halt.is_notable and not self.is_finished and self._declares():
            halt = self.stepper.into()
        return halt

    def _declares(self) -> bool:
        node = self._executor.next_node
        return node is not None and isinstance(node.kind, Assign)

    def back(self) -> None:
        """Return to before the last executed node, if there is one."""
        self.values.forget()
        position = self._before(self.stepper.position)
        while position is not None:
            self.stepper.go_back(position)
            position = self._before(position) if self._declares() else None

    def back_to_breakpoint(self) -> None:
        """Return to the last earlier node that has a breakpoint, or to the beginning."""
        self.values.forget()
        position = self._before(self.stepper.position)
        while position is not None:
            self.stepper.go_back(position)
            if self.is_at_breakpoint():
                return
            position = self._before(position)

    def _before(self, position: RunPosition) -> RunPosition | None:
        if position.nodes:
            return RunPosition(position.done, position.nodes - 1)
        if not position.done:
            return None
        nodes = sum(step == position.done for step, _ in self.stepper.history)
        return RunPosition(position.done - 1, max(0, nodes - 1))

    def restart(self) -> None:
        """Return to the beginning and reset the hit counts."""
        self.values.forget()
        self.breakpoints.count_again()
        self.stepper.restart()

    def returned(self, halt: Halt) -> list[str]:
        """What the steps that have ended returned, as lines."""
        if not halt.ended:
            return []
        values = [f"{name}: {brief(self._bound.vars[name], value)}" for name, value in halt.returned.items()]
        return [f"step {halt.ended[-1]} of {self.stepper.total}: {'; '.join(values) or 'done'}"]
