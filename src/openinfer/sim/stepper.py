"""Driving an executor through several steps: node by node, over loops and branches, on to the next breakpoint."""

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
"""What to insert before a step; steps are counted from 0."""
_REMEMBERED = 10_000


@dataclass
class Halt:
    """How a run came to a halt, and what it did until then."""

    nodes: int = 0
    nanoseconds: int = 0
    last: NodeView | None = None
    """The node that was executed last."""
    ended: list[int] = field(default_factory=list)
    """The steps that have been completed, counted from 1."""
    returned: dict[str, Array] = field(default_factory=dict)
    """What the last of them returned."""
    stops: list[str] = field(default_factory=list)
    """The breakpoints that were met."""
    is_by_value: bool = False
    """Whether one of them was met because of what the last node wrote."""
    interrupted: bool = False
    """Whether the user asked for it."""
    given_up: bool = False
    """Whether the step was given up in the middle of a node, so that it has not happened."""
    error: OpenInferError | None = None
    """Why the step failed, so that it has not happened."""

    @property
    def is_notable(self) -> bool:
        """Whether there is more to say than that nodes have been executed."""
        return bool(self.ended or self.stops or self.interrupted or self.given_up or self.error is not None)


class Stepper:
    """Runs nodes of an executor until there is a reason to halt. Inputs are inserted again before every step."""

    def __init__(self, executor: Executor, inputs: Inputs, steps: int, state: str | bytes | None = None) -> None:
        self.executor = executor
        self._state = state
        self._inputs = inputs
        self.total = steps
        self.done = 0
        """How many steps have been completed."""
        self.stops: dict[int, Stop] = {}
        self.history: deque[tuple[int, Event]] = deque(maxlen=_REMEMBERED)
        """The nodes that have been executed, each with the number of its step."""
        self._is_running = False
        self._is_asked = False
        self._is_in_node = False
        self._parents = _parents(executor)

    @property
    def is_finished(self) -> bool:
        """Whether all steps have been completed."""
        return self.done >= self.total

    def restart(self) -> None:
        """Go back to the beginning, with persistent memory as it was before the first step."""
        self.executor.reset()
        if self._state is not None:
            self.executor.load_state(self._state)
        self.done = 0
        self.history.clear()
        self.executor.insert(self._inputs(0))

    def begin(self) -> None:
        """Be inside a step: begin the next one unless one is suspended."""
        if not self.executor.is_suspended:
            self.executor.insert(self._inputs(self.done))
            self.executor.begin_step()

    # --- how far to go --------------------------------------------------------------------------------------------

    def into(self) -> Halt:
        """Execute one node; of a loop, branch or scope only its head."""
        return self._go(lambda: lambda: True)

    def over(self) -> Halt:
        """Execute one node, a loop, branch or scope as a whole."""
        return self._go(lambda: self._behind(self.executor.next_node))

    def out(self) -> Halt:
        """Go on to the end of the innermost loop, scope, block or step."""
        return self._go(self._behind_parent)

    def finish(self) -> Halt:
        """Go on to the end of the step."""
        number = self.done
        return self._go(lambda: lambda: self.done > number)

    def resume(self) -> Halt:
        """Go on to the end of the last step."""
        return self._go(lambda: lambda: False)

    def _behind(self, node: Node | None) -> Callable[[], bool]:
        """Whether the task that stands before or inside a node has come out behind it."""
        task = self.executor.place.task
        runs = isinstance(node.kind, Branch | BlockCall) if node is not None else False
        if task is None or node is None or not (node.body or runs):
            return lambda: True
        body, depth = {one.index for one in walk(node.body)}, task.depth

        def is_behind() -> bool:
            following = task.following
            return following is None or (task.depth <= depth and following.node.index not in body)

        return is_behind

    def _behind_parent(self) -> Callable[[], bool]:
        place = self.executor.place
        parent = None if place.node is None else self._parents.get(place.node.index)
        if parent is not None:
            return self._behind(parent)
        task, number = place.task, self.done
        depth = 0 if task is None else task.depth
        return lambda: self.done > number or (task is not None and (task.is_done or task.depth < depth))

    # --- going ----------------------------------------------------------------------------------------------------

    def _go(self, destination: Callable[[], Callable[[], bool]]) -> Halt:
        """Execute at least one node, and more until the destination or another reason to halt."""
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

    def _advance(self, halt: Halt) -> None:
        self.begin()
        self._is_in_node = True
        try:
            node = next(self.executor.iterate())
        finally:
            self._is_in_node = False
        halt.nodes += 1
        halt.nanoseconds += node.event.duration_ns
        halt.last = node
        self.history.append((self.done + 1, node.event))
        if self.executor.next_node is None:
            self.executor.run_step()  # no node is left, only the end
            self.done += 1
            halt.ended.append(self.done)
            halt.returned = self._returned()
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
            try:
                is_written = stop.after is not None and stop.after(node)
            except ExecutionError as error:
                is_written, reason = True, f"{reason} cannot be judged: {error.message}"
            if is_written or (stop.before is not None and not self.is_finished and stop.before(place)):
                halt.stops.append(reason)
            halt.is_by_value |= is_written

    def interrupt(self) -> None:
        """Ctrl-C: halt after the node that is running. Asked again while it still runs, the step is given up.

        When nothing runs, or to give up, this raises ``KeyboardInterrupt``, so it is for signal handlers.
        """
        if not self._is_running or (self._is_asked and self._is_in_node):
            raise KeyboardInterrupt
        self._is_asked = True


def _parents(executor: Executor) -> dict[int, Node]:
    """The loop or scope around each node that is inside one."""
    return {inner.index: node for node in executor.bound.graph.walk() for inner in node.body}
