"""Drives an executor through several steps: node by node, over loops and branches, to the next breakpoint."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openinfer.check.events import Event
from openinfer.errors import ExecutionError, OpenInferError
from openinfer.ir import Access, BlockCall, Branch, Node, Return, walk
from openinfer.ops import Array
from openinfer.sim.executor import Executor, NodeView
from openinfer.sim.stops import Stop

Inputs = Callable[[int], Mapping[str, Any]]
"""The values to insert before a step; steps are counted from 0."""
_REMEMBERED = 10_000
_STARTS = 16
"""The number of recent steps whose initial states are kept."""


@dataclass
class Halt:
    """Why a run halted, and what it did until then."""

    nodes: int = 0
    nanoseconds: int = 0
    last: NodeView | None = None
    """The last executed node."""
    ended: list[int] = field(default_factory=list)
    """The completed steps, counted from 1."""
    returned: dict[str, Array] = field(default_factory=dict)
    """What the last completed step returned."""
    stops: list[str] = field(default_factory=list)
    """The breakpoints that were met."""
    is_by_value: bool = False
    """Whether one of them was met by a value that the last node wrote."""
    interrupted: bool = False
    """Whether the user interrupted the run."""
    given_up: bool = False
    """Whether the step was cancelled in the middle of a node, which undoes it."""
    error: OpenInferError | None = None
    """Why the step failed, which undoes it."""

    @property
    def is_notable(self) -> bool:
        """Whether there is more to report than executed nodes."""
        return bool(self.ended or self.stops or self.interrupted or self.given_up or self.error is not None)


@dataclass(frozen=True)
class RunPosition:
    """The progress of a run: completed steps, and executed nodes of the next one."""

    done: int
    nodes: int


@dataclass(frozen=True)
class _ValueEdit:
    """An edit of a variable by the user, with its position."""

    at: RunPosition
    name: str
    value: Array


class Stepper:
    """Runs nodes of an executor until there is a reason to halt, and inserts the inputs before every step.

    With ``keeps_starts``, persistent memory is saved before recent steps, so that ``go_back`` need not start from the
    first one.
    """

    def __init__(
        self,
        executor: Executor,
        inputs: Inputs,
        steps: int,
        state: str | bytes | None = None,
        *,
        keeps_starts: bool = False,
    ) -> None:
        self.executor = executor
        self._state = state
        self._inputs = inputs
        self.total = steps
        self.done = 0
        """The number of completed steps."""
        self.stops: dict[int, Stop] = {}
        """The breakpoints by number. While nodes run, another thread may only replace the whole dictionary."""
        self.history: deque[tuple[int, Event]] = deque(maxlen=_REMEMBERED)
        """The executed nodes, each with the number of its step."""
        self._executed = 0
        self._keeps_starts = keeps_starts
        self._starts: dict[int, bytes] = {}
        self._edits: list[_ValueEdit] = []
        self._is_running = False
        self._is_asked = False
        self._is_in_node = False
        self._parents = _parents(executor)

    @property
    def position(self) -> RunPosition:
        """The progress of the run."""
        return RunPosition(self.done, self._executed if self.executor.is_suspended else 0)

    @property
    def is_finished(self) -> bool:
        """Whether all steps have been completed."""
        return self.done >= self.total

    def restart(self) -> None:
        """Go back to the start, with persistent memory as before the first step."""
        self.executor.reset()
        if self._state is not None:
            self.executor.load_state(self._state)
        self.done = 0
        self._edits.clear()
        self.history.clear()
        self.executor.insert(self._inputs(0))

    def begin(self) -> None:
        """Begin the next step, unless one is suspended."""
        if not self.executor.is_suspended:
            if self._keeps_starts:
                self._keep_start()
            self.executor.insert(self._inputs(self.done))
            self.executor.begin_step()
            self._executed = 0

    def _keep_start(self) -> None:
        state = self.executor.save_state()
        assert state is not None
        self._starts[self.done] = state
        for old in sorted(self._starts)[:-_STARTS]:
            del self._starts[old]

    def edit(self, name: str, value: Any) -> None:
        """Set a volatile variable; going back to before this moment discards the edit."""
        self.begin()
        place = self.executor.place
        place.set(name, value)
        self._edits.append(_ValueEdit(self.position, name, place.read(Access(name))))

    def go_back(self, position: RunPosition) -> None:
        """Go back to an earlier position, with everything as it was there.

        Re-executes the nodes from the nearest saved start, with the same inputs and edits. Breakpoints are ignored.
        """
        wanted = (position.done, position.nodes)
        before = [one for one in self._edits if (one.at.done, one.at.nodes) <= wanted]
        history = [entry for entry in self.history if entry[0] <= position.done]
        start = max((one for one in self._starts if one <= position.done), default=None)
        self.restart()
        if start is not None:
            self.executor.load_state(self._starts[start])
            self.done = start
            self.history.extend(entry for entry in history if entry[0] <= start)
        first = 0 if start is None else start
        edits = deque(one for one in before if one.at.done >= first)
        while self.position != position:
            self._edit_again(edits)
            self._advance(Halt(), stopping=False)
        self._edit_again(edits)

    def _edit_again(self, edits: deque[_ValueEdit]) -> None:
        """Repeat the edits made at this position."""
        while edits and edits[0].at == self.position:
            one = edits.popleft()
            self.edit(one.name, one.value)

    # --- how far to go --------------------------------------------------------------------------------------------

    def into(self) -> Halt:
        """Execute one node; for a loop, branch or scope, only its head."""
        return self._go(lambda: lambda: True)

    def over(self) -> Halt:
        """Execute one node; a loop, branch or scope as a whole."""
        return self._go(lambda: self._passed(self.executor.next_node))

    def out(self) -> Halt:
        """Run to the end of the innermost loop, scope, block or step."""
        return self._go(self._passed_parent)

    def finish(self) -> Halt:
        """Run to the end of the step."""
        number = self.done
        return self._go(lambda: lambda: self.done > number)

    def resume(self) -> Halt:
        """Run to the end of the last step."""
        return self._go(lambda: lambda: False)

    def _passed(self, node: Node | None) -> Callable[[], bool]:
        """Whether the task has passed a node, where it is now before or inside it."""
        task = self.executor.place.task
        runs = isinstance(node.kind, Branch | BlockCall) if node is not None else False
        if task is None or node is None or not (node.body or runs):
            return lambda: True
        body, depth = {one.index for one in walk(node.body)}, task.depth

        def has_passed() -> bool:
            following = task.following
            return following is None or (task.depth <= depth and following.node.index not in body)

        return has_passed

    def _passed_parent(self) -> Callable[[], bool]:
        place = self.executor.place
        parent = None if place.node is None else self._parents.get(place.node.index)
        if parent is not None:
            return self._passed(parent)
        task, number = place.task, self.done
        depth = 0 if task is None else task.depth
        return lambda: self.done > number or (task is not None and (task.is_done or task.depth < depth))

    # --- execution ------------------------------------------------------------------------------------------------

    def _go(self, destination: Callable[[], Callable[[], bool]]) -> Halt:
        """Execute at least one node, and continue to the destination or to another reason to halt."""
        halt = Halt()
        self._is_running, self._is_asked = True, False
        try:
            self.begin()
            is_there = destination()
            while not halt.stops and not self._is_asked:
                self._advance(halt)
                if self.is_finished or is_there():
                    break
        except OpenInferError as error:
            halt.error = error
        except KeyboardInterrupt:
            self.executor.cancel()
            halt.given_up = True
        finally:
            self._is_running = False
        halt.interrupted = self._is_asked
        return halt

    def _advance(self, halt: Halt, *, stopping: bool = True) -> None:
        self.begin()
        self._is_in_node = True
        try:
            node = next(self.executor.iterate())
        finally:
            self._is_in_node = False
        halt.nodes += 1
        self._executed += 1
        halt.nanoseconds += node.event.duration_ns
        halt.last = node
        self.history.append((self.done + 1, node.event))
        if self.executor.next_node is None:
            self.executor.run_step()  # no node is left, so this ends the step
            self.done += 1
            halt.ended.append(self.done)
            halt.returned = self._returned()
        if stopping:
            self._meet(halt, node)

    def _returned(self) -> dict[str, Array]:
        last, place = self.executor.bound.graph.blocks["entry"].nodes[-1].kind, self.executor.place
        names = last.vars if isinstance(last, Return) else ()
        return {name: place.read(Access(name)) for name in names if place.is_at_hand(name)}

    def _meet(self, halt: Halt, node: NodeView) -> None:
        if not self.stops:
            return
        place = self.executor.place
        for number, stop in self.stops.items():
            reason = f"breakpoint {number}: {stop.text}"
            is_written = False
            try:
                is_written = stop.after is not None and stop.after(node)
                is_met = is_written or (stop.before is not None and not self.is_finished and stop.before(place))
            except ExecutionError as error:
                is_met, reason = True, f"{reason} cannot be evaluated: {error.message}"
            if is_met:
                halt.stops.append(reason)
            halt.is_by_value |= is_written

    def interrupt(self) -> None:
        """Handle Ctrl-C: halt after the running node or, if asked again while it runs, cancel the step.

        Raises ``KeyboardInterrupt`` to cancel, or if nothing is running, so it is for signal handlers.
        """
        if not self._is_running or (self._is_asked and self._is_in_node):
            raise KeyboardInterrupt
        self._is_asked = True


def _parents(executor: Executor) -> dict[int, Node]:
    """The loop or scope around each nested node."""
    return {inner.index: node for node in executor.bound.graph.walk() for inner in node.body}
