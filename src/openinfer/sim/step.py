"""One step of a graph: its tasks, the values they hand over, and the commit or rollback at the end."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from openinfer.check.bound import BoundGraph
from openinfer.check.sizes import SizeError
from openinfer.check.step_sizes import StepSizes
from openinfer.errors import Code, Diagnostic, ExecutionError, counted
from openinfer.ir import Await, MemoryKind
from openinfer.ir.rules import awaited, is_consumer
from openinfer.ops import Array
from openinfer.sim.memory import MemoryKey, Overlay, SessionMemory, Values
from openinfer.sim.program import Instructions
from openinfer.sim.task import Task

if TYPE_CHECKING:
    from openinfer.sim.trace import Recorder

Choose = Callable[[Sequence[Task]], Task]
"""Chooses which runnable task runs next."""


def sequential(tasks: Sequence[Task]) -> Task:
    """Run entry as long as possible, then consumers in the order in which they were started."""
    return tasks[0]


class RunningStep:
    """A step in progress. Nothing outside of it changes until ``commit``."""

    def __init__(
        self,
        bound: BoundGraph,
        program: Instructions,
        memory: SessionMemory,
        recorder: "Recorder | None",
        budget: int | None,
    ) -> None:
        self.bound = bound
        self.program = program
        self.memory = memory
        self.recorder = recorder
        self.tables = memory.tables
        self.interrupted = False
        self.is_over = False
        """Whether the step has been committed or rolled back."""
        self.is_committed = False
        self._budget = budget
        self._left = budget if budget is not None else -1
        self.values = Values(memory, StepSizes(bound), self._inputs())
        for table in self.tables.values():
            table.begin()
        self.entry = Task(self, "entry", self.values)
        self._consumers = [block for block in bound.graph.blocks.values() if is_consumer(block)]
        self._started: dict[str, Task] = {}
        """The latest run of every consumer."""
        self._given: dict[str, set[str]] = {block.name: set() for block in self._consumers}
        """For each consumer, the awaited variables that have been yielded since it last started."""
        self._yielded: dict[str, Array] = {}
        self._returned: dict[str, Array] = {}
        self.on_start: Callable[[Task], None] | None = None

    def _inputs(self) -> dict[MemoryKey, Array]:
        missing = [
            variable
            for variable in self.bound.vars.values()
            if variable.kind is MemoryKind.DYNAMIC and variable.name not in self.memory.inputs
        ]
        if missing:
            raise ExecutionError(
                *(
                    Diagnostic(
                        Code.NOT_INSERTED,
                        f"the input {one.name!r} ({one.type}) has not been inserted",
                        one.decl.span if one.decl else None,
                        f"insert it before every step: executor.insert({one.name}=...)",
                    )
                    for one in missing
                )
            )
        return dict(self.memory.inputs.items())

    def bind_inputs(self) -> None:
        """Bind the dynamic sizes that all inputs together determine."""
        names = [one.name for one in self.bound.vars.values() if one.kind is MemoryKind.DYNAMIC]
        self.values.sizes.agree_together({name: self.values[name].shape for name in names})

    # --- tasks --------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether all tasks have ended. A consumer that never received all that it awaits never starts."""
        return self.entry.is_done and all(task.is_done for task in self._started.values())

    def runnable(self) -> list[Task]:
        """The tasks that can continue, entry first."""
        found = []
        if not self.entry.is_done and (not self.entry.waiting or self.is_ready(self.entry.waiting)):
            self.entry.waiting = ()
            found.append(self.entry)
        found += [task for task in self._started.values() if not task.is_done]
        return found

    def upcoming(self) -> Task | None:
        """The task that runs the next node if tasks run in sequence."""
        for task in self.runnable():
            node = task.following
            kind = None if node is None else node.node.kind
            if task is not self.entry or not isinstance(kind, Await) or self.is_ready(kind.vars):
                return task
        return None

    def advance(self, choose: Choose = sequential, before: Callable[[Task], None] | None = None) -> Task:
        """Run one node of one task, and return the task. An ``await`` that has to wait does not count as a node yet.

        ``before`` is called with the task before it runs.
        """
        while True:
            task = self._chosen(choose)
            if before is not None:
                before(task)
            task.advance()
            if not task.waiting:
                return task

    def run(self, choose: Choose | None = None) -> None:
        """Run to the end in this thread."""
        while not self.is_done:
            if choose is None:
                sequential(self.runnable()).run()
            else:
                self._chosen(choose).advance()

    def _chosen(self, choose: Choose) -> Task:
        tasks = self.runnable()
        task = choose(tasks)
        if not any(task is one for one in tasks):
            message = f"the scheduler chose {task!r:.60}, which is not one of the tasks it was given"
            raise ExecutionError(Diagnostic(Code.BAD_PARAMETER, message))
        return task

    def run_threaded(self) -> None:
        """Run to the end with one thread per consumer. No thread outlives the call."""
        threads: list[threading.Thread] = []
        latest: dict[str, threading.Thread] = {}
        failures: list[BaseException] = []

        def body(task: Task) -> None:
            try:
                with np.errstate(all="ignore"):
                    task.run()
            except BaseException as error:  # noqa: BLE001  (carried to the thread that waits)
                failures.append(error)
                self.interrupted = True

        def start(task: Task) -> None:
            thread = threading.Thread(target=body, args=(task,), name=f"openinfer {task.block}", daemon=True)
            threads.append(thread)
            latest[task.block] = thread
            thread.start()

        self.on_start = start
        try:
            while not self.entry.is_done:
                self.entry.run()
                if self.entry.waiting:
                    for block, thread in latest.items():
                        if set(awaited(self.bound.graph.blocks[block])) & set(self.entry.waiting):
                            thread.join()
                    if failures:
                        break
                    self.entry.waiting = ()
        except ExecutionError as error:
            failures.append(error)
        finally:
            if failures or not self.entry.is_done:
                self.interrupted = True
            for thread in threads:
                if thread.ident is not None:  # after an interrupt, it may not have started
                    thread.join()
        if failures:
            raise next((one for one in failures if not _is_interruption(one)), failures[0])

    def count(self, nodes: int) -> None:
        """Count nodes against the budget; an interrupt takes effect at the next node."""
        if self.interrupted:
            raise ExecutionError(Diagnostic(Code.INTERRUPTED, "the step was interrupted"))
        if nodes == 0:
            return
        if self._left > 0:
            self._left -= nodes
        elif self._left == 0:
            assert self._budget is not None
            message = f"the step has run its budget of {counted(self._budget, 'node')}"
            raise ExecutionError(Diagnostic(Code.NODE_BUDGET, message, None, "give a larger node_budget, or None"))

    def uncount_node(self) -> None:
        """Uncount an ``await`` that has to wait; it is counted when it is executed."""
        if self._left >= 0:
            self._left += 1

    # --- hand-overs -----------------------------------------------------------------------------------------------

    def hand_over(self, variables: tuple[str, ...]) -> None:
        """Entry yields: start the consumers that now have all that they await, each with its own copies.

        A consumer runs again once everything has been yielded again. By then its previous run is done, because entry
        has awaited its variables in between.
        """
        for name in variables:
            self._yielded[name] = self.values[name]
        for block in self._consumers:
            needed = awaited(block)
            given = self._given[block.name]
            given.update(name for name in variables if name in needed)
            if given and given == {*needed}:
                given.clear()
                copies = {name: self._yielded[name] for name in needed}
                task = Task(self, block.name, Overlay(self.values, copies, self.bound.locals))
                self._started[block.name] = task
                if self.on_start is not None:
                    self.on_start(task)

    def take_back(self, task: Task, variables: tuple[str, ...]) -> None:
        """A consumer yields: entry gets the values it changed when it awaits them."""
        for name in variables:
            value = task.values[name]
            if value is not self._yielded.get(name):
                self._returned[name] = value

    def is_ready(self, variables: tuple[str, ...]) -> bool:
        """Whether all consumers of these variables are done."""
        return all(
            block.name in self._started and self._started[block.name].is_done and not self._given[block.name]
            for block in self._consumers
            if set(awaited(block)) & set(variables)
        )

    def publish(self, variables: Sequence[str]) -> None:
        """Make the values that consumers yielded, and the sizes they bound, visible to entry."""
        for task in self._started.values():
            if set(awaited(self.bound.graph.blocks[task.block])) & set(variables):
                self.values.sizes.join(task.sizes, task.block)
        self._take(variables)

    def join_sizes(self) -> None:
        """At the end of a step, require one value for each dynamic size, even if entry has not awaited the consumer."""
        for task in self._started.values():
            try:
                self.values.sizes.join(task.sizes, task.block)
            except SizeError as error:
                span = self.bound.graph.blocks[task.block].nodes[0].span
                raise ExecutionError(Diagnostic(error.code, error.message, span)) from error

    def _take(self, variables: Sequence[str]) -> None:
        for name in variables:
            if name in self._returned:
                self.values[name] = self._returned[name]
                del self._returned[name]

    # --- the end --------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Make the step permanent: keep persistent values and consume the inputs.

        An interrupt during the commit is too late to undo the step; its handler calls this again.
        """
        self.is_over = self.is_committed = True
        self._take(tuple(self._returned))
        for name, variable in self.bound.vars.items():
            if variable.kind is MemoryKind.PERSISTENT and not variable.is_table and name in self.values:
                self.memory.persistent[name] = self.values[name]
        self.memory.inputs.clear()
        for table in self.tables.values():
            table.begin()

    def rollback(self) -> None:
        """Undo the step. After an interrupt, this can be called again."""
        self.is_over = True
        for table in self.tables.values():
            table.rollback()

    def let_go(self) -> None:
        """Drop the tasks of a finished step; because of reference cycles, arrays would wait for the collector."""
        self.on_start = None
        self._started = {}
        del self.entry


def _is_interruption(error: BaseException) -> bool:
    return isinstance(error, ExecutionError) and error.code is Code.INTERRUPTED
