"""The debugger's view of a run: the source around the next node, the way to it, what has been executed."""

from openinfer.check.events import Event
from openinfer.errors import counted, printable
from openinfer.ir import Node
from openinfer.sim.commands import Line, RefusedError
from openinfer.sim.inspection import brief, overview
from openinfer.sim.listing import Listing, head
from openinfer.sim.stepper import Halt, Stepper
from openinfer.sim.task import Frame

_CONTEXT = 2
_PAGE = 11


class Screen:
    """Renders a run and a listing as lines."""

    def __init__(self, stepper: Stepper, listing: Listing) -> None:
        self._stepper = stepper
        self._executor = stepper.executor
        self._bound = stepper.executor.bound
        self._listing = listing
        self._nodes: list[Node] = list(self._bound.graph.walk())
        self._listed = 0

    def welcome(self) -> list[Line]:
        """What is being run."""
        counts = f"{counted(len(self._nodes), 'node')}, {counted(self._stepper.total, 'step')}"
        return [Line(f"{self._listing.name}: {counts}; help lists the commands", "title")]

    # --- places ---------------------------------------------------------------------------------------------------

    def here(self) -> list[Line]:
        """The next node and the lines around it."""
        line = self._current_line()
        return [Line(self._title(), "title"), *self._source(line - _CONTEXT, line + _CONTEXT)] if line else []

    def _current_line(self) -> int:
        """The line of the next node; 0 if there is none."""
        node = None if self._stepper.is_finished else self._executor.next_node
        return 0 if node is None else self._listing.line_of(node.index)

    def _title(self) -> str:
        place, line = self._executor.place, self._current_line()
        assert place.node is not None
        parts = [f"{self._listing.name}:{line}", f"node {place.node.index}", self.step_text()]
        return ", ".join(parts + (_around(place.frames[-1]) if place.frames else ["block entry"]))

    def step_text(self) -> str:
        """The step that is running or comes next."""
        return f"step {self._stepper.done + 1} of {self._stepper.total}"

    def _source(self, first: int, last: int) -> list[Line]:
        current, shown = self._current_line(), self._listing.lines(first, last)
        width = len(str(shown[-1][0])) if shown else 0
        return [
            Line(f"-> {number:>{width}} | {text}".rstrip(), "current")
            if number == current
            else Line(f"   {number:>{width}} | {text}".rstrip())
            for number, text in shown
        ]

    def page(self, line: int | None) -> list[Line]:
        """Lines of the source around the given one, or around the next node."""
        middle = line or self._current_line() or 1
        return self._page(max(1, middle - _PAGE // 2))

    def next_page(self) -> list[Line]:
        """The lines after those shown last."""
        return self._page(self._listed + 1)

    def _page(self, first: int) -> list[Line]:
        lines = self._source(first, first + _PAGE - 1)
        if not lines:
            message = f"there are no more lines; the last one is {self._listing.count}"
            raise RefusedError(message)
        self._listed = first + len(lines) - 1
        return lines

    def where(self) -> list[Line]:
        """The path to the next node: step, blocks, loops, scopes."""
        place, stepper = self._executor.place, self._stepper
        if stepper.is_finished:
            return [Line(f"after the last node: {counted(stepper.total, 'step')} done")]
        lines = [Line(self.step_text(), "title")]
        if place.node is not None and not place.frames:
            lines.append(Line(f"  block entry, not begun yet: {self._node_text(place.node)}"))
        lines += [Line(f"  {', '.join(_around(frame))}: {self._node_text(frame.node)}") for frame in place.frames]
        if place.thread != "entry":
            lines.append(Line(f"  {place.thread} is a consumer; entry waits for it or runs later"))
        return lines

    def _node_text(self, node: Node) -> str:
        return f"line {self._listing.line_of(node.index)}, node {node.index}, {head(node)}"

    # --- what has happened ----------------------------------------------------------------------------------------

    def results(self, halt: Halt) -> list[Line]:
        """What the node wrote, if the run was a single node; otherwise the number of nodes and the time."""
        if halt.nodes > 1:
            return [Line(f"{counted(halt.nodes, 'node')} in {_time(halt.nanoseconds)}")]
        if halt.last is None:
            return []
        pairs = zip(halt.last.event.output, halt.last.results, strict=False)
        return [Line(f"{text}: {brief(self._bound.vars[name], value)}") for text, (name, value) in pairs]

    def culprit(self, halt: Halt) -> list[Line]:
        """The node whose write met a breakpoint."""
        if halt.last is None or not halt.is_by_value:
            return []
        return [Line(f"  by {self._node_text(self._nodes[halt.last.event.node_index])}", "stop")]

    def end(self, halt: Halt) -> list[Line]:
        """The last completed step and what it returned."""
        if not halt.ended:
            return []
        returned = [Line(f"  {name}: {brief(self._bound.vars[name], value)}") for name, value in halt.returned.items()]
        return [Line(f"step {halt.ended[-1]} of {self._stepper.total} is done", "stop"), *returned]

    def history(self, count: int) -> list[Line]:
        """The most recently executed nodes."""
        recent = list(self._stepper.history)[-count:]
        return [self._past(step, event) for step, event in recent] or [Line("nothing has been executed yet")]

    def _past(self, step: int, event: Event) -> Line:
        indices = "".join(f" {name}={value}" for name, value in event.indices.items())
        place = f"step {step}, {event.block_name}{indices}"
        return Line(f"{place}, {self._node_text(self._nodes[event.node_index])}, {_time(event.duration_ns)}")

    def variables(self) -> list[Line]:
        """All variables with their memory kinds."""
        place, found = self._executor.place, self._bound.vars.values()
        width = max((len(one.name) for one in found), default=0)
        kinds = {one.name: "temporary" if one.is_temporary else one.kind.value for one in found}
        return [Line(f"{kinds[one.name]:<10} {one.name:<{width}}  {overview(place, one)}") for one in found]


def _around(frame: Frame) -> list[str]:
    """The block and its index arguments, and the loops and scopes around a node."""
    indices = [f"{name}={value}" for name, value in frame.indices.items()]
    given = len(indices) - len(frame.ends)
    loops = [f"{one} in ..{end}" for one, end in zip(indices[given:], frame.ends, strict=True)]
    return [f"block {frame.block}", *indices[:given], *loops, *(f"scope {printable(name)}" for name in frame.scopes)]


def _time(nanoseconds: int) -> str:
    for unit, size in (("s", 1_000_000_000), ("ms", 1_000_000)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds / 1000:.3g} us"
